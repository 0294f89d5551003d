"""Processes of this machine as /proc has them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fastfeed.system.processes import stat_fields

__all__ = ["children", "descendants", "parents", "processor_time", "runs"]


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
    """A process, its parent, that one's parent, up to this process."""
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
    """Clock ticks that its threads have taken; 0 where it has ended."""
    fields = stat_fields(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0


def runs(pid: int) -> bool:
    """It has not ended; a process that has ended but was not waited for yet does not."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in ("Z", "X")
