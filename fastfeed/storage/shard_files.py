"""Reads ranges of a fixed list of shard files: local ones directly, remote ones through storage."""

from __future__ import annotations

import errno
import itertools
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fastfeed.runtime.addresses import FileRanges
from fastfeed.storage.local_file import closers, open_to_read, unread
from fastfeed.storage.reads import ByteRange, Completed, Pending, Stat, Unread, is_local
from fastfeed.storage.storage import Storage
from fastfeed.system.descriptors import has_pread, pread
from fastfeed.system.processes import after_fork, open_files

_OPEN = 128  # files held open by one source
# least and most by a process; the last is its limit if the system reports none
_LEAST = 16
_MOST = 4096
_WINDOWS = 512
# files opened for one call of native threads, of more than can stay open
_OPEN_AT_ONCE = 32


class _FileTable(NamedTuple):
    """Paths, sizes and times of local shards, as arrays."""

    names: np.ndarray  # uint8 (bytes,): all paths, one after another
    ends: np.ndarray  # int64 (shards,): where each ends
    sizes: np.ndarray  # int64 (shards,): bytes
    modified_ns: np.ndarray  # int64 (shards,): -1 where no time is known

    @classmethod
    def of(cls, uris: Sequence[str], stats: Sequence[Stat]) -> _FileTable:
        paths = [os.fsencode(uri) for uri in uris]
        times = [
            int(stat.version) if stat.version.isascii() and stat.version.isdigit() else -1
            for stat in stats
        ]
        return cls(
            np.frombuffer(b"".join(paths), np.uint8),
            np.cumsum([len(path) for path in paths], dtype=np.int64),
            np.array([stat.size for stat in stats], np.int64),
            np.array(times, np.int64),
        )


