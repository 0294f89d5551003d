"""One worker process as its owner sees it: given pieces, listened to, replaced when it dies.

A process that dies or hangs while it is at a photograph has that photograph tried alone, in a process of its own. If
that one dies, too, the photograph is poison: the piece is done again without it. Else it is done again with it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from fastfeed.decode.base import Bad
from fastfeed.decode.memory_limit import MemoryLimit
from fastfeed.errors import FastfeedError
from fastfeed.preprocess.task import Outcome, Task, pickle_task
from fastfeed.preprocess.workers.progress_slot import ProgressSlot

__all__ = ["Supervisor", "WorkerDied", "WorkerLimits", "close_all"]

_DEATHS = 3  # of one photograph that lives alone, or of a piece at no photograph; then it is given up
# NumPy's threads, which would spin while a process starts, and have nothing to do in it
_ALONE = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_END_S = 2.0  # a process that has not ended by itself after this is killed
_LOOK_S = 0.25  # how often to see where a process is
_ENDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
)  # asked to end: by no photograph


class WorkerDied(FastfeedError, RuntimeError):
    """A worker process died again and again, and no photograph is to blame."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What a worker process may do."""

    memory: int = 1 << 30  # bytes for photographs that need more than work.FREE; shared where the budget is
    timeout_s: float = 120.0  # for one photograph


