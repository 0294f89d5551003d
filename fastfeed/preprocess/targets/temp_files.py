"""Files that have no name yet: hashed and counted as they are written, handed to the disk early."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from contextlib import suppress
from typing import Any

from fastfeed.preprocess.record import ShardFile

__all__ = ["TempFile", "remove_tree", "sync_folder"]

_BLOCK = 1 << 20  # bytes gathered before the system is called
_AHEAD = 8 << 20  # bytes after which the disk is asked to begin


class TempFile:
    """A new file at `path`; plain OSErrors. After one of them it stays broken, whoever swallowed it."""

    def __init__(self, path: str, name: str, early: bool = True) -> None:
        self.path, self.name, self._early = path, name, early
        self._hash, self._bytes = hashlib.sha256(), 0
        self._gathered = bytearray()
        self._asked = 0  # bytes that the disk was asked to take
        self._broken: OSError | None = None
        self._closed = False
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, data: Any) -> int:
        """To the end of it."""
        view = memoryview(data).cast("B")
        if self._closed:
            raise ValueError(f"{self.name} is closed")
        if len(self._gathered) + len(view) < _BLOCK:
            self._gathered += view
        else:
            self._flush()
            if len(view) < _BLOCK:
                self._gathered += view
            else:
                self._out(view)
        return len(view)

    def close(self) -> None:
        """Nothing more will come. The disk goes on with it."""
        if not self._closed:
            self._flush()
            self._closed = True
            self._ask()

    def finish(self, sync: bool) -> ShardFile:
        """Close; `sync`: wait until all of it is on the disk. What was written."""
        self.close()
        if self._broken is not None:
            raise self._broken
        if self._file is not None:
            try:
                if sync:
                    os.fsync(self._file)
            except OSError as error:  # a second try would succeed, though the bytes are lost
                self._broken = error
                raise
            file, self._file = self._file, None
            os.close(file)
        return ShardFile(self.name, self._bytes, self._hash.hexdigest())

    def drop(self) -> None:
        """Let go of the file; whoever made its folder removes it."""
        file, self._file = self._file, None
        self._closed = True
        if file is not None:
            with suppress(OSError):  # nobody wants what is in it
                os.close(file)

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, bytearray()
        if gathered:
            self._out(memoryview(gathered))

    def _out(self, view: memoryview) -> None:
        if self._broken is not None:
            raise self._broken
        if self._file is None:
            raise ValueError(f"{self.name} is closed")
        self._hash.update(view)
        self._bytes += len(view)
        try:
            while view:
                done = os.write(self._file, view)
                if done <= 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                view = view[done:]
        except OSError as error:
            self._broken = error
            raise
        if self._bytes - self._asked >= _AHEAD:
            self._ask()

    def _ask(self) -> None:
        """Let the disk begin with what it has not got yet; the pages are not needed any more."""
        if self._early and self._file is not None and self._bytes > self._asked and hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # an advice only
                os.posix_fadvise(self._file, self._asked, self._bytes - self._asked, os.POSIX_FADV_DONTNEED)
            self._asked = self._bytes


def remove_tree(path: str) -> None:
    """Remove a file, or a folder with all that is in it; somebody else may be doing the same."""
    try:
        os.unlink(path)
        return
    except FileNotFoundError:
        return
    except OSError:
        if not os.path.isdir(path) or os.path.islink(path):
            raise
    shutil.rmtree(path, onerror=_unless_gone)


def _unless_gone(_function: Any, _path: str, raised: Any) -> None:
    if not isinstance(raised[1], FileNotFoundError):
        raise raised[1]
