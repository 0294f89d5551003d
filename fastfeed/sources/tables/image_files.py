"""Reads images that a table names by path or URL, each in its own file."""

from __future__ import annotations

import os
import posixpath
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from time import monotonic
from typing import Any

import numpy as np

from fastfeed.errors import FastfeedError
from fastfeed.runtime.addresses import Addresses, Grouped, WholeFiles
from fastfeed.sources.tables.columns import RowLocator
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.local_file import read_file
from fastfeed.storage.pending import Pending
from fastfeed.storage.retry import Unread
from fastfeed.storage.shard_files import Completed, MappedRead
from fastfeed.storage.storage import ByteRange, Storage, call, is_local, stat_of

__all__ = ["ImageFiles"]


class ImageFiles:
    """Reads them; `roots` say, for each file of the table, where relative paths begin."""

    def __init__(
        self,
        paths: StringColumn,
        repeated: np.ndarray | None,  # bool (n,): another row has the same path
        where: RowLocator,
        roots: Sequence[str],
        storage: Storage,
        remote: bool,
    ) -> None:
        self.remote = remote
        self._paths, self._repeated, self._where, self._roots, self._storage = paths, repeated, where, roots, storage

    def uri(self, i: int) -> str:
        """Path or URL; with its row where others have the same."""
        uri = self._resolve(i)
        if not uri:
            return self._where.uri(i)
        return f"{uri}#row {i}" if self._repeated is not None and self._repeated[i] else uri

    def read(self, i: int) -> bytes | Unread:
        """The file of row i."""
        uri = self._resolve(i)
        if "://" in uri:
            return self.fetch(i).result()
        return read_file(uri) if uri else self._nowhere(i)

    def addresses(self, ids: np.ndarray) -> Addresses | None:
        """Local files of rows, int64 (n,), -1 for one that is not to be read; None if any may be remote."""
        if self.remote:
            return None
        if len(set(self._roots)) == 1:
            return self._files_below(self._roots[0], ids)
        files = self._where.files(ids)
        groups = [(np.flatnonzero(files == file), file) for file in np.unique(files[files >= 0]).tolist()]
        return Grouped.of(
            len(ids), [(rows, self._files_below(self._roots[int(file)], ids[rows])) for rows, file in groups]
        )

    def _files_below(self, root: str, ids: np.ndarray) -> WholeFiles:
        folder = os.path.join(root, "") if root else ""
        return WholeFiles(os.fsencode(folder), self._paths.blob, self._paths.ends, ids, None)

    def fetch(self, i: int) -> Pending:
        """Begin to read; a local file is read when it is taken."""
        uri = self._resolve(i)
        if not uri:
            return Completed(self._nowhere(i))
        if "://" not in uri:
            return MappedRead(Completed(uri), read_file)
        try:
            if self._storage.cache is not None:
                return _VersionedRead(self._storage, uri)
            return MappedRead(self._storage.fetch([ByteRange(uri)])[0], _or_empty)
        except (FastfeedError, ValueError) as error:  # of a malformed address
            return Completed(Unread("io_error", str(error)))

    def _nowhere(self, i: int) -> Unread:
        return Unread("not_found", f"row {self._where.row(i)}: no path")

    def _resolve(self, i: int) -> str:
        path = self._paths[i]
        if not path or "://" in path:
            return path.removeprefix("file://")
        root = self._roots[self._where.file(i)]
        if is_local(root) or path.startswith("/"):
            return os.path.join(root, path) if is_local(root) else path
        scheme, _, base = root.partition("://")
        return f"{scheme}://{posixpath.normpath(posixpath.join(base, path))}"

    # -- Sharded: files do not lie together, so that all are one unit

    @property
    def bounds(self) -> np.ndarray:
        """All in one."""
        return np.array([0, len(self._paths)], np.int64)

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Not known: 0."""
        return np.zeros(len(ids), np.int64)

    def shard(self, unit: int) -> str:
        """The table."""
        return self._where.uris[unit]


def _or_empty(data: Any) -> Any:
    return data or Unread("empty") if isinstance(data, bytes) else data


class _VersionedRead:
    """An object whose version is looked up before it is read, so that the cache may have it."""

    def __init__(self, storage: Storage, uri: str) -> None:
        self._storage, self._uri = storage, uri
        self._started, self._pending, self._is_canceled = threading.Event(), Completed(Unread("io_error")), False
        self._look = storage.submit(uri, lambda system, path: call(system, "info", path))
        self._look.add_done_callback(self._begin)

    def _begin(self, look: Future[Any]) -> None:
        try:
            if not self._is_canceled and not look.cancelled():
                self._pending = self._next(look.result())
        except Exception as error:  # an error in a callback would be lost
            self._pending = Completed(Unread("io_error", f"{type(error).__name__}: {error}"))
        finally:
            self._started.set()

    def _next(self, info: Any) -> Pending:
        if isinstance(info, Unread):
            return Completed(info)
        stat = stat_of(info)
        is_versioned = stat.size and stat.version  # else it might change unseen
        span = ByteRange(self._uri, 0, stat.size, stat) if is_versioned else ByteRange(self._uri)
        return MappedRead(self._storage.fetch([span])[0], _or_empty)

    def done(self) -> bool:
        """It is there."""
        return self._started.is_set() and self._pending.done()

    def cancel(self) -> object:
        """The result is no longer needed."""
        self._is_canceled = True
        return self._look.cancel() or self._pending.cancel()

    def result(self, timeout: float | None = None) -> Any:
        """The bytes."""
        end = None if timeout is None else monotonic() + timeout
        self._look.result(timeout)  # also begins what was only noted so far
        if not self._started.wait(None if end is None else max(0.0, end - monotonic())):
            raise NotYet
        return self._pending.result(None if end is None else max(0.0, end - monotonic()))
