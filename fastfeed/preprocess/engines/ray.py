"""An engine that runs each shard as a Ray task; images never go through Ray."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.engines.executor import name_run, run_piece
from fastfeed.preprocess.model.task import Task, pickle_task
from fastfeed.preprocess.workers.supervisor import WorkerDied, WorkerLimits

# read by Ray on import: how often to try an address; by default 20 times, 40 s each
os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "2")
try:
    # by name: type checkers would resolve `import ray` to this file
    ray: Any = importlib.import_module("ray")
    errors: Any = importlib.import_module("ray.exceptions")
except ImportError as error:
    raise MissingExtra.of('engine "ray"', "Ray", "ray") from error

# of a piece whose node or process is lost. Ray's own retries never end when memory runs out
_MAX_TRIES = 4
_CONNECT_S = 10.0  # Ray itself would wait for minutes
_POLL_S = 2.0  # between checks of the cluster
_CANCEL_S = 10.0
_MAX_GPUS = 1 << 16
# Ray would reserve a third of the memory
_LOCAL = {"include_dashboard": False, "object_store_memory": 1 << 28}
_START = "start one with `ray start --head`, or use ray:local for this machine alone"
# Ray finds the token of clusters that it discovers itself
_TOKEN = (
    "it is reachable, so it may run another version of Ray, or require a token: export"
    " RAY_AUTH_MODE=token"
)


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Runs shards on a Ray cluster, over the connection of this process if it has one.

    `address`: "auto" (this machine's cluster, or RAY_ADDRESS), "local" (a cluster for this run
    only), "HOST:PORT", "ray://HOST:PORT". Source and target must have the same names on all nodes.
    """

    address: str = "auto"
    window: int | None = None  # shards submitted at a time; default: twice the cluster's capacity
    # per shard; Ray accounts for its memory
    rules: WorkerLimits = field(default_factory=WorkerLimits)
    cpus_per_shard: float = 1.0
    # per shard whose task calls a user's function; Ray names them in CUDA_VISIBLE_DEVICES
    gpus_per_worker: float = 0.0
    # to wait for a node with capacity for a shard, such as while a cluster grows
    patience_s: float = 300.0

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ConfigError.of("window", ">= 1 shards", self.window)
        if not self.cpus_per_shard > 0:
            raise ConfigError.of("cpus_per_shard", "> 0", self.cpus_per_shard)
        gpus = self.gpus_per_worker
        if not (0 <= gpus < 1 or (1 <= gpus < _MAX_GPUS and gpus == int(gpus))):
            allowed = "a fraction below 1, or a whole number"
            raise ConfigError.of("gpus_per_worker", allowed, gpus)

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        """As in Engine. ConfigError if there is no cluster, or none with capacity for a shard."""
        if not pieces:
            return
        content = pickle_task(task)
        with _connected(self.address):
            gpus = self.gpus_per_worker if getattr(task, "calls_function", False) else 0
            yield from self._drive(content, pieces, gpus)

    def _drive(self, content: bytes, pieces: Sequence[int], gpus: float) -> Iterator[Outcome]:
        # without max_calls, which Ray sets to 1 if remote() is given GPUs: processes, and thereby
        # models, are kept from shard to shard
        ray_task = ray.remote(_ray_task).options(
            num_cpus=self.cpus_per_shard,
            num_gpus=gpus,
            memory=self.rules.memory,
            max_retries=0,
            scheduling_strategy="SPREAD",
        )
        # in a list, so that Ray does not resolve it for each piece
        name = name_run()
        stored = [ray.put(content)]
        todo = deque(pieces)
        running = dict[Any, int]()
        attempts = Counter[int]()
        capacity = 0
        checked = -_POLL_S
        last_capacity = monotonic()
        try:
            while todo or running:
                if monotonic() - checked > _POLL_S:
                    capacity = self._capacity(gpus)
                    checked = monotonic()
                    last_capacity = checked if capacity else last_capacity
                    if checked - last_capacity > self.patience_s:
                        raise ConfigError(self._no_capacity(gpus))
                while todo and len(running) < (self.window or 2 * capacity or 1):
                    piece = todo.popleft()
                    running[ray_task.remote(name, stored, self.rules, piece)] = piece
                done, _ = ray.wait(list(running), num_returns=1, timeout=_POLL_S)
                for ref in done:
                    piece = running.pop(ref)
                    outcome = _outcome(ref, piece)
                    attempts[piece] += 1
                    if outcome is None and attempts[piece] < _MAX_TRIES:
                        todo.append(piece)
                    else:
                        yield outcome or _failed(ref, piece)
        finally:
            for ref in running:
                with suppress(errors.RayError):
                    ray.cancel(ref, force=True)
            if running:
                ray.wait(list(running), num_returns=len(running), timeout=_CANCEL_S)

    def _capacity(self, gpus: float) -> int:
        """Shards that the cluster can run at a time."""
        total = 0
        for node in _nodes():
            by_memory = node.get("memory", 0) // self.rules.memory
            by_gpus = node.get("GPU", 0) // gpus if gpus else by_memory
            total += int(min(node.get("CPU", 0) // self.cpus_per_shard, by_memory, by_gpus))
        return total

    def _no_capacity(self, gpus: float) -> str:
        def text(cpus: float, gpus_there: float, memory: float) -> str:
            shown = f", {gpus_there:g} GPU" if gpus else ""
            return f"{cpus:g} CPU{shown} and {memory / 1e9:.1f} GB"

        nodes = [
            text(node.get("CPU", 0), node.get("GPU", 0), node.get("memory", 0)) for node in _nodes()
        ]
        needed = text(self.cpus_per_shard, gpus, self.rules.memory)
        return (
            f"a shard needs a node with {needed} of memory,"
            f" and the Ray cluster had none for {self.patience_s:g} s:"
            f" {', '.join(nodes) or 'no node'}; add nodes, or request less memory"
        )


def _ray_task(name: str, stored: list[Any], rules: WorkerLimits, piece: int) -> Outcome | None:
    """Runs in a Ray worker process."""
    return run_piece(name, None, rules, piece) or run_piece(name, ray.get(stored[0]), rules, piece)


def _outcome(ref: Any, piece: int) -> Outcome | None:
    """The outcome; None if the piece must be tried again."""
    try:
        return ray.get(ref)
    except errors.RayTaskError as error:
        # would fail again: fastfeed is missing there, or of another version
        cause = str(error).strip().splitlines()[-1]
        why = f"Ray could not start piece {piece}: {cause}; all nodes need this version of fastfeed"
        return Outcome(piece, error=WorkerDied(why))
    except errors.RayError:
        return None


def _failed(ref: Any, piece: int) -> Outcome:
    try:
        why = f"finished after all: {ray.get(ref)}"
    except errors.RayError as error:
        why = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    lost = f"Ray lost piece {piece} {_MAX_TRIES} times, last: {why}"
    return Outcome(piece, error=WorkerDied(f"{lost}; run the same command again to resume"))


def _nodes() -> list[dict[str, float]]:
    """Resources of the live nodes."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@contextmanager
def _connected(address: str) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    if auto := address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    options: dict[str, Any] = dict(_LOCAL) if address == "local" else {}
    _check_reachable(address)
    is_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="warning", **options)
    except Exception as error:
        # ConnectionError, ValueError, RuntimeError (another version), errors of gRPC
        cause = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"no Ray cluster at {address!r}: {cause}; {_START if auto else _TOKEN}", field="address"
        ) from error
    finally:
        if is_main_thread:  # Ray would end the process on SIGTERM; keep our own handler
            signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise ConfigError soon if HOST:PORT is unreachable: Ray tries for minutes."""
    if address in ("auto", "local"):
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        raise ConfigError(
            f'a Ray address is "auto", "local", "HOST:PORT" or "ray://HOST:PORT", got {address!r}',
            field="address",
        )
    if address.startswith("ray://"):
        importlib.import_module("ray.util.client")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"no Ray cluster answers at {address}: {error}; {_START}", field="address"
        ) from error
