"""Creates the engine for the `engine` argument."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor

from fastfeed.distributed.cores import cgroup_limits, cores_for
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines import Engine
from fastfeed.preprocess.engines.executor import ExecutorEngine
from fastfeed.preprocess.engines.local import LocalEngine
from fastfeed.preprocess.model.image_recipe import is_int_in
from fastfeed.preprocess.model.task import FREE_BYTES
from fastfeed.preprocess.workers.supervisor import WorkerLimits
from fastfeed.storage.byte_sizes import in_bytes
from fastfeed.system.processes import memory_bytes


def engine_for(
    engine: Engine | Executor | str | None,
    workers: int | None,
    memory: int | str | None,
    timeout_s: float,
    gpus_per_worker: float = 0,
) -> Engine:
    """Create the engine for the `engine` argument. ConfigError, MissingExtra.

    workers: processes of this machine, or shards at a time elsewhere. memory: bytes of all local
    processes together, or of each process elsewhere. gpus_per_worker: of Ray.
    """
    if gpus_per_worker and not (isinstance(engine, str) and engine.partition(":")[0] == "ray"):
        raise ConfigError(
            'gpus_per_worker is for engine "ray" (--ray), which assigns GPUs to processes, got'
            f" {gpus_per_worker!r} for {engine!r}; elsewhere the function chooses its GPU itself",
            field="gpus_per_worker",
        )
    if workers is not None and not is_int_in(workers, 1, sys.maxsize):
        raise ConfigError.of("workers", "an integer >= 1", workers)
    if not timeout_s > 0:
        raise ConfigError.of("timeout", "> 0 seconds per image", timeout_s)
    if engine is None or engine == "local":
        count, shared = divide_memory(memory, workers or cores_for(World()))
        return LocalEngine(count, WorkerLimits(shared, timeout_s))
    if isinstance(engine, (str, Executor)):
        rules = WorkerLimits(timeout_s=timeout_s)
        if memory is not None:
            rules = WorkerLimits(divide_memory(memory, 1)[1], timeout_s)
        if isinstance(engine, Executor):
            return ExecutorEngine(engine, workers, rules)
        name, _, address = engine.partition(":")
        if name == "ray":
            from fastfeed.preprocess.engines.ray import RayEngine

            return RayEngine(address or "auto", workers, rules, gpus_per_worker=gpus_per_worker)
        allowed = '"local", "ray", "ray:ADDRESS", an executor or an Engine'
        raise ConfigError.of("engine", allowed, engine)
    if not callable(getattr(engine, "run", None)):
        raise ConfigError(
            f"an engine must have run(task, pieces), got {type(engine).__name__}; see"
            " fastfeed.preprocess.engines",
            field="engine",
        )
    return engine


PartIndex = tuple[int, int]  # (i, n): the i-th of n, from 0
_SLURM = ("TASK_ID", "TASK_MIN", "TASK_MAX", "TASK_STEP", "TASK_COUNT")


def parse_part(text: str, environ: Mapping[str, str] = os.environ) -> PartIndex:
    """Parse "3/8", the fourth of eight, or "auto", this task of a Slurm array. ConfigError."""
    if text == "auto":
        return _of_slurm(environ)
    parsed = re.fullmatch(r"(\d+)/(\d+)", text.strip(), re.ASCII)
    if not parsed or not int(parsed[2]):
        allowed = '"i/n", such as 0/8 for the first of eight, or "auto" (Slurm)'
        raise ConfigError.of("part", allowed, text)
    i = int(parsed[1])
    n = int(parsed[2])
    if i >= n:
        raise ConfigError(
            f"part must be in [0, {n}), got {i}: parts count from 0, to {n - 1}; in a Slurm array"
            f" (--array=0-{n - 1}) use --part auto",
            field="part",
        )
    return i, n


def select_part(pieces: Iterable[int], part: PartIndex) -> list[int]:
    """The pieces of a part. Depends only on the pieces' numbers, so no two parts share a piece."""
    i, n = part
    return [piece for piece in pieces if piece % n == i]


def _of_slurm(environ: Mapping[str, str]) -> PartIndex:
    """--array=0-7 and --array=1-8 and --array=10-80:10 are all eight parts."""
    names = [f"SLURM_ARRAY_{name}" for name in _SLURM]
    values = [environ.get(name, "") for name in names]
    if not all(value.isascii() and value.isdigit() for value in values):
        pairs = zip(names, values, strict=True)
        missing = ", ".join(name for name, value in pairs if not value.isdigit())
        raise ConfigError(
            'part "auto" reads the variables that Slurm sets for array tasks, but these are not'
            f' set: {missing}; submit with sbatch --array=0-7, or name the part: "0/8"',
            field="part",
        )
    id, low, high, step, count = map(int, values)
    if not step or (high - low) // step + 1 != count or not low <= id <= high or (id - low) % step:
        raise ConfigError(
            f'part "auto" needs an array without gaps, such as --array=0-7, got {count} tasks from'
            f' {low} to {high}; to repeat single parts, pass them as "3/8"',
            field="part",
        )
    return (id - low) // step, count


# Measured resident memory of a worker after its imports, with a shard's writer, and of the parent
# process
_WORKER = 90_000_000
_PARENT = 110_000_000
_SHARE = 0.6  # of the machine, by default
_UNKNOWN = 4 << 30  # of a machine that does not say
_MIN_SHARED = 128_000_000  # minimum for large images


def default_memory() -> int:
    """Default memory of a job in bytes: three fifths of this machine's or container's memory."""
    total = memory_bytes() or _UNKNOWN
    limit = cgroup_limits()[1]
    return int(_SHARE * min(total, limit or total))


def divide_memory(memory: int | str | None, workers: int) -> tuple[int, int]:
    """The number of workers, and the bytes that they share for large images. ConfigError."""
    total = default_memory() if memory is None else in_bytes(memory, "memory")
    minimum = _PARENT + _WORKER + FREE_BYTES + _MIN_SHARED
    if total < minimum:
        raise ConfigError(
            f"memory must be at least {minimum / 1e6:.0f} MB, as one worker and one larger"
            f" image need, got {total / 1e6:.0f} MB",
            field="memory",
        )
    available = total - _PARENT
    per_worker = _WORKER + FREE_BYTES
    # at most half for processes, so that a large image fits as well
    count = max(1, min(workers, max(available // 2, per_worker) // per_worker))
    return count, available - count * per_worker
