"""Files that must be inside some folders, checked after they are opened.

A path that is looked at first and opened later may lead elsewhere by then. So the open file is
looked at.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from fastfeed.system.descriptors import open_file

_F_GETPATH = 50  # of macOS


class Within:
    """Folders, by their real paths. Pickles."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders))
        self._forget()

    def _forget(self) -> None:
        self._fds: dict[str, int] = {}  # of folders
        self._native: dict[str, list[tuple[bytes, bytes, int]]] = {}  # by root

    def __getstate__(self) -> tuple[str, ...]:
        return self.folders

    def __setstate__(self, state: tuple[str, ...]) -> None:
        self.folders = state
        self._forget()

    def holds(self, fd: int, path: str | bytes) -> bool:
        """Return True if an open file is in one of the folders; `path`: as it was opened."""
        if self._below(_file_path(fd)):
            return True
        # where the system does not say, or folders were moved
        real = os.path.realpath(os.fsdecode(path))
        with suppress(OSError):
            return self._below(real) and os.path.samestat(os.stat(real), os.fstat(fd))
        return False

    def native(self, root: str) -> list[tuple[bytes, bytes, int]]:
        """For native threads: prefix of paths, its real path and an open descriptor, per folder.

        `root`: as it is put before relative paths.
        """
        if (known := self._native.get(root)) is not None:
            return known
        prefixes = [(os.path.join(root, "") if root else "", os.path.realpath(root))]
        prefixes += [(os.path.join(folder, ""), folder) for folder in self.folders]
        self._native[root] = native = [
            (os.fsencode(prefix), os.fsencode(os.path.join(real, "")), fd)
            for prefix, real in prefixes
            if real in self.folders and (fd := self._open(real)) >= 0
        ]
        return native

    def _open(self, folder: str) -> int:
        if folder not in self._fds:
            try:
                self._fds[folder] = open_file(folder, getattr(os, "O_PATH", os.O_RDONLY))
            except OSError:  # it is gone, or cannot be opened here: reading says so
                return -1
        return self._fds[folder]

    def _below(self, path: str) -> bool:
        return any(path.startswith(os.path.join(folder, "")) for folder in self.folders)

    # when the interpreter ends, the names of this module may be gone
    def __del__(self, quiet: Any = suppress, close: Any = os.close) -> None:
        for fd in self.__dict__.get("_fds", {}).values():
            with quiet(OSError):
                close(fd)


def _file_path(fd: int) -> str:
    """Real path of an open file; "" if unknown."""
    with suppress(OSError, ValueError, ImportError):
        if sys.platform == "darwin":
            import fcntl

            path: Any = fcntl.fcntl(fd, _F_GETPATH, bytes(1024))
            return os.fsdecode(path.rstrip(b"\0"))
        return os.readlink(f"/proc/self/fd/{fd}")
    return ""
