"""World.of_mesh: ranks of PyTorch's and JAX's device meshes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError


class Mesh:
    """What a DeviceMesh of 2 x 3 x 2 processes tells one of them."""

    mesh_dim_names = ("replicate", "shard", "tp")

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def get_coordinate(self) -> list[int] | None:
        return [self.rank // 6, self.rank // 2 % 3, self.rank % 2] if self.rank >= 0 else None

    def get_rank(self) -> int:
        return self.rank

    def size(self, axis: int | None = None) -> int:
        return 12 if axis is None else (2, 3, 2)[axis]


@pytest.mark.parametrize(
    ("dims", "ranks", "replicas"),
    [
        (("replicate", "shard"), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5], 2),
        ("shard", [0, 0, 1, 1, 2, 2] * 2, 4),
        (("shard", "replicate"), [0, 0, 2, 2, 4, 4, 1, 1, 3, 3, 5, 5], 2),
        (("replicate", "shard", "tp"), list(range(12)), 1),
    ],
)
def test_processes_of_a_mesh_share_the_samples_of_a_rank(
    dims: Any, ranks: list[int], replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = [World.of_mesh(Mesh(rank), dims) for rank in range(12)]
    assert [world.rank for world in worlds] == ranks
    assert {(world.size, world.replicas) for world in worlds} == {(12 // replicas, replicas)}
    assert [world.gpu for world in worlds] == list(range(12))
    names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
    for name, value in zip(names, (9, 12, 1, 4), strict=True):
        monkeypatch.setenv(name, str(value))
    world = World.of_mesh(Mesh(9), dims)
    assert (world.rank, world.gpu, world.local_size) == (ranks[9], 1, 4)
    each = f", {replicas} processes each" if replicas > 1 else ""
    assert str(world).endswith(f"(local 1 of 4){each}, found by device mesh")


def jax_mesh(owners: Any, names: tuple[str, ...], rank: int) -> Any:
    """What a jax.sharding.Mesh of devices of these processes tells one of them."""
    client = SimpleNamespace(process_index=lambda: rank)
    devices = np.empty(np.shape(owners), object)
    for at, owner in np.ndenumerate(owners):
        devices[at] = SimpleNamespace(process_index=int(owner), client=client)
    return SimpleNamespace(devices=devices, axis_names=names)


@pytest.mark.parametrize(
    ("owners", "dims", "ranks", "replicas"),
    [
        ([[0, 0], [1, 1], [2, 2]], "data", [0, 1, 2], 1),  # a process has a row
        ([[0, 0], [1, 1], [2, 2]], "model", [0, 0, 0], 3),
        ([[0, 0], [1, 1], [2, 2]], ("data", "model"), [0, 1, 2], 1),
        ([[0, 0], [1, 1], [2, 2]], (), [0, 0, 0], 3),
        ([[0, 1], [2, 3]], "data", [0, 0, 1, 1], 2),  # two processes share a row
        ([[0, 1], [2, 3]], "model", [0, 1, 0, 1], 2),
        ([[0, 1], [2, 3]], ("model", "data"), [0, 2, 1, 3], 1),
        ([[3, 2], [1, 0]], "data", [1, 1, 0, 0], 2),  # jax.make_mesh orders as the network does
        ([[0], [1], [0], [1]], "data", [0, 1], 1),
    ],
)
def test_processes_of_a_jax_mesh_read_the_rows_of_their_devices(
    owners: Any, dims: Any, ranks: list[int], replicas: int
) -> None:
    names = ("data", "model")[: np.ndim(owners)]
    worlds = [World.of_mesh(jax_mesh(owners, names, rank), dims) for rank in range(len(ranks))]
    assert [world.rank for world in worlds] == ranks
    assert {(world.size, world.replicas) for world in worlds} == {
        (len(ranks) // replicas, replicas)
    }
    own = np.size(owners) // len(ranks)  # with devices of its own, a process has a machine
    assert [(world.gpu, world.local_size) for world in worlds] == [
        (0, 1) if own > 1 else (rank, len(ranks)) for rank in range(len(ranks))
    ]


def test_a_jax_mesh_that_splits_processes_unevenly_is_refused() -> None:
    text = (
        "data must split the 3 processes of the mesh evenly, got data=2, model=3, where processes"
        " share some of their samples, not all; make that axis a multiple or a divisor of 3"
    )
    with pytest.raises(ConfigError) as caught:
        World.of_mesh(jax_mesh([[0, 0, 1], [1, 2, 2]], ("data", "model"), 0), "data")
    assert str(caught.value) == text
    with pytest.raises(ConfigError, match=r"^data must split the 3 processes .* data=4,"):
        World.of_mesh(jax_mesh([0, 0, 1, 2], ("data",), 0), "data")


def test_a_mesh_says_what_it_lacks() -> None:
    for mesh, names in ((Mesh(0), "replicate, shard, tp"), (jax_mesh([0], ("data",), 0), "data")):
        with pytest.raises(ConfigError, match=rf"dims must be of {names}, got 'dp'; name"):
            World.of_mesh(mesh, "dp")
    for mesh in (Mesh(-1), jax_mesh([1], ("dp",), 0), object()):
        with pytest.raises(ConfigError, match=r"mesh must be a DeviceMesh .* by init_device_mesh"):
            World.of_mesh(mesh, ())
