"""Reads images that a table names by path or URL, each in its own file."""

from __future__ import annotations

import os
import posixpath
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, FastfeedError
from fastfeed.printable import printable
from fastfeed.runtime.addresses import Grouped, SampleLocations, WholeFiles
from fastfeed.sources.access import REFUSED, Access, Refusal, advice, guarded
from fastfeed.sources.base import StoredFile
from fastfeed.sources.tables.columns import RowLocator
from fastfeed.sources.tables.inline_images import LONGEST_PATH, inline_image, is_inline
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.filesystem import call
from fastfeed.storage.local_file import read_file
from fastfeed.storage.reads import (
    ByteRange,
    Completed,
    MappedRead,
    Pending,
    Unread,
    is_local,
    parse_stat,
)
from fastfeed.storage.storage import Storage
from fastfeed.system.within import Within

_ALLOWED = 1
_REFUSED = 2
_REFUSALS = 1000  # looked at for what to allow


@dataclass(eq=False)
class ImageFiles:
    """Reads them; `roots` say, for each file of the table, where relative paths begin.

    A row that names what `access` does not allow is a bad sample: not_allowed.
    """

    _paths: StringColumn
    _repeated: np.ndarray | None  # bool (n,): another row has the same path
    _where: RowLocator
    _roots: Sequence[str]
    _storage: Storage
    remote: bool
    _access: Access | None = None  # None: all that this process may read

    def __post_init__(self) -> None:
        self._within = None if self._access is None else Within(self._access.folders)
        # of each row, once a local one is read: _ALLOWED, _REFUSED or 0
        self._states = np.zeros(0, np.int8)
        self._guarded: Storage | None = None  # for addresses on the web

    def path(self, i: int) -> str:
        """Path in the table; "" for none."""
        return self._paths[i]

    def uri(self, i: int) -> str:
        """Path or URL; with its row where others have the same.

        The row alone where the table holds the image.
        """
        uri = self._resolve(i)
        if not uri or len(uri) > LONGEST_PATH or is_inline(self._paths[i]):
            return self._where.uri(i)
        return f"{uri}#row {i}" if self._repeated is not None and self._repeated[i] else uri

    def read(self, i: int) -> bytes | Unread:
        """The file of row i."""
        if is_inline(text := self._paths[i]):
            return inline_image(text)
        uri = self._resolve(i)
        if "://" in uri:
            return self.fetch(i).result()
        return self._refused(i, uri) or self._read_local(uri) if uri else self._nowhere(i)

    def _read_local(self, uri: str) -> bytes | Unread:
        data = read_file(uri, self._within)
        if isinstance(data, Unread) and data.reason == "not_allowed" and self._access is not None:
            return Unread("not_allowed", self._access.left(uri).detail)
        return data

    def addresses(self, ids: np.ndarray) -> SampleLocations | None:
        """Local files of rows, int64 (n,), -1 to skip; None if any may be remote."""
        if self.remote:
            return None
        ids = ids if self._access is None else self._allowed(ids, self._access)
        if len(set(self._roots)) == 1:
            return self._files_below(self._roots[0], ids)
        files = self._where.files(ids)
        groups = [
            (np.flatnonzero(files == file), file) for file in np.unique(files[files >= 0]).tolist()
        ]
        return Grouped.of(
            len(ids),
            [(rows, self._files_below(self._roots[int(file)], ids[rows])) for rows, file in groups],
        )

    def _files_below(self, root: str, ids: np.ndarray) -> WholeFiles:
        folder = os.path.join(root, "") if root else ""
        within = self._within
        folders = () if within is None else within.native(root)
        return WholeFiles(
            os.fsencode(folder), self._paths.blob, self._paths.ends, ids, None, folders, within
        )

    def fetch(self, i: int) -> Pending:
        """Begin to read; a local file is read when it is taken."""
        if is_inline(text := self._paths[i]):
            return MappedRead(Completed(text), inline_image)
        uri = self._resolve(i)
        if not uri:
            return Completed(self._nowhere(i))
        if (refused := self._refused(i, uri)) is not None:
            return Completed(refused)
        if "://" not in uri:
            return MappedRead(Completed(uri), self._read_local)
        try:
            storage = self._storage_for(uri)
            if storage.cache is not None:
                return MappedRead(_VersionedRead(storage, uri), _allowed_or_not)
            return MappedRead(
                MappedRead(storage.fetch([ByteRange(uri)])[0], or_empty), _allowed_or_not
            )
        except (FastfeedError, ValueError) as error:  # of a malformed address
            return Completed(Unread("not_found", str(error)))

    def byte_range(self, i: int) -> StoredFile | None:
        """The file of row i in remote storage; None for others, which `fetch` reads or refuses."""
        if is_inline(self._paths[i]):
            return None
        uri = self._resolve(i)
        if "://" not in uri or self._refused(i, uri) is not None:
            return None
        return self._storage_for(uri), ByteRange(uri)

    def check(self) -> None:
        """ConfigError if no row with a path is allowed: nothing could be read."""
        if self._access is None:
            return
        refusals: list[Refusal] = []
        first = ""
        count = 0
        for i in range(len(self._paths)):
            if not (uri := self._resolve(i)):
                continue
            if is_inline(self._paths[i]):
                return
            refusal = self._access.refusal(uri, self._paths[i])
            if refusal is None:
                return
            first = first or f"row {self._where.row(i)}, {printable(uri)}: {refusal.why}"
            count = count + 1
            if len(refusals) < _REFUSALS:
                refusals.append(refusal)
        if refusals:
            rows = "its only row points" if count == 1 else f"all of its {count:,} rows point"
            raise ConfigError(
                f"Table: no row of {self._where.uris[0]} is allowed: {rows} outside the table's"
                f" folder, or to an address that a table may not name: {first}. If you trust it,"
                f" {advice(refusals)}"
            )

    def _refused(self, i: int, uri: str) -> Unread | None:
        if "://" not in uri and len(uri) > LONGEST_PATH:
            return Unread(
                "not_found",
                f"{len(uri):,} characters, which are not a path: base64 of another kind of file?",
            )
        refusal = None if self._access is None else self._access.refusal(uri, self._paths[i])
        return None if refusal is None else Unread("not_allowed", refusal.detail)

    def _allowed(self, ids: np.ndarray, access: Access) -> np.ndarray:
        """Ids of local files with -1 for those that are not allowed. Each row is looked at once."""
        if not len(self._states):
            self._states = np.zeros(len(self._paths), np.int8)
        for i in np.unique(ids[(ids >= 0) & (self._states[ids] == 0)]).tolist():
            uri = self._resolve(i)
            refused = bool(uri) and access.refusal(uri, self._paths[i]) is not None
            self._states[i] = _REFUSED if refused else _ALLOWED
        return np.where((ids >= 0) & (self._states[ids] == _REFUSED), -1, ids)

    def _storage_for(self, uri: str) -> Storage:
        """Storage for an address; on the web, one that checks redirects and resolved addresses."""
        storage = self._storage
        on_web = uri.lower().startswith(("http://", "https://"))
        if self._access is None or not on_web:
            return storage
        if self._guarded is None:
            self._guarded = guarded(storage, self._access)
        return self._guarded

    def _nowhere(self, i: int) -> Unread:
        return Unread("not_found", f"row {self._where.row(i)}: no path")

    def _resolve(self, i: int) -> str:
        path = self._paths[i]
        if path[:7].lower() == "file://":
            return path[7:]
        if not path or "://" in path:
            return path
        root = self._roots[self._where.file(i)]
        if is_local(root) or path.startswith("/"):
            return os.path.join(root, path) if is_local(root) else path
        scheme, _, base = root.partition("://")
        return f"{scheme}://{posixpath.normpath(posixpath.join(base, path))}"

    # -- Sharded: files do not lie together, so that all are one unit

    @property
    def bounds(self) -> np.ndarray:
        """A single unit for all images."""
        return np.array([0, len(self._paths)], np.int64)

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Sizes of images: unknown, 0."""
        return np.zeros(len(ids), np.int64)

    def shard(self, unit: int) -> str:
        """Path or address of the table."""
        return self._where.uris[unit]


def _allowed_or_not(data: Any) -> Any:
    """A refusal that the client met on the way has the reason of one that was seen before."""
    if isinstance(data, Unread) and REFUSED in data.detail:
        return Unread("not_allowed", data.detail.partition(REFUSED)[2])
    return data


def or_empty(data: bytes | Unread) -> bytes | Unread:
    """The bytes of an image; Unread as empty for none."""
    return data or Unread("empty")


class _VersionedRead:
    """An object whose version is looked up before it is read, so that the cache may have it."""

    def __init__(self, storage: Storage, uri: str) -> None:
        self._storage = storage
        self._uri = uri
        self._started = threading.Event()
        self._pending = Completed(Unread("io_error"))
        self._is_canceled = False
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
        stat = parse_stat(info)
        is_versioned = stat.size and stat.version  # else it might change unseen
        span = ByteRange(self._uri, 0, stat.size, stat) if is_versioned else ByteRange(self._uri)
        return MappedRead(self._storage.fetch([span])[0], or_empty)

    def done(self) -> bool:
        """Return True once the bytes have arrived."""
        return self._started.is_set() and self._pending.done()

    def cancel(self) -> object:
        """Cancel a read whose result is no longer needed."""
        self._is_canceled = True
        return self._look.cancel() or self._pending.cancel()

    def result(self, timeout: float | None = None) -> Any:
        """Return the bytes of the file."""
        end = None if timeout is None else monotonic() + timeout
        self._look.result(timeout)  # also begins what was only noted so far
        if not self._started.wait(None if end is None else max(0.0, end - monotonic())):
            raise NotYet
        return self._pending.result(None if end is None else max(0.0, end - monotonic()))
