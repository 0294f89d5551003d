"""Parts of the data among the processes of a device mesh, of PyTorch or JAX.

Imports neither of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastfeed.errors import ConfigError


class DataPart(NamedTuple):
    """The part of the data that a process reads, and the processes that read as it does."""

    rank: int
    size: int  # parts in all
    replicas: int  # processes of each part


class MeshPlace(NamedTuple):
    """A process in a mesh."""

    part: DataPart
    process: int  # its number among all processes of the mesh
    processes: int
    alone: bool  # several devices are its own, as of a process that has a whole machine


def data_part(process: int, held: Iterable[tuple[int, int]]) -> DataPart | None:
    """The part of a process by pairs (process, cell of the data) of all devices.

    Processes with the same cells share a part; parts are numbered by their first cell.

    Returns:
        None if cells are shared by processes that differ in others, parts differ in size, or the
        process has no device.
    """
    cells: dict[int, set[int]] = defaultdict(set)
    for owner, cell in held:
        cells[owner].add(cell)
    parts = Counter(tuple(sorted(own)) for own in cells.values())
    every = [cell for part in parts for cell in part]
    alike = len({len(part) for part in parts}) == 1 == len(set(parts.values()))
    if not alike or len(every) != len(set(every)) or process not in cells:
        return None
    own = tuple(sorted(cells[process]))
    return DataPart(sorted(parts).index(own), len(parts), parts[own])


def place_in(mesh: Any, dims: str | Sequence[str]) -> MeshPlace:
    """The place of this process in a mesh, as `World.of_mesh` takes them.

    Raises:
        ConfigError: This is no mesh with this process in it, it has no such dimension, or these do
            not split the processes evenly.
    """
    wanted = (dims,) if isinstance(dims, str) else tuple(dims)
    devices = getattr(mesh, "devices", None)
    of_jax = isinstance(devices, np.ndarray)
    names = tuple(getattr(mesh, "axis_names" if of_jax else "mesh_dim_names", None) or ())
    if unknown := [name for name in wanted if names and name not in names]:
        raise ConfigError.of(
            "dims", f"of {', '.join(names)}", unknown[0], "name those that split the data"
        )
    place = (_in_jax if of_jax else _in_torch)(
        mesh, [names.index(name) for name in wanted if names]
    )
    if not names or place is None:
        raise ConfigError.of(
            "mesh",
            "a DeviceMesh of PyTorch with names of dimensions or a jax.sharding.Mesh, and this"
            " process in it",
            mesh,
            "make it by init_device_mesh(..., mesh_dim_names=...) or jax.make_mesh(shape, names)",
        )
    return place


def _in_torch(mesh: Any, axes: list[int]) -> MeshPlace | None:
    at = mesh.get_coordinate() if hasattr(mesh, "get_coordinate") else None
    if at is None:
        return None
    rank = 0
    size = 1
    processes = mesh.size()
    for axis in axes:
        rank = rank * mesh.size(axis) + at[axis]
        size *= mesh.size(axis)
    return MeshPlace(DataPart(rank, size, processes // size), mesh.get_rank(), processes, False)


def _in_jax(mesh: Any, axes: list[int]) -> MeshPlace | None:
    shape = mesh.devices.shape
    owners = [device.process_index for device in mesh.devices.flat]
    process = mesh.devices.flat[0].client.process_index()
    processes = len(set(owners))
    if process not in owners:
        return None
    positions = np.unravel_index(np.arange(mesh.devices.size), shape)
    cells = np.zeros(mesh.devices.size, np.int64)
    for axis in axes:
        cells = cells * shape[axis] + positions[axis]
    part = data_part(process, zip(owners, cells.tolist(), strict=True))
    if part is None:
        lengths = ", ".join(f"{name}={n}" for name, n in zip(mesh.axis_names, shape, strict=True))
        split = ", ".join(mesh.axis_names[axis] for axis in axes)
        raise ConfigError(
            f"{split} must split the {processes} processes of the mesh evenly, got {lengths}, where"
            " processes share some of their samples, not all; make that axis a multiple or a"
            f" divisor of {processes}",
            field="dims",
        )
    return MeshPlace(part, process, processes, owners.count(process) > 1)
