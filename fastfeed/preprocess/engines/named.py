"""Creates the engine for the `engine` argument."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

from fastfeed.distributed.cores import cores_for
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines import Engine
from fastfeed.preprocess.workers.memory import divide_memory
from fastfeed.preprocess.workers.supervisor import WorkerLimits

__all__ = ["engine_for"]


def engine_for(
    engine: Engine | Executor | str | None,
    workers: int | None,
    memory: int | str | None,
    timeout_s: float,
) -> Engine:
    """ "local", "ray", "ray:ADDRESS", an executor, or an engine as it is.

    ConfigError, MissingExtra.

    workers: processes of this machine, or shards at a time elsewhere. memory: bytes of all
    local processes together, or of each process elsewhere.
    """
    if workers is not None and (
        isinstance(workers, bool) or not isinstance(workers, int) or workers < 1
    ):
        raise ConfigError(f"workers must be an integer >= 1, got {workers!r}", field="workers")
    if not timeout_s > 0:
        raise ConfigError(
            f"timeout must be > 0 seconds per photograph, got {timeout_s!r}", field="timeout"
        )
    if engine is None or engine == "local":
        count, shared = divide_memory(memory, workers or cores_for(World()))
        from fastfeed.preprocess.engines.local import LocalEngine

        return LocalEngine(count, WorkerLimits(shared, timeout_s))
    if isinstance(engine, (str, Executor)):
        rules = (
            WorkerLimits(timeout_s=timeout_s)
            if memory is None
            else WorkerLimits(divide_memory(memory, 1)[1], timeout_s)
        )
        if isinstance(engine, Executor):
            from fastfeed.preprocess.engines.executor import ExecutorEngine

            return ExecutorEngine(engine, workers, rules)
        name, _, address = engine.partition(":")
        if name == "ray":
            from fastfeed.preprocess.engines.ray import RayEngine

            return RayEngine(address or "auto", workers, rules)
        raise ConfigError(
            'engine must be "local", "ray", "ray:ADDRESS", an executor or an Engine, got'
            f" {engine!r}"
        )
    return _check_engine(engine)


def _check_engine(engine: Any) -> Engine:
    if not callable(getattr(engine, "run", None)):
        raise ConfigError(
            f"an engine must have run(task, pieces), got {type(engine).__name__}; see"
            " fastfeed.preprocess.engines"
        )
    return engine
