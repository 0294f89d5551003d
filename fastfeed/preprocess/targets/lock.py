"""Names of temporary files that identify the owning process, and whether that process is still alive."""

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
    """A new name for this process: host-pid-boot.namespace.start-random."""
    pid = os.getpid()
    boot, space = _machine()
    return f"{_host()}-{pid}-{boot}.{space}.{_process(pid)[1]}-{secrets.token_hex(4)}"


def has_ended(name: str) -> bool:
    """Whether the process that made this name has certainly ended; those of other machines or containers may live."""
    parsed = _PATTERN.fullmatch(name)
    if not parsed or parsed["host"] != _host():
        return False
    boot, space = _machine()
    if parsed["boot"] != boot:
        return bool(boot and parsed["boot"])  # this machine was rebooted since
    if parsed["space"] != space:
        return False
    pid = int(parsed["pid"])
    try:
        os.kill(pid, 0)  # only tests whether it exists
    except ProcessLookupError:
        return True
    except OSError:  # it belongs to another user
        pass
    state, started = _process(pid)
    return state in "ZX" or (bool(started and parsed["start"]) and started != parsed["start"])  # its pid was reused


@cache
def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname())[:64] or "host"


@cache
def _machine() -> tuple[str, str]:
    """Boot id and pid namespace of this machine; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip().replace("-", "")[:8]
        return boot, str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "", ""


def _process(pid: int) -> tuple[str, str]:
    """State of a process and its start, in clock ticks since boot; "?" and "" if unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return "?", ""
    rest = text.rpartition(")")[2].split()  # follows the process name, which may contain anything
    return rest[0], rest[19]
