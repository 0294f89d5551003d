"""Temporary files: hashed and counted as they are written, with early writeback."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from contextlib import suppress
from typing import Any

from fastfeed.preprocess.model.record import ShardFile
from fastfeed.system.descriptors import NEW, open_file, start_writeback

__all__ = ["TempFile", "remove_tree"]

_BLOCK = 1 << 20  # bytes buffered before a write call
_AHEAD = 8 << 20  # bytes after which writeback is started


class TempFile:
    """A new file at `path`.

    Raises plain OSErrors; an error is raised again later even if the caller swallowed it.
    """

    def __init__(self, path: str, name: str, writeback: bool = True) -> None:
        self.path, self.name, self._writeback = path, name, writeback
        self._hash, self._bytes = hashlib.sha256(), 0
        self._buffer = bytearray()
        self._flushed = 0  # bytes for which writeback was started
        self._error: OSError | None = None
        self._closed = False
        self._file: int | None = open_file(path, os.O_WRONLY | NEW, 0o666)

    def write(self, data: Any) -> int:
        """Append data."""
        view = memoryview(data).cast("B")
        if self._closed:
            raise ValueError(f"{self.name} is closed")
        if len(self._buffer) + len(view) < _BLOCK:
            self._buffer += view
        else:
            self._flush()
            if len(view) < _BLOCK:
                self._buffer += view
            else:
                self._write_through(view)
        return len(view)

    def close(self) -> None:
        """End of the file; writeback continues."""
        if not self._closed:
            self._flush()
            self._closed = True
            self._start_writeback()

    def finish(self, sync: bool) -> ShardFile:
        """Close, with `sync` after an fsync, and return size and hash."""
        self.close()
        if self._error is not None:
            raise self._error
        if self._file is not None:
            try:
                if sync:
                    os.fsync(self._file)
            except OSError as error:  # a second fsync would succeed although the bytes are lost
                self._error = error
                raise
            file, self._file = self._file, None
            os.close(file)
        return ShardFile(self.name, self._bytes, self._hash.hexdigest())

    def drop(self) -> None:
        """Close the file descriptor; the folder's owner removes the file."""
        file, self._file = self._file, None
        self._closed = True
        if file is not None:
            with suppress(OSError):  # the content is discarded
                os.close(file)

    def _flush(self) -> None:
        buffer, self._buffer = self._buffer, bytearray()
        if buffer:
            self._write_through(memoryview(buffer))

    def _write_through(self, view: memoryview) -> None:
        if self._error is not None:
            raise self._error
        if self._file is None:
            raise ValueError(f"{self.name} is closed")
        self._hash.update(view)
        self._bytes += len(view)
        try:
            while view:
                written = os.write(self._file, view)
                if written <= 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                view = view[written:]
        except OSError as error:
            self._error = error
            raise
        if self._bytes - self._flushed >= _AHEAD:
            self._start_writeback()

    def _start_writeback(self) -> None:
        """Start writeback of new bytes; their pages are not needed again."""
        if self._writeback and self._file is not None and self._bytes > self._flushed:
            start_writeback(self._file, self._flushed, self._bytes - self._flushed)
            self._flushed = self._bytes


def remove_tree(path: str) -> None:
    """Remove a file or a folder tree; another process may be doing the same."""
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
