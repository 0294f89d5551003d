"""This process, its user, limits and machine, and other processes.

macOS and Windows have no /proc: values read there are unknown, so temporary files of killed
processes must be removed by hand, and no process ends with another. Windows: no limits;
whether a process lives is unknown.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import cache
from importlib import import_module

from fastfeed.system.shared_memory import is_available


def can_supervise() -> bool:
    """Return True if worker processes can share descriptors and memory and end with this one."""
    return is_available() and hasattr(os, "fork") and hasattr(socket, "AF_UNIX")


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def user() -> str:
    """Name of this user in shared folders: a number if the system has them."""
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")


def has_owners() -> bool:
    """Return True if processes and files have numeric owners: not on Windows."""
    return hasattr(os, "getuid") and hasattr(os, "uname")


def memory_bytes() -> int | None:
    """Return the memory of the machine; None if unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            meminfo = {
                name: int(value.split()[0]) << 10
                for name, value in (line.split(":", 1) for line in file)
            }
        return meminfo["MemTotal"]
    except (OSError, KeyError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def open_files() -> tuple[int, int] | None:
    """Limits on open files of this process, soft and hard; None for no limit."""
    try:
        resource = import_module("resource")
    except ImportError:
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def limit_memory(more: int) -> None:
    """Limit this process to `more` bytes above its current use, before the OOM killer acts."""
    try:
        resource = import_module("resource")
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[5]) * resource.getpagesize()
    except (ImportError, OSError):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = used + more
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))


def boot_id() -> str:
    """Id of this boot of the machine; "" if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def pid_namespace() -> int:
    """Number of the pid namespace, which each container has; 0 if unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


@cache
def machine() -> tuple[str, str]:
    """The first digits of the boot id, and the pid namespace; "" for both if either is unknown."""
    boot = boot_id()
    space = pid_namespace()
    return (boot.replace("-", "")[:8], str(space)) if boot and space else ("", "")


def stat_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third, the state (proc(5)); empty without the process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # follows the process name, which may hold any bytes
            fields = file.read().rpartition(b")")[2]
    except OSError:
        return []
    return fields.decode("ascii", "replace").split()


def process_state(pid: int) -> tuple[str, str]:
    """State of a process and its start, in clock ticks since boot; "?" and "" if unknown."""
    fields = stat_fields(pid)
    return (fields[0], fields[19]) if fields else ("?", "")


def process_exists(pid: int) -> bool:
    """False only where there certainly is no such process."""
    if os.name == "nt":  # there `kill` would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        pass
    return True


def after_fork(call: Callable[[], object]) -> None:
    """Call it in every child that this process, or a child of it, forks from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)
