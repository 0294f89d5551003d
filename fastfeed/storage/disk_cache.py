"""A disk cache of remote objects, in chunks, shared by all processes of a machine."""

from __future__ import annotations

import hashlib
import os
import struct
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError, SourceError
from fastfeed.printable import warn
from fastfeed.storage.byte_sizes import in_bytes
from fastfeed.storage.disk_quota import Quota
from fastfeed.system.descriptors import closing_file, open_file, pread, set_times
from fastfeed.system.processes import boot_id

_MAX_CHUNK = 1 << 30  # bytes
_TRAILER = struct.Struct("<4sI")  # after the content: magic, crc32
_TRAILER_BYTES = _TRAILER.size
_MAGIC = b"ffC1"
_TOUCH_NS = 60 * 10**9  # how old an access time may get


class Chunk(NamedTuple):
    """Bytes [start, stop) of an object."""

    number: int
    start: int
    stop: int


@checked_early
class Cache:
    """LRU cache of remote objects, of at most `limit` bytes in a folder of a local disk.

    All processes of a machine may share the folder, and it may be kept from run to run. Objects are
    known by uri, version and size, so one that changes is a new one. It never fails a read: data
    that cannot be written (a full disk, no permission) is not kept, with one RuntimeWarning, and
    counted in `counts` as "unstored". Chunks from before a crash or restart of the machine are
    checked before they are used.

    Args:
        folder (str | os.PathLike[str]): The folder, which is made where it is missing.
        limit (int | str): Bytes, or a string such as "500MB", "1.5TB" or "64KiB". Default: "200GB".
        chunk (int): Bytes that are fetched and kept together, in [1, 2**30]. Default: 8 << 20.
        boot (str | None): Boot id of the machine. Default: None, the kernel's boot id.

    Raises:
        ConfigError: If `limit` or `chunk` is out of range.
        SourceError: If the folder cannot be made.

    Example:
        >>> cache, about = ff.Cache("cache", "1GB", chunk=4), ("s3://bucket/a.tar", "v1")
        >>> [chunk.number for chunk in cache.missing(*about, start=2, stop=6, size=6)]
        [0, 1]
        >>> cache.put(*about, number=0, data=b"abcd", size=6), cache.put(*about, number=1, data=b"ef", size=6)
        (None, None)
        >>> cache.get(*about, start=2, stop=6, size=6), cache.pieces(*about, cuts=[1, 3, 5], size=6)
        (b'cdef', (b'bc', b'de'))
        >>> cache.path(*about, number=0, size=6).startswith(cache.folder), cache.counts["stored"]
        (True, 2)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        limit: int | str = "200GB",
        *,
        chunk: int = 8 << 20,
        boot: str | None = None,
    ) -> None:
        self.folder = os.path.abspath(os.fspath(folder))
        self.limit = in_bytes(limit)
        if isinstance(chunk, bool) or not isinstance(chunk, int) or not 1 <= chunk <= _MAX_CHUNK:
            raise ConfigError.of(
                "Cache: chunk", f"bytes in [1, {_MAX_CHUNK}]", chunk, "8 << 20 suits most disks"
            )
        self.chunk = chunk
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            is_file = os.path.exists(self.folder)
            what = "is not a folder" if is_file else f"cannot be created: {error.strerror}"
            text = f"Cache: {self.folder} {what}; pass a folder on a local disk"
            raise SourceError(text) from error
        self._boot_argument = boot
        boot = boot_id() if boot is None else boot
        self._mark_ns = boot_mark_ns(boot) if boot else None
        self._checked: set[str] = set()  # chunks that could not be marked
        self._quota = Quota(self.folder, self.limit, boot)

    def get(
        self,
        uri: str,
        version: str,
        start: int,
        stop: int,
        size: int,
        fetched: Mapping[int, bytes] | None = None,
    ) -> bytes | None:
        """Bytes of an object.

        Args:
            uri (str): The object.
            version (str): Its version, such as an ETag.
            start (int): First byte.
            stop (int): The byte after the last one.
            size (int): Bytes of the whole object.
            fetched (Mapping[int, bytes] | None): Chunks in memory, by number. Default: None.

        Returns:
            Bytes [start, stop), or None if a chunk is missing.
        """
        if not 0 <= start < stop <= size:
            return _empty_range(uri, start, stop, size)
        chunk = self.chunk
        earliest = start // self.chunk
        first = earliest * chunk
        prefix = chunk_prefix(self.folder, chunk, uri, version, size)
        if stop <= first + chunk and not fetched:
            length = chunk if first + chunk <= size else size - first
            part = self._read(f"{prefix}{earliest}", length, (start - first, stop - first))
            return None if part is None else part[0]
        parts: list[bytes] = []
        for number in range(earliest, (stop - 1) // chunk + 1):
            first = number * chunk
            last = min((number + 1) * chunk, size)
            begin = max(start - first, 0)
            end = min(stop, last) - first
            if fetched and number in fetched:
                parts.append(fetched[number][begin:end])
                continue
            read = self._read(f"{prefix}{number}", last - first, (begin, end))
            if read is None:
                return None
            parts += read
        return b"".join(parts)

    def pieces(
        self, uri: str, version: str, cuts: Sequence[int], size: int
    ) -> tuple[bytes, ...] | None:
        """The bytes between each two neighbors of some offsets in an object.

        Args:
            uri (str): The object.
            version (str): Its version.
            cuts (Sequence[int]): Offsets, ascending, at least two.
            size (int): Bytes of the whole object.

        Returns:
            One piece fewer than there are offsets, or None if a chunk is missing.
        """
        first = cuts[0] - cuts[0] % self.chunk
        last = min(first + self.chunk, size)
        if cuts[-1] <= last and cuts[0] < cuts[-1]:
            path = (
                f"{chunk_prefix(self.folder, self.chunk, uri, version, size)}{first // self.chunk}"
            )
            spans = [(a - first, b - first) for a, b in pairwise(cuts)]
            return self._read(path, last - first, *spans)
        data = self.get(uri, version, cuts[0], cuts[-1], size)
        if data is None:
            return None
        return tuple(data[a - cuts[0] : b - cuts[0]] for a, b in pairwise(cuts))

    def missing(self, uri: str, version: str, start: int, stop: int, size: int) -> list[Chunk]:
        """The chunks to fetch before `get` can give a range of bytes.

        Args:
            uri (str): The object.
            version (str): Its version.
            start (int): First byte.
            stop (int): The byte after the last one.
            size (int): Bytes of the whole object.

        Returns:
            Whole chunks, with their bounds.
        """
        if not 0 <= start < stop <= size:
            _empty_range(uri, start, stop, size)
            return []
        chunk = self.chunk
        absent = []
        prefix = chunk_prefix(self.folder, chunk, uri, version, size)
        for number in range(start // chunk, (stop - 1) // chunk + 1):
            first = number * chunk
            last = min((number + 1) * chunk, size)
            if not self._has(f"{prefix}{number}", last - first):
                absent.append(Chunk(number, first, last))
        return absent

    def put(
        self, uri: str, version: str, number: int, data: bytes | bytearray | memoryview, size: int
    ) -> None:
        """Keep one chunk of an object.

        If the disk refuses it, a warning is shown once, and nothing is raised.

        Args:
            uri (str): The object.
            version (str): Its version.
            number (int): The chunk's, from 0.
            data (bytes | bytearray | memoryview): All bytes of the chunk.
            size (int): Bytes of the whole object.

        Raises:
            ConfigError: If the chunk should have another length.
        """
        length = min(self.chunk, size - number * self.chunk)
        content = memoryview(data).cast("B")
        if number < 0 or length <= 0 or len(content) != length:
            raise ConfigError(
                f"Cache.put: chunk {number} of {uri} ({size} bytes, chunks of {self.chunk}) has "
                f"{max(length, 0)} bytes, got {len(content)}; discard truncated reads"
            )
        trailer = _TRAILER.pack(_MAGIC, zlib.crc32(content))
        try:
            path = self.path(uri, version, number, size)
            self._quota.store(path, (content, trailer), mtime_ns=self._mark_ns)
        except OSError as error:
            self._warn_once(f"cannot be written: {error.strerror}", "unstored")

    @property
    def counts(self) -> Counter[str]:
        """Counts of chunks in this process: stored, unstored, unread, damaged, evicted."""
        return Counter(self._quota.counts)

    def path(self, uri: str, version: str, number: int, size: int) -> str:
        """The file of a chunk.

        Args:
            uri (str): The object.
            version (str): Its version.
            number (int): The chunk's, from 0.
            size (int): Bytes of the whole object.

        Returns:
            Its path, whether it is kept or not.
        """
        return chunk_prefix(self.folder, self.chunk, uri, version, size) + str(number)

    def __reduce__(self) -> tuple[Any, ...]:
        how = {"chunk": self.chunk, "boot": self._boot_argument}
        return partial(Cache, self.folder, self.limit, **how), ()

    def __repr__(self) -> str:
        return f"Cache({self.folder!r}, {self.limit}, chunk={self.chunk})"

    def _has(self, path: str, length: int) -> bool:
        try:
            status = os.stat(path)
        except OSError:
            return False
        if status.st_size == length + _TRAILER_BYTES and status.st_mtime_ns == self._mark_ns:
            return True
        return self._read(path, length) is not None  # it is checked there

    def _read(self, path: str, length: int, *spans: tuple[int, int]) -> tuple[bytes, ...] | None:
        """Parts [start, stop) of a chunk of `length` bytes; None if it is missing.

        No lock is taken: names appear with complete files behind them, and a removed file can be
        read to its end.
        """
        try:
            fd = open_file(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._warn_once(f"cannot be read: {error.strerror}", "unread")
        try:
            with closing_file(fd):  # before anything is removed: Windows removes no open file
                status = os.fstat(fd)
                is_whole = status.st_size == length + _TRAILER_BYTES and (
                    status.st_mtime_ns == self._mark_ns or self._is_sound(fd, path, length)
                )
                now = time.time_ns()
                if is_whole and abs(now - status.st_atime_ns) > _TOUCH_NS:
                    # either way: clocks may be set back
                    with suppress(OSError):
                        set_times(fd, path, now, self._mark_ns or status.st_mtime_ns)
                parts = tuple([pread(fd, b - a, a) for a, b in spans if is_whole])
            if not is_whole:
                return self._quota.drop(path, status)
        except OSError as error:
            with suppress(OSError):  # a bad spot of the disk would be met again and again
                self._quota.drop(path, os.stat(path))
            return self._warn_once(f"cannot be read: {error.strerror}", "unread")
        return parts if [*map(len, parts)] == [stop - start for start, stop in spans] else None

    def _is_sound(self, fd: int, path: str, length: int) -> bool:
        """Check a chunk from before the last boot, which may have lost unwritten data."""
        if path in self._checked:
            return True
        data = pread(fd, length + _TRAILER_BYTES, 0)
        if data[length:] != _TRAILER.pack(_MAGIC, zlib.crc32(memoryview(data)[:length])):
            return False
        if self._mark_ns is not None:
            with suppress(OSError):
                # spares every process the next check
                set_times(fd, path, time.time_ns(), self._mark_ns)
        if os.fstat(fd).st_mtime_ns != self._mark_ns:
            self._checked.add(path)
        return True

    def _warn_once(self, what: str, counter: str) -> None:
        if self._quota.count_failure(counter):
            warn(f"the cache {self.folder} {what}; continuing without it", stacklevel=3)


def _empty_range(uri: str, start: int, stop: int, size: int) -> bytes:
    if 0 <= start == stop <= size:
        return b""
    raise ConfigError(f"Cache: bytes [{start}, {stop}) are not in {uri}, which has {size} bytes")


# a large object is asked for many times, a small one by `missing` and then by `get`
@lru_cache(4096)
def chunk_prefix(folder: str, chunk: int, uri: str, version: str, size: int) -> str:
    """The path of an object's chunks, up to their number.

    No other object, and no other way to cut it, has the same.
    """
    text = f"{chunk} {size} {len(uri)} {uri}{version}"  # the length says where the uri ends
    key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{folder}/{key[:2]}/{key}-"


def boot_mark_ns(boot: str) -> int:
    """Modification time of chunks checked since this boot of the machine.

    Times themselves could not be compared with the machine's start: clocks are wrong at times, and
    then set right. Even seconds, and between 1980 and 1997: every file system can hold them, and
    none takes them to be in the future.
    """
    seconds = zlib.crc32(boot.encode()) >> 4
    return (315532800 + 2 * seconds) * 10**9
