"""Ends a process as soon as one it works for has ended, even if that was killed without cleanup.

Two mechanisms, as each has a gap. A pipe whose end closes: the kernel kills its reader, even in a
call that holds the interpreter's lock; but processes forked meanwhile keep the end open. A pidfd of
the other process, watched by a thread. Not PR_SET_PDEATHSIG: it follows the thread that started a
process, and workers outlive such threads.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fastfeed.system.processes import machine, process_state
from fastfeed.system.shared_memory import anonymous


def identity(pid: int | None = None) -> str:
    """Identifies a process of this machine, by default this one: boot.namespace.pid.start."""
    pid = pid or os.getpid()
    return ".".join([*machine(), str(pid), process_state(pid)[1]])


def end_with_pipe(fd: int) -> None:
    """Let the kernel kill this process when the other end of the pipe `fd` closes."""
    import fcntl  # not on every system, and no worker is started without

    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(fd, select.POLLHUP)
    if poll.poll(0):  # it closed before
        _kill()


def end_with(identities: Sequence[str]) -> None:
    """Kill this process when one of these ends; other machines' and containers' are ignored."""
    watched = [fd for fd in map(_open, identities) if fd is not None]
    if not watched:  # as on systems without pidfds, which may have no poll() either
        return
    poll = select.poll()
    for fd in watched:
        poll.register(fd, select.POLLIN)

    def watch() -> None:
        poll.poll()
        _kill()

    threading.Thread(target=watch, name="fastfeed-lifeline", daemon=True).start()


def _open(other: str) -> int | None:
    """A pidfd of the process with this identity; None if it cannot be watched.

    Kills this process if it has ended.
    """
    boot, space, pid, start = other.split(".")
    if not boot or (boot, space) != machine() or not hasattr(os, "pidfd_open"):
        return None
    fd = None
    with suppress(OSError):  # it has ended, or the kernel has no pidfds
        fd = os.pidfd_open(int(pid))
    state, started = process_state(int(pid))
    has_ended = state in "ZX" or started != start  # its pid was reused, maybe
    if has_ended and Path("/proc/self/stat").exists():
        _kill()
    return fd


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# sample (-1: none), samples begun; native alignment, so each is stored atomically
_FORMAT = struct.Struct("qQ")


class ProgressSlot:
    """Shared memory that one process writes and another reads."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = anonymous(mmap.PAGESIZE, "fastfeed-place") if fd is None else fd
        self._memory = mmap.mmap(self.fd, mmap.PAGESIZE)
        self._begun = 0
        if fd is None:
            self.write(-1)

    def write(self, sample: int) -> None:
        """Set the sample that this process works on."""
        self._begun += sample >= 0
        _FORMAT.pack_into(self._memory, 0, sample, self._begun)

    def read(self) -> tuple[int, int]:
        """Read the pair (sample, samples begun)."""
        return _FORMAT.unpack_from(self._memory, 0)
