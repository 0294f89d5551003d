"""Supervises a worker process: sends it pieces, watches its progress, replaces it when it dies.

If a process dies or hangs at an image, that image is tried alone in a separate process. If that
one dies as well, the image is poison and the piece is run again without it. Otherwise the piece is
run again with it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from fastfeed.decode.base import DecodeFailure
from fastfeed.decode.memory_limit import MemoryLimit
from fastfeed.decode.pillow_warnings import tell
from fastfeed.errors import FastfeedError
from fastfeed.preprocess.model.task import Outcome, Task, pickle_task
from fastfeed.preprocess.workers.lifeline import ProgressSlot, identity
from fastfeed.system.signals import ENDING, describe_exit, is_kill

# of an image that survives alone, or of a piece without an image to blame; then give up
_MAX_DEATHS = 3
# NumPy's threads would spin while a process starts, and are not needed
_SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_END_S = 2.0  # then a process is killed
_POLL_S = 0.25  # between checks of a worker's progress


class WorkerDied(FastfeedError, RuntimeError):
    """A worker process died repeatedly, and not because of an image."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Memory and time that a worker process may use."""

    # bytes for images that need more than task.FREE_BYTES; shared if the budget is
    memory: int = 1 << 30
    timeout_s: float = 120.0  # for one image


