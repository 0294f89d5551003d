"""Locks of a job: any number of runs share it, an update or a merge has it alone.

A lock is a file that its process writes before it lists those of others. Of two processes that
exclude each other at least one sees the other's, on disks and in object stores alike. Names of
locks and temporary files identify the process that owns them.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

from fastfeed.errors import ConfigError, TargetError
from fastfeed.preprocess.model.layout import LOCKS
from fastfeed.preprocess.targets.base import Target
from fastfeed.printable import warn
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


_DOES = {"run": "written", "update": "updated"}  # by kind of lock
_SHOWN = 3  # locks in an error


@contextmanager
def job_lock(target: Target, shared: bool = False) -> Iterator[None]:
    """Hold a lock of the job in a target; `shared` as runs do.

    ConfigError if another process has one that excludes it; nothing but the lock was written then.
    """
    own = f"{LOCKS}{'run' if shared else 'update'}.{temporary_name()}"
    try:
        target.write(own, b"")  # a signal may arrive when it is written already
        check_lock(target, own, shared, clean=True)
        yield
    finally:
        try:
            target.remove(own)
        except TargetError as error:
            _warn_not_removed(target, own, error)


def check_lock(
    target: Target, own_lock: str = "", shared: bool = True, clean: bool = False
) -> None:
    """ConfigError if another process than that of `own_lock` has a lock that excludes one like it.

    clean: remove the locks of processes that have ended.
    """
    others = []
    for name in sorted(target.files(LOCKS)):
        kind, _, owner = name.removeprefix(LOCKS).partition(".")
        if name == own_lock or kind not in _DOES:
            continue
        if has_ended(owner):
            if clean:
                with suppress(TargetError):  # it locks nothing on this machine
                    target.remove(name)
        elif not (shared and kind == "run"):
            others.append((kind, name))
    if others:
        raise _refused(target, others)


def _warn_not_removed(target: Target, name: str, error: TargetError) -> None:
    """Warn of a lock that could not be removed, if it is there: other machines respect it."""
    with suppress(TargetError):
        if name not in target.files(LOCKS):
            return
    warn(
        f"the lock {name} of this process stays in {target.text}: {error};"
        " remove it, or other machines refuse to update the job",
        stacklevel=3,
    )


def _refused(target: Target, others: list[tuple[str, str]]) -> ConfigError:
    does = _DOES[max(others)[0]]
    names = " and ".join(path for _, path in others[:_SHOWN])
    more = f" and {len(others) - _SHOWN:,} more" if len(others) > _SHOWN else ""
    its = "its process has" if len(others) == 1 else "their processes have"
    process = "another process" if len(others) == 1 else f"{len(others):,} other processes"
    return ConfigError(
        f"{target.text} is being {does} by {process}; wait until that has ended, or remove"
        f" {names}{more} there if {its} ended: a lock may be left over where a machine is gone or"
        " was restarted, or files cannot be removed; nothing was changed"
    )
