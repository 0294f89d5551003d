"""Whose a temporary file is, written in its name: of which process, and whether that still lives."""

from __future__ import annotations

import os
import re
import secrets
import socket
from functools import cache
from pathlib import Path

__all__ = ["TEMPORARY", "has_ended", "temporary_name"]

TEMPORARY = "_tmp"  # folder below the target for temporary files; nothing in it is part of the job
_PATTERN = re.compile(r"(?P<host>.+)-(?P<pid>\d+)-(?P<boot>[0-9a-f]*)\.(?P<space>\d*)\.(?P<start>\d*)-[0-9a-f]{8}")


def temporary_name() -> str:
    """A new one, of this process: host-pid-boot.namespace.start-random."""
    pid = os.getpid()
    boot, space = _machine()
    return f"{_host()}-{pid}-{boot}.{space}.{_process(pid)[1]}-{secrets.token_hex(4)}"


def has_ended(name: str) -> bool:
    """Whether the process that made this name has ended, as far as can be known from here: those of other machines, and
    of other containers on this one, may live."""
    found = _PATTERN.fullmatch(name)
    if not found or found["host"] != _host():
        return False
    boot, space = _machine()
    if found["boot"] != boot:
        return bool(boot and found["boot"])  # this machine was started again since
    if found["space"] != space:
        return False
    pid = int(found["pid"])
    try:
        os.kill(pid, 0)  # asks, and does nothing
    except ProcessLookupError:
        return True
    except OSError:  # it is another user's
        pass
    state, started = _process(pid)
    return state in "ZX" or (bool(started and found["start"]) and started != found["start"])  # its number is used again


@cache
def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname())[:64] or "host"


@cache
def _machine() -> tuple[str, str]:
    """Since when this machine runs, and within which numbering of processes; "" where that is not said."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip().replace("-", "")[:8]
        return boot, str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "", ""


def _process(pid: int) -> tuple[str, str]:
    """Its state, and when it began, in clock ticks since the machine did; "?" and "" where nobody says so."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return "?", ""
    rest = text.rpartition(")")[2].split()  # before it stands its name, which may hold anything
    return rest[0], rest[19]