class _Death(Exception):
    def __init__(self, sample: int, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.sample = sample  # that it was at; -1: none
        self.reason, self.detail = reason, detail


class Supervisor:
    """Does pieces of one task in one process at a time. For one thread; `close` may come from another."""

    def __init__(
        self,
        task: Task | bytes,  # or its pickle
        rules: WorkerLimits | None = None,
        budget: Budget | None = None,  # of rules.memory bytes, shared by several
        heard: Callable[[int, int], None] | None = None,  # called with (piece, samples begun)
    ) -> None:
        self._task = task if isinstance(task, bytes) else pickle_task(task)
        self._rules = rules or WorkerLimits()
        self._budget = budget or Budget(self._rules.memory)
        self._heard = heard
        self._child: _Child | None = None
        self._changing = threading.Lock()
        self._closed = False
        self.died = 0  # processes, so far

    def do(self, piece: int) -> Outcome:
        """A piece, whatever its photographs do to the process."""
        poison: dict[int, Bad] = {}
        deaths = Counter[int]()
        while True:
            try:
                return Outcome(piece, self._ask(self._living(), "do", piece, poison))
            except _Death as death:
                if self._closed:
                    return Outcome(piece, error=WorkerDied("closed"))
                self.died += 1
                self._drop()
                deaths[death.sample] += 1
                if death.sample >= 0:
                    again = self._guilty(death.sample)
                    if again or deaths[death.sample] >= _DEATHS:
                        blame = again or death
                        poison[death.sample] = Bad(blame.reason, blame.detail)
                elif deaths[-1] >= _DEATHS:
                    return Outcome(piece, error=WorkerDied(f"piece {piece}: {death.detail}, {_DEATHS} times"))
            except Exception as error:  # what Task.run raised there, of any kind
                return Outcome(piece, error=error)

    def _guilty(self, sample: int) -> _Death | None:
        """How its process dies when it is alone; None where it can live. Whoever kills processes may mean another one,
        so that who is killed is tried more than once."""
        for _ in range(_DEATHS):
            death = self._alone(sample)
            if death is None or death.reason != "oom":
                return death
        return death

    def _alone(self, sample: int) -> _Death | None:
        """Try a photograph in a process of its own; how that died, if it did."""
        try:
            with self._changing:
                if self._closed:
                    return None
                child = self._child = _Child(self._task, self._rules)
            self._ask(child, "alone", sample, {})
        except _Death as death:
            self.died += 1
            return death
        except Exception:  # it lives, and what is wrong will be said by the piece
            return None
        finally:
            self._drop()
        return None

    def _ask(self, child: _Child, what: str, piece: int, poison: dict[int, Bad]) -> dict[str, Any]:
        """The answer; _Death when the process gives none, and any Exception that it answers with."""
        before = child.begun
        child.send((what, piece, poison))
        with ExitStack() as held:  # room, given back also when the process dies
            while True:
                name, *content = child.receive()
                if name == "going":
                    if self._heard and what == "do":
                        self._heard(piece, child.begun - before)
                elif name == "need":
                    need, limit = content[0], self._rules.memory
                    if need <= limit:
                        held.enter_context(self._budget.reserve(need))
                    child.send(("given" if need <= limit else "never", limit))
                elif name == "free":
                    held.close()
                elif name == "done":
                    return content[0]
                else:
                    raise content[0]

    def _living(self) -> _Child:
        with self._changing:
            if self._closed:
                raise _Death(-1, "worker_crash", "closed")
            if self._child is None:
                self._child = _Child(self._task, self._rules)
            return self._child

    def _drop(self) -> None:
        with self._changing:
            child, self._child = self._child, None
        if child is not None:
            child.end()

    def close(self) -> None:
        """End the process; a `do` under way returns soon."""
        with self._changing:
            self._closed = True
            child, self._child = self._child, None
        if child is not None:
            child.end()


def close_all(leaders: Sequence[Supervisor]) -> None:
    """End their processes, side by side: each may take a while to let go."""
    threads = [threading.Thread(target=leader.close, name="fastfeed-end") for leader in leaders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class _Child:
    """One process."""

    def __init__(self, task: bytes, rules: WorkerLimits) -> None:
        self._place = place = ProgressSlot()
        path = [entry for entry in sys.path if isinstance(entry, str)]
        safe = ["-P"] if sys.version_info >= (3, 11) else []  # modules come from sys.path, not from the working folder
        with ExitStack() as opened:
            opened.callback(os.close, place.fd)  # the memory stays
            ours, theirs = socket.socketpair()
            opened.enter_context(theirs)
            with ExitStack() as failed:  # no process can be started, say
                failed.enter_context(ours)
                self._connection = Connection(os.dup(ours.fileno()))
                fds = theirs.fileno(), place.fd
                self.process = subprocess.Popen(
                    [sys.executable, *safe, "-m", "fastfeed.preprocess.workers.worker", *map(str, fds)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=fds,
                    env=os.environ | _ALONE | {"PYTHONPATH": os.pathsep.join(path)},
                    start_new_session=True,  # Ctrl-C in a terminal is for who started this
                )
                failed.pop_all()
        self._ours = ours
        self._timeout_s = rules.timeout_s
        self._seen, self._since = place.read(), monotonic()  # where it was, and since when
        self._task: tuple[Any, ...] | None = (path, task, rules.memory)

    def send(self, message: tuple[Any, ...]) -> None:
        """_Death where nobody is there to receive it."""
        try:
            if self._task is not None:  # first, and not in the constructor: whoever made it can end it by now
                first, self._task = self._task, None
                self._connection.send(first)
                while self.receive()[0] != "ready":
                    pass
            self._connection.send(message)
            self._since = monotonic()  # it may have waited for this: for work, for room
        except OSError:
            raise self._death() from None

    @property
    def sample(self) -> int:
        """That it is at; -1: none."""
        return self._place.read()[0]

    @property
    def begun(self) -> int:
        """Samples that it has begun."""
        return self._place.read()[1]

    def receive(self) -> tuple[Any, ...]:
        """The next message, or ("going",) after a moment without one; _Death where none will come."""
        try:
            if self._connection.poll(min(_LOOK_S, self._timeout_s)):
                return self._connection.recv()
        except (EOFError, OSError):
            raise self._death() from None
        if (now := self._place.read()) != self._seen or now[0] < 0:
            self._seen, self._since = now, monotonic()
        elif monotonic() - self._since > self._timeout_s:
            self.process.kill()
            raise _Death(now[0], "timeout", f"not done after {self._timeout_s:g} s")
        return ("going",)

    def _death(self) -> _Death:
        self.end(wait_s=_END_S)
        status = self.process.returncode
        if status == -signal.SIGKILL:
            return _Death(self.sample, "oom", "killed, as the system does where memory runs out")
        known = {number.value: number.name for number in signal.Signals}
        how = f"killed by {known.get(-status, f'signal {-status}')}" if status < 0 else f"exit status {status}"
        return _Death(-1 if -status in _ENDED else self.sample, "worker_crash", how)

    def end(self, wait_s: float = _END_S) -> None:
        """Leaves no process and no zombie."""
        with suppress(OSError):  # not closed: another thread may be waiting on it, and is woken by this
            self._ours.shutdown(socket.SHUT_RDWR)
        try:
            self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._ours.close()
