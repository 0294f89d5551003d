"""Signals that not every system has.

Windows: SIGTERM, SIGINT and SIGBREAK alone; no process dies of a signal, and none can be held back.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)
)


def is_kill(status: int) -> bool:
    """Return True if the return code is of a killed process, as when memory runs out."""
    return hasattr(signal, "SIGKILL") and status == -signal.SIGKILL


def describe_exit(status: int) -> str:
    """Ending of a process: "killed by SIGSEGV", "exit status 1"."""
    if status >= 0:
        return f"exit status {status}"
    names = {number.value: number.name for number in signal.Signals}  # not all numbers have one
    return f"killed by {names.get(-status, f'signal {-status}')}"


@contextmanager
def no_interrupt() -> Iterator[None]:
    """Block SIGINT in this thread; a process started meanwhile inherits that."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock_interrupt() -> None:
    """Unblock SIGINT in a process started under `no_interrupt`."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
