"""The rank of this process among all processes of a training job.

It is read from launchers' environment variables, without the network, and in workers of Ray Train
from Ray, whatever started its nodes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastfeed.arguments import checked
from fastfeed.distributed.launchers import LAUNCHERS, Environ
from fastfeed.errors import ConfigError


@checked
@dataclass(frozen=True, slots=True)
class World:
    """The rank of this process among all processes of a training job.

    Args:
        rank (int): Rank among all processes. Range [0, size). Default: 0.
        size (int): Number of processes in all. At least 1. Default: 1.
        local_rank (int): Rank among the processes on this machine. Range [0, local_size). Default:
            0.
        local_size (int): Number of processes on this machine. Range [1, size * replicas]. Default:
            1.
        found_by (str): The launcher and the variables read, for people. Not compared. Default:
            "default".
        replicas (int): Number of processes that read the samples of each rank, as those of tensor
            parallelism do. At least 1. Default: 1.

    Raises:
        ConfigError: A number is not an integer or outside its range.

    Example:
        >>> print(ff.World(rank=5, size=8, local_rank=1, local_size=4))
        rank 5 of 8 (local 1 of 4)
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    found_by: str = field(default="default", compare=False)
    replicas: int = 1

    def __post_init__(self) -> None:
        for name in ("rank", "size", "local_rank", "local_size", "replicas"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError.of(name, "an integer", value, f"pass int({name})")
        if self.size < 1:
            raise ConfigError.of("size", ">= 1", self.size, "pass the number of processes in all")
        if not 0 <= self.rank < self.size:
            raise ConfigError.of(
                "rank", f"in [0, {self.size})", self.rank, "pass the global rank, not the local one"
            )
        if self.replicas < 1:
            raise ConfigError.of("replicas", ">= 1", self.replicas, "pass processes per rank")
        processes = self.size * self.replicas
        if not 1 <= self.local_size <= processes:
            raise ConfigError.of(
                "local_size",
                f"in [1, {processes}]",
                self.local_size,
                "pass the processes on this machine",
            )
        if not 0 <= self.local_rank < self.local_size:
            raise ConfigError.of(
                "local_rank",
                f"in [0, {self.local_size})",
                self.local_rank,
                "pass the rank on this machine, and local_size with it",
            )

    @classmethod
    @checked
    def detect(cls, environ: Environ | None = None) -> World:
        """Read the rank of this process from its launcher's environment variables.

        A worker of Ray Train has its rank from `ray.train.get_context()`. A common name alone
        (`RANK`, `WORLD_SIZE` or `LOCAL_RANK` without the others) does not count as a launcher.

        Args:
            environ (Mapping[str, str] | None): Environment variables. Default: None, those of this
                process.

        Returns:
            The world, whose `found_by` names the variables read; `World()` where no launcher is
            found.

        Raises:
            ConfigError: Variables are half set, not numbers, or out of range.

        Example:
            >>> world = ff.World.detect(
            ...     {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
            ... )
            >>> world.rank, world.gpu
            (3, 1)
        """
        environ = os.environ if environ is None else environ
        if environ is os.environ and (worker := _ray_worker()):
            return cls(*worker, found_by="Ray Train: ray.train.get_context()")
        for read in LAUNCHERS.values():
            found = read(environ)
            if found is None:
                continue
            try:
                return cls(
                    found.rank, found.size, found.local_rank, found.local_size, found.found_by
                )
            except ConfigError as error:
                text = f"{found.found_by}: {error}, or unset {found.variable}"
                raise ConfigError(text, field=found.variable) from None
        return cls(found_by="default: no launcher in the environment")

    @classmethod
    @checked
    def of_mesh(cls, mesh: Any, dims: str | Sequence[str]) -> World:
        """The rank of this process among those that split the data of a mesh of PyTorch or JAX.

        Processes that differ in other dimensions, as those of tensor, context or pipeline
        parallelism, read the same samples.

        Args:
            mesh (torch.distributed.device_mesh.DeviceMesh | jax.sharding.Mesh): The whole mesh of
                the job.
            dims (str | Sequence[str]): Names of the dimensions that split the data, the outermost
                first, such as "dp" or ("dp_replicate", "dp_shard").

        Returns:
            The world, with the rank on this machine as `detect` reads it; without a launcher, all
            processes are taken to be on this machine, and one with several devices to have its own.

        Raises:
            ConfigError: This is no mesh with this process in it, it has no such dimension, or the
                dimensions do not split the processes evenly.

        Example:
            >>> mesh = init_device_mesh(  # doctest: +SKIP
            ...     "cuda", (4, 2), mesh_dim_names=("dp", "tp")
            ... )
            >>> feed = ff.Feed(source, ops, batch=64, world=ff.World.of_mesh(mesh, "dp"))  # doctest: +SKIP
        """
        from fastfeed.distributed.mesh import place_in  # with NumPy, which pin_gpu() comes before

        (rank, size, replicas), process, processes, alone = place_in(mesh, dims)
        launched = cls.detect()
        local_rank, local_size = (0, 1) if alone else (process, processes)
        if launched.size > 1:
            local_rank = launched.local_rank
            local_size = launched.local_size
            replicas = launched.size // size
        return cls(rank, size, local_rank, local_size, "device mesh", replicas)

    @property
    def gpu(self) -> int:
        """GPU of this process on its machine; 0 if the launcher shows it only one."""
        return self.local_rank

    @property
    def main(self) -> bool:
        """Rank 0, the one that writes checkpoints, logs and progress."""
        return self.rank == 0

    def __str__(self) -> str:
        text = f"rank {self.rank} of {self.size} (local {self.local_rank} of {self.local_size})"
        if self.replicas > 1:
            text += f", {self.replicas} processes each"
        name, _, what = self.found_by.partition(": ")
        if name == "default":
            return f"{text}, {what}" if what else text
        return f"{text}, found by {name}"


def _ray_worker() -> tuple[int, int, int, int] | None:
    """Rank, size, local rank and local size of a worker; None outside of Ray Train's functions.

    Ray Train sets variables for PyTorch and TensorFlow alone, and its workers inherit those of the
    step that has started Ray, as `srun ray start` does.
    """
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        numbers = (
            context.get_world_rank(),
            context.get_world_size(),
            context.get_local_rank(),
            context.get_local_world_size(),
        )
    except (RuntimeError, AttributeError, Warning):  # a driver, Ray Tune; differs by Ray's version
        return None
    return None if None in numbers else numbers