class ShardReader:
    """Reads ranges of shards, and notices files that have changed since they were listed."""

    def __init__(self, uris: Sequence[str], stats: Sequence[Stat], storage: Storage) -> None:
        self.uris = list(uris)
        self.stats = list(stats)
        self.storage = storage
        self.remote = not all(map(is_local, uris))
        self._forget()
        with _Process.lock:
            _Process.holders.add(self)

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._files: OrderedDict[int, OpenFile] = OrderedDict()
        self._lock = threading.Lock()
        self._table: _FileTable | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("uris", "stats", "storage", "remote")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()
        with _Process.lock:
            _Process.holders.add(self)

    def fetch(self, shard: int, start: int, stop: int) -> Pending:
        """Start reading bytes [start, stop) of a remote shard."""
        return self.fetch_all([(shard, start, stop)])[0]

    def fetch_all(self, ranges: Sequence[tuple[int, int, int]]) -> list[Pending]:
        """Start reading many: (shard, start, stop) each."""
        cut = {
            i: _cut_off(self.stats[k].size, stop)
            for i, (k, _, stop) in enumerate(ranges)
            if stop > self.stats[k].size
        }
        whole = [item for i, item in enumerate(ranges) if i not in cut]
        spans = [ByteRange(self.uris[k], a, b, self.stats[k]) for k, a, b in whole]
        reads = iter(self.storage.fetch(spans))
        return [Completed(cut[i]) if i in cut else next(reads) for i in range(len(ranges))]

    def read_cached(self, shard: int, *cuts: int) -> tuple[bytes, ...] | None:
        """Parts of a remote shard from the cache; None unless all of them are there."""
        cache = self.storage.cache
        stat = self.stats[shard]
        if cache is None:
            return None
        return cache.pieces(self.uris[shard], stat.version, cuts, stat.size)

    def read(self, shard: int, start: int, stop: int) -> bytes | Unread:
        """Read bytes [start, stop) of a shard, all of them or none."""
        parts = self.pieces(shard, start, stop)
        return parts if isinstance(parts, Unread) else parts[0]

    def pieces(self, shard: int, *cuts: int) -> tuple[bytes, ...] | Unread:
        """Read the bytes between neighboring offsets in a shard, all of them or none."""
        if self.remote:
            return split_at(self.fetch(shard, cuts[0], cuts[-1]).result(), *cuts)
        return self._local_pieces(shard, [cuts])[0]

    def read_all(self, ranges: Sequence[tuple[int, int, int]]) -> list[bytes | Unread]:
        """Read many: (shard, start, stop) each; a local shard is checked once for all of its."""
        if self.remote:
            return [read.result() for read in self.fetch_all(ranges)]
        rows: dict[int, list[int]] = {}
        for row, (shard, _, _) in enumerate(ranges):
            rows.setdefault(shard, []).append(row)
        found: list[Any] = [None] * len(ranges)
        for shard, own in rows.items():
            parts = self._local_pieces(shard, [ranges[row][1:] for row in own])
            for row, part in zip(own, parts, strict=True):
                found[row] = part if isinstance(part, Unread) else part[0]
        return found

    def _local_pieces(
        self, shard: int, ranges: Sequence[tuple[int, ...]]
    ) -> list[tuple[bytes, ...] | Unread]:
        stat = self.stats[shard]
        for attempt in (0, 1):
            try:
                file = self._file(shard)
                parts = [
                    _cut_off(stat.size, cuts[-1]) if cuts[-1] > stat.size else _parts(file.fd, cuts)
                    for cuts in ranges
                ]
                # after the read: nothing was written before or during it
                status = os.fstat(file.fd)
                now = Stat(status.st_size, str(status.st_mtime_ns))
                if now == stat and None not in parts:
                    return parts  # type: ignore[return-value]
            except FileNotFoundError:
                return [Unread("not_found", "the shard is gone")] * len(ranges)
            except OSError as error:
                if error.errno != errno.ESTALE or attempt:
                    if len(ranges) == 1:
                        return [unread(error, self.uris[shard])]
                    return [self._local_pieces(shard, [cuts])[0] for cuts in ranges]
            self._drop(shard)  # open the path again: the file may have been moved away and back
        changed = Unread(
            "changed", "the shard has changed since it was indexed; create the source again"
        )
        return [changed] * len(ranges)

    def ranges(
        self,
        shards: np.ndarray,
        firsts: np.ndarray,
        lasts: np.ndarray,
        *,
        head: int = 0,
        checks: np.ndarray | None = None,
        feature: bytes | None = None,
        size: tuple[int, int] = (0, 0),
    ) -> FileRanges | None:
        """Bytes [first, last) of local shards, int64 (n,), for native threads; None for remote.

        A shard of -1 is not to be read. What these threads cannot read, `pieces` has a reason for,
        or reads after all.

        Args:
            head, checks, feature: as FileRanges has them.
            size: (height, width) of pixels; (0, 0) for encoded images.
        """
        if self.remote:
            return None
        table = self._table = self._table or _FileTable.of(self.uris, self.stats)
        sizes = table.sizes[shards]
        times = table.modified_ns[shards]
        files = np.where(times < 0, -1, shards)
        unique, inverse = np.unique(files, return_inverse=True)
        opened = self._open_all(unique.tolist())
        handles = np.array([-1 if file is None else file.fd for file in opened], np.int32)[inverse]
        places = table.names, table.ends, files, handles, firsts, lasts, sizes, times
        return FileRanges(*places, head, checks, feature, *size, opened)

    def _open_all(self, shards: Sequence[int]) -> list[OpenFile | None]:
        """Open files; None for those that native threads are to open."""
        if not has_pread():  # native threads and others would read from one position
            return [None] * len(shards)
        opens = len(self.uris) <= _OPEN or len(shards) <= _OPEN_AT_ONCE
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            files = [self._files.get(shard) for shard in shards]
            for shard, file in zip(shards, files, strict=True):
                if file is not None:
                    self._files.move_to_end(shard)
                    file.used = next(_uses)
        missing = [k for k, shard in enumerate(shards) if shard >= 0 and files[k] is None]
        if opens and missing:
            with _room(len(missing)) as is_room:
                for k in missing if is_room else ():
                    with suppress(OSError):  # `pieces` says why
                        files[k] = self._open(shards[k])
        return files

    def _file(self, shard: int) -> OpenFile:
        if self._pid != os.getpid():  # a thread of the parent may have held the lock
            self._forget()
        with self._lock:
            file = self._files.get(shard)
            if file is not None:
                self._files.move_to_end(shard)
                file.used = next(_uses)
                return file
        with _room(1) as is_room:  # else it is closed after this read
            return self._open(shard) if is_room else OpenFile(self.uris[shard])

    def _open(self, shard: int) -> OpenFile:
        file = OpenFile(self.uris[shard])
        file.used = next(_uses)
        with self._lock:
            self._files[shard] = file
            while len(self._files) > _OPEN:
                # closed when the last thread that reads from it is done
                self._files.popitem(last=False)
        return file

    def _drop(self, shard: int) -> None:
        with self._lock:
            self._files.pop(shard, None)

    def held(self) -> list[tuple[int, ShardReader, int]]:
        """Files that are held open: when each was last used, and the shard."""
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            return [(file.used, self, shard) for shard, file in self._files.items()]


