"""The folder of live pages, and the process that a page belongs to.

The folder is FASTFEED_LIVE if that is set ("off": no page is written), else
/dev/shm/fastfeed-<uid>, else fastfeed-<uid> in the folder for temporary files. Only its owner has
access: mode 0700.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fastfeed.system.folders import private_folder
from fastfeed.system.processes import boot_id, pid_namespace, process_state, user


def folders(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Folders to look for pages in, the first to write them to; none if pages are switched off."""
    chosen = environ.get("FASTFEED_LIVE", "")
    if chosen:
        return [] if chosen.lower() in ("off", "0", "no") else [chosen]
    name = f"fastfeed-{user()}"
    return [
        os.path.join(parent, name)
        for parent in ("/dev/shm", tempfile.gettempdir())
        if os.path.isdir(parent)
    ]


def writable_folder(path: str) -> str:
    """Create the folder if need be.

    OSError if it cannot be used, also because another user has put something there.
    """
    if not os.environ.get("FASTFEED_LIVE"):
        return private_folder(path)
    with suppress(FileExistsError):  # a link or a folder of others is what you wanted
        os.mkdir(path, 0o700)
    if not os.path.isdir(path):
        raise NotADirectoryError(f"{path} is not a folder")
    return path


def process_identity() -> dict[str, Any]:
    """Identity of this process, distinct even from a later process with the same number."""
    pid = os.getpid()
    return {
        "pid": pid,
        "start": process_start(pid),
        "boot": boot_id(),
        "pid_namespace": pid_namespace(),
        "host": os.uname().nodename,
        "uid": os.getuid(),
    }


def process_start(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None without such a process or /proc."""
    state, start = process_state(pid)
    return int(start) if start and state not in "ZX" else None


def is_alive(identity: Mapping[str, Any]) -> bool | None:
    """True if the page's process is running; None if unknown, as for one in another container."""
    boot = boot_id()
    space = pid_namespace()
    if not (boot and space):
        return None
    if identity.get("boot") != boot:
        # this machine was rebooted
        return None if identity.get("host") != os.uname().nodename else False
    if identity.get("pid_namespace") != space or not os.path.exists("/proc/self/stat"):
        return None
    start = process_start(identity["pid"])
    return start is not None and start == identity.get("start")
