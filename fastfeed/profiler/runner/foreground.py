"""Run a command in the foreground and wait for it: its signals, its exit code, and its orphans."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fastfeed.system.processes import stat_fields

_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_WAITED = tuple(signal.Signals[name] for name in (*_FORWARDED, "SIGCHLD"))
_POLL_S = 0.1  # how soon a child's start is noticed; its end is noticed at once
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h

Started = Callable[[], "int | None"]


def unrunnable(command: Sequence[str]) -> tuple[int, str] | None:
    """Exit code of a shell (127 not found, 126 not executable) and reason for a bad command."""
    name = command[0]
    if shutil.which(name):
        return None
    path = Path(name)
    if os.sep in name and path.is_dir():
        return 126, f"cannot run {name}: it is a folder; name a program after --"
    if os.sep in name and path.exists():
        hint = f"python {name}" if path.suffix == ".py" else f"chmod +x {name}"
        return 126, f"cannot run {name}: it is not executable; try: {hint}"
    if os.sep not in name and path.suffix == ".py" and path.exists():
        return 127, f"cannot run {name}: it is not a program on PATH; try: python {name}"
    example = "fastfeed profile -- python train.py"
    return 127, f"cannot run {name}: no such program; name one after --, such as: {example}"


def open_closed_streams() -> None:
    """Open closed streams as /dev/null, so that no file takes their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number


def _adopt(enable: bool) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(_SUBREAPER, int(enable), 0, 0, 0)


class Foreground:
    """A command that this process stands behind: `with Foreground() as front: front.run(...)`.

    Signals of this process go on to the command, except those that the terminal sends to the whole
    foreground group, which reach a command of that group without us. Orphans among our descendants
    become our children, so that a command can be waited for when the profiler between us has ended
    first.
    """

    _ended: dict[int, int]  # pid -> exit code of children that are gone

    def __enter__(self) -> Foreground:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
        self._children = children()
        self._ended = {}
        _adopt(True)
        return self

    def __exit__(self, *_: object) -> None:
        self._reap()  # what lives on outlives us, as it would without a profiler
        _adopt(False)
        while signal.sigtimedwait(_WAITED, 0) is not None:
            pass  # a late Ctrl-C was for the command
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def run(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        started: Started | None = None,
        apart: bool = False,
        actions: Sequence[tuple] = (),
        idle: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Run and return the exit code as a shell has it: 128 + n for signal n.

        Args:
            command: Program and arguments.
            env: Its environment.
            started: The process that signals are for; None as long as it has not begun.
            apart: In another process group, which the terminal's Ctrl-C does not reach.
            actions: File actions of `os.posix_spawn`.
            idle: Called a few times per second with the child's number.
        """
        for stream in (sys.stdout, sys.stderr):
            if stream:  # None if it is closed
                stream.flush()
        pid = os.posix_spawnp(
            command[0],
            list(command),
            dict(env),
            setsigmask=self._before,
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # which Python ignores
            file_actions=list(actions),
            setpgroup=0 if apart else os.getpgrp(),
        )
        code = self.wait(pid, started=started, apart=apart, idle=idle)
        assert code is not None, "a child of ours"
        return code

    def wait(
        self,
        pid: int,
        *,
        started: Started | None = None,
        apart: bool = False,
        idle: Callable[[int], None] = lambda _: None,
    ) -> int | None:
        """Wait for a child, even an adopted one, for its exit code; None for other processes."""
        while True:
            if not self._reap(pid):
                return self._ended.pop(pid, None)
            received = signal.sigtimedwait(_WAITED, _POLL_S)
            idle(pid)
            if received is None or received.si_signo == signal.SIGCHLD:
                continue
            if received.si_code > 0 and not apart:  # the terminal sent it to the command, too
                continue
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill((started() if started else None) or pid, received.si_signo)

    def orphans(self) -> set[int]:
        """Live processes of ours since we began, except the command."""
        self._reap()
        return children() - self._children

    def _reap(self, *more: int) -> bool:
        """Fetch how children ended, adopted ones too, whom nsys waits to see gone.

        True if all of `more` live.
        """
        gone = 0
        for pid in {*more, *(children() - self._children)}:
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                gone += pid in more
                continue
            if ended:
                code = os.waitstatus_to_exitcode(status)
                self._ended[pid] = code if code >= 0 else 128 - code
                gone += pid in more
        return not gone


def children(pid: int | None = None) -> set[int]:
    """Return the children of a process, by default this one."""
    pids: set[int] = set()
    for path in Path(f"/proc/{pid or 'self'}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids.update(map(int, path.read_text().split()))
    return pids


def descendants(pid: int) -> set[int]:
    """Children, their children, and so on."""
    pids: set[int] = set()
    ahead = {pid}
    while ahead:
        ahead = set().union(*map(children, ahead)) - pids
        pids |= ahead
    return pids


def parents(pid: int) -> list[int]:
    """The chain of parents from a process up to this one."""
    pids = [pid]
    while len(pids) < 64:
        fields = stat_fields(pids[-1])
        if not fields:
            break
        parent = int(fields[1])
        if parent <= 1 or parent == os.getpid():
            break
        pids.append(parent)
    return pids


def processor_time(pid: int) -> int:
    """Clock ticks that the process's threads have used; 0 if it has ended."""
    fields = stat_fields(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0


def runs(pid: int) -> bool:
    """True unless the process has ended, even if it was not waited for yet."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in ("Z", "X")