class _Death(Exception):
    def __init__(self, sample: int, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.sample = sample  # that it worked on; -1: none
        self.reason = reason
        self.detail = detail


class Supervisor:
    """Runs pieces of a task in one process at a time. Not thread-safe, except for `close`."""

    def __init__(
        self,
        task: Task | bytes,  # or its pickle
        rules: WorkerLimits | None = None,
        budget: MemoryLimit | None = None,  # of rules.memory bytes; several may share it
        on_progress: Callable[[int, int], None] | None = None,  # called with (piece, samples begun)
        driver: str = "",  # identity of the process that runs the job, if that is another one
    ) -> None:
        self._task = task if isinstance(task, bytes) else pickle_task(task)
        self._rules = rules or WorkerLimits()
        self._budget = budget or MemoryLimit(self._rules.memory)
        self._on_progress = on_progress
        self._driver = driver
        self._worker: _Worker | None = None
        self._lock = threading.Lock()
        self._closed = False
        self.deaths = 0  # processes, so far

    def run_piece(self, piece: int) -> Outcome:
        """Run a piece, even if its images crash or hang the process."""
        poison: dict[int, DecodeFailure] = {}
        deaths = Counter[int]()
        while True:
            try:
                return Outcome(piece, self._request(self._live_worker(), "do", piece, poison))
            except _Death as death:
                if self._closed:
                    return Outcome(piece, error=WorkerDied("closed"))
                self.deaths += 1
                self._end_worker()
                deaths[death.sample] += 1
                if death.sample >= 0:
                    reproduced = self._reproduce(death.sample)
                    if reproduced or deaths[death.sample] >= _MAX_DEATHS:
                        cause = reproduced or death
                        poison[death.sample] = DecodeFailure(cause.reason, cause.detail)
                elif deaths[-1] >= _MAX_DEATHS:
                    why = f"piece {piece}: {death.detail}, {_MAX_DEATHS} times"
                    return Outcome(piece, error=WorkerDied(why))
            except Exception as error:  # anything that Task.run raised in the worker
                return Outcome(piece, error=error)

    def _reproduce(self, sample: int) -> _Death | None:
        """The death of a process with this sample alone; None if it survives.

        A process that was killed is tried several times: the kill may have been meant for another
        process.
        """
        death = None
        for _ in range(_MAX_DEATHS):
            death = self._try_alone(sample)
            if death is None or death.reason != "oom":
                return death
        return death

    def _try_alone(self, sample: int) -> _Death | None:
        """Try one image in a separate process; the death of that process, or None."""
        try:
            with self._lock:
                if self._closed:
                    return None
                worker = self._worker = _Worker(self._task, self._rules, self._driver)
            self._request(worker, "alone", sample, {})
        except _Death as death:
            self.deaths += 1
            return death
        except Exception:  # the process survives; the piece will report the error
            return None
        finally:
            self._end_worker()
        return None

    def _request(
        self, worker: _Worker, command: str, piece: int, poison: dict[int, DecodeFailure]
    ) -> dict[str, Any]:
        """Send a command and return the answer.

        Raises:
            _Death: The process died or timed out.
            Exception: Any error that the process answers with.
        """
        before = worker.slot.read()[1]
        worker.send((command, piece, poison))
        with ExitStack() as reservations:  # memory reservations, released even if the process dies
            while True:
                name, *payload = worker.receive()
                if name == "going":
                    if self._on_progress and command == "do":
                        self._on_progress(piece, worker.slot.read()[1] - before)
                elif name == "need":
                    need = payload[0]
                    limit = self._rules.memory
                    if need <= limit:
                        reservations.enter_context(self._budget.reserve(need))
                    worker.send(("given" if need <= limit else "never", limit))
                elif name == "free":
                    reservations.close()
                elif name == "warning":
                    tell(*payload)
                elif name == "done":
                    return payload[0]
                else:
                    raise payload[0]

    def _live_worker(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise _Death(-1, "worker_crash", "closed")
            if self._worker is None:
                self._worker = _Worker(self._task, self._rules, self._driver)
            return self._worker

    def _end_worker(self) -> None:
        with self._lock:
            worker = self._worker
            self._worker = None
        if worker is not None:
            worker.end()

    def close(self) -> None:
        """End the process; a running `run_piece` returns soon."""
        with self._lock:
            self._closed = True
        self._end_worker()


class _Worker:
    """One worker process and its connection."""

    def __init__(self, task: bytes, rules: WorkerLimits, driver: str) -> None:
        self.slot = slot = ProgressSlot()
        path = [entry for entry in sys.path if isinstance(entry, str)]
        # import from sys.path, not from the working directory
        safe = ["-P"] if sys.version_info >= (3, 11) else []
        with ExitStack() as opened:
            opened.callback(os.close, slot.fd)  # the mapping remains
            our_end, their_end = socket.socketpair()
            opened.enter_context(their_end)
            with ExitStack() as failed:  # such as when no process can be started
                failed.enter_context(our_end)
                watched, self._lifeline = os.pipe()  # nothing is written to it
                opened.callback(os.close, watched)
                failed.callback(os.close, self._lifeline)
                self._connection = Connection(os.dup(our_end.fileno()))
                fds = their_end.fileno(), slot.fd, watched
                identities = [identity(), *([driver] if driver else [])]
                module = ["-m", "fastfeed.preprocess.workers.worker"]
                self.process = subprocess.Popen(
                    [sys.executable, *safe, *module, *map(str, fds), *identities],
                    stdin=subprocess.DEVNULL,
                    pass_fds=fds,
                    env=os.environ | _SINGLE_THREADED | {"PYTHONPATH": os.pathsep.join(path)},
                    start_new_session=True,  # Ctrl-C in a terminal is for the parent process
                )
                failed.pop_all()
        self._our_end = our_end
        self._timeout_s = rules.timeout_s
        # last progress, and its time
        self._last_slot = slot.read()
        self._since = monotonic()
        self._task: tuple[Any, ...] | None = (path, task, rules.memory)

    def send(self, message: tuple[Any, ...]) -> None:
        """Send a message. _Death if the process is gone."""
        try:
            # not sent in the constructor, so that `end` can be called meanwhile
            if self._task is not None:
                first = self._task
                self._task = None
                self._connection.send(first)
                while self.receive()[0] != "ready":
                    pass
            self._connection.send(message)
            self._since = monotonic()  # it may have waited for this message
        except OSError:
            raise self._death() from None

    def receive(self) -> tuple[Any, ...]:
        """The next message, or ("going",) after a pause without one.

        Raises:
            _Death: The process died or timed out.
        """
        try:
            if self._connection.poll(min(_POLL_S, self._timeout_s)):
                return self._connection.recv()
        except (EOFError, OSError):
            raise self._death() from None
        if (current := self.slot.read()) != self._last_slot or current[0] < 0:
            self._last_slot = current
            self._since = monotonic()
        elif monotonic() - self._since > self._timeout_s:
            self.process.kill()
            raise _Death(current[0], "timeout", f"timed out after {self._timeout_s:g} s")
        return ("going",)

    def _death(self) -> _Death:
        self.end(wait_s=_END_S)
        status = self.process.returncode
        sample = self.slot.read()[0]
        if is_kill(status):
            return _Death(sample, "oom", "killed, as the system does when memory runs out")
        requested = -status in ENDING  # to end, not caused by an image
        return _Death(-1 if requested else sample, "worker_crash", describe_exit(status))

    def end(self, wait_s: float = _END_S) -> None:
        """End the process, and kill it after `wait_s`; leaves no zombie."""
        with suppress(OSError):  # shut down, not closed: this wakes another thread that waits on it
            self._our_end.shutdown(socket.SHUT_RDWR)
        try:
            self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._our_end.close()
        lifeline = self._lifeline
        self._lifeline = -1
        if lifeline >= 0:
            os.close(lifeline)
