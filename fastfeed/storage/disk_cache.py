"""A disk cache of remote objects, in chunks, shared by all processes of a machine."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

from fastfeed.errors import ConfigError, SourceError
from fastfeed.storage.disk_quota import Quota

__all__ = ["Cache", "Chunk", "cache_of", "in_bytes"]

_UNITS = {"B": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("KMGT", 1)
    for kind, base in (("B", 1000), ("iB", 1024))
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?i?B)", re.IGNORECASE)
_MAX_CHUNK = 1 << 30  # bytes
_TRAILER = struct.Struct("<4sI")  # after the content: magic, crc32
_TRAILER_BYTES = _TRAILER.size
_MAGIC = b"ffC1"
_TOUCH_NS = 60 * 10**9  # how old an access time may get
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Chunk(NamedTuple):
    """Bytes [start, stop) of an object."""

    number: int
    start: int
    stop: int


class Cache:
    """At most `limit` bytes of remote objects in a folder of a local disk; the least recently used make room.

    All processes of a machine may share the folder, and it may be kept from run to run. Objects are known by uri,
    version and size, so one that changes is a new one; `size` is that of the whole object, in bytes. It only ever saves
    time: what cannot be written (a full disk, no permission) is not kept, with one RuntimeWarning, and counted in
    `counts` as "unstored". Chunks from before a crash or restart of the machine are checked before they are used.

        blob = cache.get(uri, version, start, stop, size)
        if blob is None:
            fetched = {chunk.number: download(uri, chunk) for chunk in cache.missing(uri, version, start, stop, size)}
            for number, data in fetched.items():
                cache.put(uri, version, number, data, size)
            blob = cache.get(uri, version, start, stop, size, fetched)  # None: others were removed in the meantime
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        limit: int | str = "200GB",
        *,
        chunk: int = 8 << 20,
        boot: str | None = None,  # names this start of the machine; None: the kernel knows
    ) -> None:
        self.folder = os.path.abspath(os.fspath(folder))
        self.limit = in_bytes(limit)
        if isinstance(chunk, bool) or not isinstance(chunk, int) or not 1 <= chunk <= _MAX_CHUNK:
            raise ConfigError(
                f"Cache: chunk must be bytes in [1, {_MAX_CHUNK}], got {chunk!r}; 8 << 20 suits most disks"
            )
        self.chunk = chunk
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            what = "is not a folder" if os.path.exists(self.folder) else f"cannot be created: {error.strerror}"
            raise SourceError(f"Cache: {self.folder} {what}; pass a folder on a local disk") from error
        self._boot_argument = boot
        boot = _boot() if boot is None else boot
        self._mark_ns = _mark_ns(boot) if boot else None
        self._checked: set[str] = set()  # chunks that could not be marked
        self._quota = Quota(self.folder, self.limit, boot)

    def get(
        self, uri: str, version: str, start: int, stop: int, size: int, fetched: Mapping[int, bytes] | None = None
    ) -> bytes | None:
        """Bytes [start, stop) of the object, or None if a chunk is missing. `fetched`: chunks in memory, by number."""
        if not 0 <= start < stop <= size:
            return _empty_range(uri, start, stop, size)
        chunk, earliest = self.chunk, start // self.chunk
        first = earliest * chunk
        prefix = _prefix(self.folder, chunk, uri, version, size)
        if stop <= first + chunk and not fetched:
            length = chunk if first + chunk <= size else size - first
            part = self._read(f"{prefix}{earliest}", length, (start - first, stop - first))
            return None if part is None else part[0]
        parts: list[bytes] = []
        for number in range(earliest, (stop - 1) // chunk + 1):
            first, last = number * chunk, min((number + 1) * chunk, size)
            begin, end = max(start - first, 0), min(stop, last) - first
            if fetched and number in fetched:
                parts.append(fetched[number][begin:end])
            elif (parts_read := self._read(f"{prefix}{number}", last - first, (begin, end))) is not None:
                parts += parts_read
            else:
                return None
        return b"".join(parts)

    def pieces(self, uri: str, version: str, cuts: Sequence[int], size: int) -> tuple[bytes, ...] | None:
        """The bytes between each two neighbors of these offsets in the object, or None if a chunk is missing."""
        first = cuts[0] - cuts[0] % self.chunk
        last = min(first + self.chunk, size)
        if cuts[-1] <= last and cuts[0] < cuts[-1]:
            path = f"{_prefix(self.folder, self.chunk, uri, version, size)}{first // self.chunk}"
            return self._read(path, last - first, *((a - first, b - first) for a, b in pairwise(cuts)))
        data = self.get(uri, version, cuts[0], cuts[-1], size)
        return None if data is None else tuple(data[a - cuts[0] : b - cuts[0]] for a, b in pairwise(cuts))

    def missing(self, uri: str, version: str, start: int, stop: int, size: int) -> list[Chunk]:
        """The chunks to fetch before `get` can give bytes [start, stop); with whole chunks' bounds."""
        if not 0 <= start < stop <= size:
            _empty_range(uri, start, stop, size)
            return []
        chunk, absent = self.chunk, []
        prefix = _prefix(self.folder, chunk, uri, version, size)
        for number in range(start // chunk, (stop - 1) // chunk + 1):
            first, last = number * chunk, min((number + 1) * chunk, size)
            if not self._has(f"{prefix}{number}", last - first):
                absent.append(Chunk(number, first, last))
        return absent

    def put(self, uri: str, version: str, number: int, data: bytes | bytearray | memoryview, size: int) -> None:
        """Keep one chunk of the object. Where that fails for the disk, a warning comes once, and nothing is raised."""
        length = min(self.chunk, size - number * self.chunk)
        content = memoryview(data).cast("B")
        if number < 0 or length <= 0 or len(content) != length:
            raise ConfigError(
                f"Cache.put: chunk {number} of {uri} ({size} bytes, chunks of {self.chunk}) has "
                f"{max(length, 0)} bytes, got {len(content)}; drop what ended early"
            )
        trailer = _TRAILER.pack(_MAGIC, zlib.crc32(content))
        try:
            self._quota.store(self.path(uri, version, number, size), (content, trailer), mtime_ns=self._mark_ns)
        except OSError as error:
            self._warn_once(f"cannot be written: {error.strerror}", "unstored")

    @property
    def counts(self) -> Counter[str]:
        """What this process did, by chunks: stored, unstored, unread (for want of permission), damaged, evicted."""
        return Counter(self._quota.counts)

    def path(self, uri: str, version: str, number: int, size: int) -> str:
        """The file of a chunk."""
        return _prefix(self.folder, self.chunk, uri, version, size) + str(number)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Cache, self.folder, self.limit, chunk=self.chunk, boot=self._boot_argument), ()

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
        """Parts [start, stop) of a chunk that has `length` bytes, or None if there is no such chunk.

        No lock is taken: names appear with complete files behind them, and what is removed can be read to its end.
        """
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            return self._warn_once(f"cannot be read: {error.strerror}", "unread")
        try:
            status = os.fstat(fd)
            if status.st_size != length + _TRAILER_BYTES or not (
                status.st_mtime_ns == self._mark_ns or self._is_sound(fd, path, length)
            ):
                self._quota.drop(path, status)
                return None
            now = time.time_ns()
            if abs(now - status.st_atime_ns) > _TOUCH_NS:  # either way: the clock may have been set back
                with suppress(OSError):
                    os.utime(fd, ns=(now, self._mark_ns or status.st_mtime_ns))
            parts = tuple([os.pread(fd, stop - start, start) for start, stop in spans])
        except OSError as error:
            with suppress(OSError):  # a bad spot of the disk would be met again and again
                self._quota.drop(path, os.stat(path))
            return self._warn_once(f"cannot be read: {error.strerror}", "unread")
        finally:
            os.close(fd)
        for part, (start, stop) in zip(parts, spans, strict=True):
            if len(part) != stop - start:
                return None
        return parts

    def _is_sound(self, fd: int, path: str, length: int) -> bool:
        """Check a chunk from before the machine's last start, which may have lost what was not on the disk yet."""
        if path in self._checked:
            return True
        data = os.pread(fd, length + _TRAILER_BYTES, 0)
        if data[length:] != _TRAILER.pack(_MAGIC, zlib.crc32(memoryview(data)[:length])):
            return False
        if self._mark_ns is not None:
            with suppress(OSError):
                os.utime(fd, ns=(time.time_ns(), self._mark_ns))  # spares every process the next check
        if os.fstat(fd).st_mtime_ns != self._mark_ns:
            self._checked.add(path)
        return True

    def _warn_once(self, what: str, counter: str) -> None:
        if self._quota.count_failure(counter):
            warnings.warn(f"the cache {self.folder} {what}; continuing without it", RuntimeWarning, stacklevel=3)


def in_bytes(limit: int | str, name: str = "Cache: limit") -> int:
    """Bytes of a text such as "200GB" (10**9 each) or "64KiB" (1024 each), or of a number of bytes; `name` is for the
    error."""
    if isinstance(limit, str) and (match := _SIZE.fullmatch(limit.strip())):
        number, unit = Fraction(match[1]), match[2].lower()
        count = int(number * next(size for name, size in _UNITS.items() if name.lower() == unit))
    else:
        count = limit if isinstance(limit, int) and not isinstance(limit, bool) else 0
    if count < 1:
        raise ConfigError(
            f'{name} must be a number of bytes > 0, or a text such as "500MB", "1.5TB" or "64KiB" '
            f"({', '.join(_UNITS)}), got {limit!r}"
        )
    return count


def _empty_range(uri: str, start: int, stop: int, size: int) -> bytes:
    if 0 <= start == stop <= size:
        return b""
    raise ConfigError(f"Cache: bytes [{start}, {stop}) are not in {uri}, which has {size} bytes")


@lru_cache(4096)  # a large object is asked for many times, a small one by `missing` and then by `get`
def _prefix(folder: str, chunk: int, uri: str, version: str, size: int) -> str:
    """The path of an object's chunks, up to their number. No other object, and no other way to cut it, has the same."""
    text = f"{chunk} {size} {len(uri)} {uri}{version}"  # the length says where the uri ends
    key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{folder}/{key[:2]}/{key}-"


def _boot() -> str:
    """A text that is another one after every start of the machine; empty where the kernel does not tell."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _mark_ns(boot: str) -> int:
    """The modification time that chunks get once they are known to be whole: it stands for this start of the machine.

    Times themselves could not be compared with the machine's start: clocks are wrong at times, and then set right. Even
    seconds, and between 1980 and 1997: every file system can hold them, and none takes them to be in the future.
    """
    seconds = zlib.crc32(boot.encode()) >> 4
    return (315532800 + 2 * seconds) * 10**9


def cache_of(cache: str | os.PathLike[str] | Cache | None) -> Cache | None:
    """A cache from its folder, or as it is."""
    return cache if cache is None or isinstance(cache, Cache) else Cache(cache)
