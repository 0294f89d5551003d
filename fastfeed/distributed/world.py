"""The rank of this process among all processes of a training job."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from fastfeed.arguments import checked
from fastfeed.distributed.launchers import LAUNCHERS, Environ
from fastfeed.errors import ConfigError

__all__ = ["World"]


@checked
@dataclass(frozen=True, slots=True)
class World:
    """The rank of this process among all processes of a training job.

    Args:
        rank (int): Rank among all processes. Range [0, size). Default: 0.
        size (int): Number of processes in all. At least 1. Default: 1.
        local_rank (int): Rank among the processes on this machine. Range [0, local_size). Default:
            0.
        local_size (int): Number of processes on this machine. Range [1, size]. Default: 1.
        found_by (str): The launcher and the variables read, for people. Not compared. Default:
            "default".

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

    def __post_init__(self) -> None:
        for name in ("rank", "size", "local_rank", "local_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"{name} must be an integer, got {value!r}; pass int({name})")
        if self.size < 1:
            raise ConfigError(
                f"size must be >= 1, got {self.size}; pass the number of processes in all"
            )
        if not 0 <= self.rank < self.size:
            raise ConfigError(
                f"rank must be in [0, {self.size}), got {self.rank}; pass the global rank, not the"
                " local one"
            )
        if not 1 <= self.local_size <= self.size:
            raise ConfigError(
                f"local_size must be in [1, {self.size}], got {self.local_size}; pass the processes"
                " on this machine"
            )
        if not 0 <= self.local_rank < self.local_size:
            raise ConfigError(
                f"local_rank must be in [0, {self.local_size}), got {self.local_rank}; "
                "pass the rank on this machine, and local_size with it"
            )

    @classmethod
    @checked
    def detect(cls, environ: Environ | None = None) -> World:
        """Read the rank of this process from its launcher's environment variables.

        A common name alone (`RANK`, `WORLD_SIZE` or `LOCAL_RANK` without the others) does not count
        as a launcher.

        Args:
            environ (Mapping[str, str] | None): Environment variables. Default: None, those of this
                process.

        Returns:
            The world, whose `found_by` names the variables read; `World()` where no launcher is
            found.

        Raises:
            ConfigError: Variables are half set, not numbers, or out of range.

        Example:
            >>> world = ff.World.detect({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
            >>> world.rank, world.gpu
            (3, 1)
        """
        environ = os.environ if environ is None else environ
        for read in LAUNCHERS.values():
            found = read(environ)
            if found is None:
                continue
            try:
                return cls(
                    found.rank, found.size, found.local_rank, found.local_size, found.found_by
                )
            except ConfigError as error:
                raise ConfigError(f"{found.found_by}: {error}, or unset {found.variable}") from None
        return cls(found_by="default: no launcher in the environment")

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
        name, _, what = self.found_by.partition(": ")
        if name == "default":
            return f"{text}, {what}" if what else text
        return f"{text}, found by {name}"
