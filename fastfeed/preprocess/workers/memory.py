"""How many bytes the processes of a job may use, and what is left of them for large photographs."""

from __future__ import annotations

import os

from fastfeed.distributed.cores import cgroup_limits
from fastfeed.errors import ConfigError
from fastfeed.preprocess.task import FREE_BYTES
from fastfeed.storage.disk_cache import in_bytes

__all__ = ["default_memory", "divide_memory"]

# Measured, resident: a process that has imported what it needs and holds a shard's writer, and the one that leads them
_WORKER, _PARENT = 90_000_000, 110_000_000
_SHARE = 0.6  # of the machine, where nothing else is said
_LEAST = 128_000_000  # for photographs that need more than others


def default_memory() -> int:
    """Bytes that a job takes where it is not told: three fifths of what this machine, or container, has."""
    with open("/proc/meminfo", encoding="ascii") as file:
        known = {name: int(value.split()[0]) << 10 for name, value in (line.split(":", 1) for line in file)}
    most = known.get("MemTotal", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = cgroup_limits()[1]
    return int(_SHARE * min(most, limit or most))


def divide_memory(memory: int | str | None, workers: int) -> tuple[int, int]:
    """How many workers there can be, and the bytes for large photographs that these share.

    ConfigError where there is not enough for one. With little memory for many workers there are fewer of them.
    """
    whole = default_memory() if memory is None else in_bytes(memory, "memory")
    least = _PARENT + _WORKER + FREE_BYTES + _LEAST
    if whole < least:
        raise ConfigError(
            f"memory must be at least {least / 1e6:.0f} MB, which one worker and one photograph of some size need, "
            f"got {whole / 1e6:.0f} MB"
        )
    room = whole - _PARENT
    each = _WORKER + FREE_BYTES
    # no more than half for processes: one large photograph is to fit beside them
    count = max(1, min(workers, max(room // 2, each) // each))
    return count, room - count * each
