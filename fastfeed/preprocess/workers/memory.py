"""Divides the memory of a job among worker processes and large photographs."""

from __future__ import annotations

from fastfeed.distributed.cores import cgroup_limits
from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.task import FREE_BYTES
from fastfeed.storage.byte_sizes import in_bytes
from fastfeed.system.processes import memory_bytes

__all__ = ["default_memory", "divide_memory"]

# Measured resident memory of a worker after its imports, with a shard's writer, and of the parent
# process
_WORKER, _PARENT = 90_000_000, 110_000_000
_SHARE = 0.6  # of the machine, by default
_UNKNOWN = 4 << 30  # of a machine that does not say
_MIN_SHARED = 128_000_000  # minimum for large photographs


def default_memory() -> int:
    """Default memory of a job in bytes: three fifths of this machine's or container's memory."""
    total = memory_bytes() or _UNKNOWN
    limit = cgroup_limits()[1]
    return int(_SHARE * min(total, limit or total))


def divide_memory(memory: int | str | None, workers: int) -> tuple[int, int]:
    """The number of workers, and the bytes that they share for large photographs.

    ConfigError if there is not enough for one worker. With little memory there are fewer workers
    than requested.
    """
    total = default_memory() if memory is None else in_bytes(memory, "memory")
    minimum = _PARENT + _WORKER + FREE_BYTES + _MIN_SHARED
    if total < minimum:
        raise ConfigError(
            f"memory must be at least {minimum / 1e6:.0f} MB, as one worker and one larger"
            f" photograph need, got {total / 1e6:.0f} MB",
            field="memory",
        )
    available = total - _PARENT
    per_worker = _WORKER + FREE_BYTES
    # at most half for processes, so that a large photograph fits as well
    count = max(1, min(workers, max(available // 2, per_worker) // per_worker))
    return count, available - count * per_worker
