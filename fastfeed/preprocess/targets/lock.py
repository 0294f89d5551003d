"""Names of temporary files that identify the owning process, and a check if it has ended."""

from __future__ import annotations

import os
import re
import secrets
import socket
from functools import cache

from fastfeed.system.processes import machine, process_exists, process_state

_PATTERN = re.compile(
    r"(?P<host>.+)-(?P<pid>\d+)-(?P<boot>[0-9a-f]*)\.(?P<space>\d*)\.(?P<start>\d*)"
    r"-[0-9a-f]{8}"
)


def temporary_name() -> str:
    """A new name for this process: host-pid-boot.namespace.start-random."""
    pid = os.getpid()
    boot, space = machine()
    started = process_state(pid)[1]
    return f"{_host()}-{pid}-{boot}.{space}.{started}-{secrets.token_hex(4)}"


def has_ended(name: str) -> bool:
    """True if the process that made this name has certainly ended."""
    parsed = _PATTERN.fullmatch(name)
    if not parsed or parsed["host"] != _host():
        return False
    boot, space = machine()
    if not (boot and space):  # a process of another container may have this number, or none may
        return False
    # else this machine was rebooted since, or it is a clone of another
    if parsed["boot"] != boot or parsed["space"] != space:
        return False
    pid = int(parsed["pid"])
    if not process_exists(pid):
        return True
    state, started = process_state(pid)
    # its pid was reused
    return state in "ZX" or (bool(started and parsed["start"]) and started != parsed["start"])


@cache
def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname())[:64] or "host"
