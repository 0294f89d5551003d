"""Processes of a trainer: started, waited for, ended with all their descendants."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from fastfeed.errors import ProofError
from fastfeed.profiler.runner.foreground import descendants
from fastfeed.system.processes import process_state
from fastfeed.system.signals import ENDING

__all__ = ["end", "orderly", "start", "wait"]

Process = subprocess.Popen  # of bytes
_POLL_S = 0.1
_AFTER_S = 60.0  # that a trainer may take to exit when its proof is complete
_INTERRUPTED_S = 5.0  # the same after Ctrl-C, which the terminal sends to the trainer as well
_KILL_S = 10.0  # after SIGTERM


@contextmanager
def orderly() -> Iterator[None]:
    """Turn SIGTERM and the like into SystemExit, so that started processes are ended too."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:  # not SIGINT, or what nohup ignores
                before[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def start(command: Sequence[str], more: Mapping[str, str]) -> Process[bytes]:
    """Start a command with more variables; its output goes to standard error."""
    try:
        return Process(list(command), env={**os.environ, **more}, stdout=_stderr())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProofError(f"cannot run {command[0]}: {reason}; name a program after --") from error


def wait(processes: Sequence[Process[bytes]], is_complete: Callable[[], bool]) -> list[int]:
    """Exit codes, once all have ended, one has failed, or a complete proof has timed out."""
    complete_at: float | None = None
    while any(process.poll() is None for process in processes):
        if any(process.returncode for process in processes):
            break  # the others would wait for it
        if complete_at is None and is_complete():
            complete_at = time.monotonic()
        if complete_at is not None and time.monotonic() - complete_at > _AFTER_S:
            break
        time.sleep(_POLL_S)
    return [process.returncode or 0 for process in processes]


def end(processes: Sequence[Process[bytes]], interrupted: bool) -> None:
    """End those that still run, and their descendants. A second Ctrl-C meanwhile kills them."""
    tree = _tree(processes)
    try:
        if interrupted:
            _await(processes, {}, _INTERRUPTED_S)
            tree |= _tree(processes)
        _send(processes, tree, signal.SIGTERM)
        _await(processes, tree, _KILL_S)
    finally:
        tree |= _tree(processes)
        _send(processes, tree, getattr(signal, "SIGKILL", signal.SIGTERM))
        for process in processes:
            process.wait()


def _stderr() -> int:
    with suppress(OSError, ValueError):  # closed, or no real file
        if sys.__stderr__ is not None:
            return sys.__stderr__.fileno()
    return subprocess.DEVNULL


def _tree(processes: Iterable[Process[bytes]]) -> dict[int, str]:
    """Running descendants by process number, with their start time: numbers are reused."""
    running = [process.pid for process in processes if process.poll() is None]
    return {pid: process_state(pid)[1] for parent in running for pid in descendants(parent)}


def _lives(pid: int, started: str) -> bool:
    state, found = process_state(pid)
    return bool(started) and found == started and state not in ("Z", "X")


def _send(processes: Iterable[Process[bytes]], tree: Mapping[int, str], number: int) -> None:
    for process in processes:
        process.send_signal(number)  # nothing, where it has ended
    for pid, started in tree.items():
        if _lives(pid, started):
            with suppress(OSError):
                os.kill(pid, number)


def _await(processes: Sequence[Process[bytes]], tree: Mapping[int, str], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if all(process.poll() is not None for process in processes) and not any(
            map(_lives, tree, tree.values())
        ):
            return
        time.sleep(_POLL_S)