def budget() -> int:
    """Shards this process may hold open: half of its limit on open files."""
    limit = open_files()
    soft = _WINDOWS if limit is None else limit[0]
    return _MOST if soft < 0 else max(_LEAST, min(_MOST, soft // 2))  # below 0: no limit


@contextmanager
def _room(count: int) -> Iterator[bool]:
    """Make room for opening `count` files; False if they cannot stay open.

    Other threads count them until the block ends.

    Closes the shards whose last use is longest ago, of all sources.
    """
    most = budget()
    with _Process.lock:
        _Process.opening += count
    try:
        wanted = open_count() + _Process.opening
        if wanted > most:
            # some more, so that not every file that opens closes another
            _close(wanted - most * 7 // 8)
        yield open_count() + _Process.opening <= most
    finally:
        with _Process.lock:
            _Process.opening -= count


def _close(count: int | None = None) -> bool:
    """Close files that are held open, once no thread reads from them; None: all.

    False if there were none.
    """
    with _Process.lock:
        held = [entry for shards in _Process.holders for entry in shards.held()]
    held.sort(key=lambda entry: entry[0])
    for _, shards, shard in held[:count]:
        shards._drop(shard)
    return bool(held)


class _Process:
    """All readers that hold files open, the number of files being opened, and a lock for both."""

    opening: ClassVar[int] = 0
    holders: ClassVar[weakref.WeakSet[ShardReader]] = weakref.WeakSet()
    lock = threading.Lock()


def _after_fork() -> None:
    _Process.lock = threading.Lock()  # a thread of the parent may have held it
    _Process.opening = 0


_uses = itertools.count()
closers.append(_close)
after_fork(_after_fork)


def split_at(data: bytes | Unread, *cuts: int) -> tuple[bytes, ...] | Unread:
    """Split bytes read from the first of these offsets to the last."""
    if isinstance(data, Unread):
        return data
    return tuple(data[start - cuts[0] : stop - cuts[0]] for start, stop in pairwise(cuts))


def _parts(fd: int, cuts: tuple[int, ...]) -> tuple[bytes, ...] | None:
    """Bytes between neighboring offsets of an open file; None if it ends before."""
    parts = tuple([_pread(fd, start, stop) for start, stop in pairwise(cuts)])
    return None if None in parts else parts  # type: ignore[return-value]


def _pread(fd: int, start: int, stop: int) -> bytes | None:
    """Bytes [start, stop) of an open file; None if it ends before."""
    if start == stop:
        return b""
    data = pread(fd, stop - start, start)
    while len(data) < stop - start:  # reads above 2 GB, or interrupted by a signal
        more = pread(fd, stop - start - len(data), start + len(data))
        if not more:
            return None
        data += more
    return data


def _cut_off(size: int, stop: int) -> Unread:
    return Unread("truncated", f"the shard is cut off at {size}, the sample would end at {stop}")


_PIECE = 4 << 20  # bytes
_open: set[int] = set()  # descriptors; changed by single operations, which need no lock


class OpenFile:
    """A file open for reading; closed with its last reference."""

    __slots__ = ("__weakref__", "fd", "used")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.fd = open_to_read(path)
        self.used = 0  # when, as its holder counts
        _open.add(self.fd)

    # when the interpreter ends, the names of this module may be gone before the last file
    def __del__(
        self, close: Callable[[int], None] = os.close, forget: Callable[[int], None] = _open.discard
    ) -> None:
        if hasattr(self, "fd"):
            forget(self.fd)
            close(self.fd)


def open_count() -> int:
    """Files that are open in this process."""
    return len(_open)


@dataclass(frozen=True, slots=True, eq=False)
class LazyBytes:
    """Bytes [start, start + size) of an open file; `lazy[a:b]` reads as `bytes` does.

    Read, not mapped: where a file on network storage is replaced or truncated, a mapping kills the
    process. Missing bytes read as zeros. Pickles as the bytes themselves.
    """

    _file: OpenFile
    _start: int
    _size: int

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        first, last, _ = part.indices(self._size)
        data = b""
        while len(data) < last - first:
            more = pread(self._file.fd, last - first - len(data), self._start + first + len(data))
            if not more:
                return data + bytes(last - first - len(data))
            data += more
        return data

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (self[:],)


def iter_chunks(data: bytes | LazyBytes) -> Iterator[bytes]:
    """Yield all of the data, in chunks."""
    for at in range(0, len(data), _PIECE):
        yield data[at : at + _PIECE]
