"""Ray: a shard is a task, somewhere in a cluster. Nothing but a task's description and counts goes through Ray."""

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
from uuid import uuid4

from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.engines.hosted import run_piece
from fastfeed.preprocess.task import Task, pickle_task
from fastfeed.preprocess.workers.supervisor import WorkerDied, WorkerLimits

# Ray reads this once, when it is imported: how often to try an address. By default 20 times, 40 s each
os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "2")
try:
    ray: Any = importlib.import_module("ray")  # by name: type checkers take `import ray` for this very file
    errors: Any = importlib.import_module("ray.exceptions")
except ImportError as error:
    raise MissingExtra.of('engine "ray"', "Ray", "ray") from error

__all__ = ["RayEngine"]

_TRIES = 4  # of a piece whose node or process is lost. Ray's own retries have no end where memory runs out
_CONNECT_S = 10.0  # Ray itself would wait for minutes
_LOOK_S = 2.0  # between looks at the cluster
_END_S = 10.0
_LOCAL = {"include_dashboard": False, "object_store_memory": 1 << 28}  # Ray would take a third of the memory
_START = "start one with `ray start --head`, or use ray:local for this machine alone"
# Ray finds its token by itself for clusters that it finds by itself
_TOKEN = "it answers, so its Ray may be of another version, or ask for a token: export RAY_AUTH_MODE=token"


@dataclass(frozen=True, slots=True)
class RayEngine:
    """`address`: "auto" (this machine's cluster, or RAY_ADDRESS), "local" (one that lasts as long as the run),
    "HOST:PORT", "ray://HOST:PORT". A Ray that runs in this process already is used as it is.

    Target and source must mean the same on all nodes, and fastfeed be installed there.
    """

    address: str = "auto"
    window: int | None = None  # shards at a time, running or waiting; default: twice those that have room
    rules: WorkerLimits = field(default_factory=WorkerLimits)  # for each shard; Ray counts its memory
    cpus_per_shard: float = 1.0
    patience_s: float = 300.0  # how long there may be no node with room for a shard, such as while a cluster grows

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ConfigError(f"window must be >= 1 shards, got {self.window}")
        if not self.cpus_per_shard > 0:
            raise ConfigError(f"cpus_per_shard must be > 0, got {self.cpus_per_shard!r}")

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        """As in Engine. ConfigError where there is no cluster, or no room in it for a shard."""
        if not pieces:
            return
        content = pickle_task(task)
        with _connected(self.address):
            yield from self._drive(content, pieces)

    def _drive(self, content: bytes, pieces: Sequence[int]) -> Iterator[Outcome]:
        do = ray.remote(_do).options(
            num_cpus=self.cpus_per_shard, memory=self.rules.memory, max_retries=0, scheduling_strategy="SPREAD"
        )
        name, stored = uuid4().hex, [ray.put(content)]  # in a list it is not sent along with each piece
        todo, live, tries = deque(pieces), dict[Any, int](), Counter[int]()
        room, looked, patient = 0, -_LOOK_S, monotonic()
        try:
            while todo or live:
                if monotonic() - looked > _LOOK_S:
                    room, looked = self._room(), monotonic()
                    patient = looked if room else patient
                    if looked - patient > self.patience_s:
                        raise ConfigError(self._no_room())
                while todo and len(live) < (self.window or 2 * room or 1):
                    piece = todo.popleft()
                    live[do.remote(name, stored, self.rules, piece)] = piece
                done, _ = ray.wait(list(live), num_returns=1, timeout=_LOOK_S)
                for ref in done:
                    piece = live.pop(ref)
                    outcome = _outcome(ref, piece)
                    tries[piece] += 1
                    if outcome is None and tries[piece] < _TRIES:
                        todo.append(piece)
                    else:
                        yield outcome or _given_up(ref, piece)
        finally:
            for ref in live:
                with suppress(errors.RayError):
                    ray.cancel(ref, force=True)
            if live:
                ray.wait(list(live), num_returns=len(live), timeout=_END_S)

    def _room(self) -> int:
        """Shards that the cluster can do at a time."""
        return sum(
            int(min(node.get("CPU", 0) // self.cpus_per_shard, node.get("memory", 0) // self.rules.memory))
            for node in _nodes()
        )

    def _no_room(self) -> str:
        found = [f"{node.get('CPU', 0):g} CPU and {node.get('memory', 0) / 1e9:.1f} GB" for node in _nodes()]
        return (
            f"a shard needs a node with {self.cpus_per_shard:g} CPU and {self.rules.memory / 1e9:.1f} GB of memory, and"
            f" the Ray cluster had none for {self.patience_s:g} s: {', '.join(found) or 'no node'}; add nodes, or ask "
            "for less memory"
        )


def _do(name: str, stored: list[Any], rules: WorkerLimits, piece: int) -> Outcome | None:
    """Runs in a process of Ray's."""
    return run_piece(name, None, rules, piece) or run_piece(name, ray.get(stored[0]), rules, piece)


def _outcome(ref: Any, piece: int) -> Outcome | None:
    """None where it is to be tried again."""
    try:
        return ray.get(ref)
    except errors.RayTaskError as error:  # it would fail again: fastfeed is missing there, or another version
        cause = str(error).strip().splitlines()[-1]
        return Outcome(
            piece, error=WorkerDied(f"Ray could not begin piece {piece}: {cause}; all nodes need this fastfeed")
        )
    except errors.RayError:
        return None


def _given_up(ref: Any, piece: int) -> Outcome:
    try:
        why = f"finished after all: {ray.get(ref)}"
    except errors.RayError as error:
        why = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return Outcome(
        piece,
        error=WorkerDied(f"Ray lost piece {piece} {_TRIES} times, last: {why}; run the same again to go on"),
    )


def _nodes() -> list[dict[str, float]]:
    """What each node has for tasks."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@contextmanager
def _connected(address: str) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    if auto := address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    options: dict[str, Any] = dict(_LOCAL) if address == "local" else {}
    _reach(address)
    ours = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="warning", **options)
    except Exception as error:  # ConnectionError, ValueError, RuntimeError (another version), errors of gRPC
        why = str(error).strip().splitlines()[0]
        raise ConfigError(f"no Ray cluster at {address!r}: {why}; {_START if auto else _TOKEN}") from error
    finally:
        if ours:  # Ray ends the process at SIGTERM; what to do then is not its decision
            signal.signal(signal.SIGTERM, before)
    try:
        yield
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """ConfigError soon where nobody is at HOST:PORT: Ray tries for minutes, and some of its errors end the process."""
    if address in ("auto", "local"):
        return
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        raise ConfigError(f'a Ray address is "auto", "local", "HOST:PORT" or "ray://HOST:PORT", got {address!r}')
    if address.startswith("ray://"):
        importlib.import_module("ray.util.client")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"no Ray cluster answers at {address}: {error}; {_START}") from error
