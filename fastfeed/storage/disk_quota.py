"""A folder of files within a limit of bytes, written by any number of processes of a machine.

A file is <first 2 digits of key>/<key>-<number>, with a random suffix while it is written. A lock
of the file `usage` guarantees that its count is never too low, and that names appear and disappear
under the lock only. Writers count their bytes first; if one is killed, the count is too high until
the limit seems reached and the folder is scanned.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from fastfeed.system.descriptors import CREATE, NEW, open_file, pread, pwrite, set_times
from fastfeed.system.folders import free_bytes
from fastfeed.system.locks import lock, unlock
from fastfeed.system.processes import after_fork

_BLOCK = 4096  # bytes; a file takes whole ones
_FILLED = 0.9  # of the limit, after old files have been removed
# bytes, or share of the disk if less, that are left to others
_RESERVE = 10 * 10**9
_RESERVE_SHARE = 0.02
_ABANDONED_S = 3600  # without writing, where locks cannot say whether the writer lives
_KEY = r"[0-9a-f]{8,}"
_FILE = re.compile(rf"{_KEY}-[0-9]+")
_DRAFT = re.compile(rf"{_KEY}-[0-9]+\.[0-9a-f]{{16}}")
_FOLDER = re.compile(r"[0-9a-f]{2}")
_USAGE = re.compile(rb"([0-9]{20}) (.*)\n")

# A forked process gets copies of locked descriptors, to be closed, and maybe a mutex of a thread
# that it lacks.
_mutex = threading.Lock()
_locked: set[int] = set()


def _forked() -> None:
    global _mutex  # noqa: PLW0603 -- a lock that another thread held cannot be opened, only replaced
    _mutex = threading.Lock()
    for fd in _locked:
        os.close(fd)
    _locked.clear()


after_fork(_forked)


@dataclass(eq=False)
class Quota:
    """At most `limit` bytes in files of `folder`; the least recently read make room.

    A file's access time is the time of its last read. `boot` identifies this boot of the machine:
    after a crash, the folder is counted again. Only files named as above are touched.
    """

    folder: str
    limit: int
    _boot: str

    def __post_init__(self) -> None:
        self.counts: Counter[str] = Counter()  # of this process's actions
        self._usage = os.path.join(self.folder, "usage")

    def count_failure(self, kind: str) -> bool:
        """Count a failure as "unstored" or "unread"; True for the first one."""
        with _mutex:
            self.counts[kind] += 1
            return self.counts["unstored"] + self.counts["unread"] == 1

    def store(
        self, path: str, parts: Sequence[memoryview | bytes], *, mtime_ns: int | None
    ) -> None:
        """Write a file, unless it exists with this length and modification time.

        It appears when it is complete. OSError: it could not be stored, and nothing is left of it.
        """
        length = sum(len(part) for part in parts)
        if _blocks(length) > self.limit:
            raise OSError(errno.EFBIG, f"{length} bytes are more than its limit of {self.limit}")
        draft = f"{path}.{os.urandom(8).hex()}"
        fd = self._begin(path, draft, length, mtime_ns)
        if fd is None:
            return
        closed = stored = False
        try:
            for part in parts:
                _write(fd, part)
            set_times(fd, draft, time.time_ns(), mtime_ns or time.time_ns())
            with self._locked_usage() as usage:  # so that no one takes the draft for abandoned
                closed = True  # Windows renames no open file
                _unlock(fd)
                before = 0
                with suppress(FileNotFoundError):
                    before = _blocks(os.stat(path).st_size)
                os.replace(draft, path)
                stored = True
                self.counts["stored"] += 1
                usage.add(-before)
        finally:
            if not closed:
                _unlock(fd)
            if not stored:
                self._remove(draft, length)

    def drop(self, path: str, status: os.stat_result) -> None:
        """Remove a file, if it still is the one with this status."""
        with self._locked_usage() as usage, suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), status):
                os.unlink(path)
                self.counts["damaged"] += 1
                usage.add(-_blocks(status.st_size))

    def _begin(self, path: str, draft: str, length: int, mtime_ns: int | None) -> int | None:
        """Count the bytes and open the draft; None if the file exists."""
        with self._locked_usage() as usage:
            with suppress(FileNotFoundError):
                status = os.stat(path)
                if status.st_size == length and mtime_ns in (None, status.st_mtime_ns):
                    return None
            used = usage.read()
            more = _blocks(length)
            if used is None:
                used = self._measure()[0]
                usage.write(used)
            limit = min(self.limit, used + self._available())
            if used + more > limit:
                used = self._make_room(int(limit * _FILLED) - more, limit - more)
                usage.write(used)
                if used + more > limit:
                    text = "no room within its limit and what the disk has left"
                    raise OSError(errno.ENOSPC, text)
            usage.add(more)
            fd = None
            try:
                fd = _open(draft, os.O_RDWR | NEW)
                _lock(fd)
                os.ftruncate(fd, length)  # so that a scan of the folder sees its final size
            except BaseException:  # Ctrl-C too: else the draft would count for ever; raised again
                if fd is not None:
                    _unlock(fd)
                    os.unlink(draft)
                usage.add(-more)
                raise
            return fd

    def _remove(self, draft: str, length: int) -> None:
        with suppress(OSError), self._locked_usage() as usage:
            # the error that brought us here is the one to tell
            os.unlink(draft)
            usage.add(-_blocks(length))

    @contextmanager
    def _locked_usage(self) -> Iterator[_Usage]:
        """The count of bytes, with no other thread or process in here."""
        with _mutex:
            for _ in range(100):
                fd = _open(self._usage, CREATE)
                try:
                    _lock(fd)
                    if os.fstat(fd).st_nlink:
                        # else removed while we waited: it is another file that has to be locked
                        yield _Usage(fd, self._boot.encode())
                        return
                finally:
                    _unlock(fd)
            text = f"{self._usage} keeps being removed; do not delete a cache that is in use"
            raise OSError(errno.EBUSY, text)

    def _available(self) -> int:
        """Bytes of the disk that may still be used, leaving room for checkpoints of others."""
        free, total = free_bytes(self.folder)
        return max(int(free - min(total * _RESERVE_SHARE, _RESERVE)), 0) if total else self.limit

    def _make_room(self, target: int, enough: int) -> int:
        """Remove files down to `target` bytes if more than `enough` are in use; return the use."""
        used = 0
        for _ in range(3):
            # files that are read between the two looks are not old any more, and then others are
            used, ages, sizes = self._measure()
            if used <= enough or not len(ages):
                break
            order = np.argsort(ages)
            last = min(int(np.searchsorted(np.cumsum(sizes[order]), used - target)), len(order) - 1)
            age = int(ages[order[last]])
            used -= self._remove_files(age, used - target - int(sizes[ages < age].sum()))
            if used <= enough:
                break
        return used

    def _measure(self) -> tuple[int, np.ndarray, np.ndarray]:
        """Bytes in use; access time and bytes of every complete file: int64, shape (files,).

        Ends dead drafts.
        """
        # names are not kept: there may be millions
        used = 0
        ages = array("q")
        sizes = array("q")
        for entry, status in self._files():
            if _FILE.fullmatch(entry.name):
                ages.append(status.st_atime_ns)
                sizes.append(_blocks(status.st_size))
            elif _is_abandoned(entry.path, status):
                with suppress(OSError):
                    os.unlink(entry.path)
                    continue
            used += _blocks(status.st_size)
        return used, np.array(ages, np.int64), np.array(sizes, np.int64)

    def _remove_files(self, age: int, last: int) -> int:
        """Remove files read before `age` and `last` bytes of those read then; return the bytes."""
        freed = 0
        for entry, status in self._files():
            is_new = status.st_atime_ns > age or (status.st_atime_ns == age and last <= 0)
            if is_new or not _FILE.fullmatch(entry.name):
                continue
            with suppress(OSError):  # of another user
                os.unlink(entry.path)  # readers that have it open can read on
                self.counts["evicted"] += 1
                freed += _blocks(status.st_size)
                if status.st_atime_ns == age:
                    last -= _blocks(status.st_size)
        return freed

    def _files(self) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
        for name in filter(_FOLDER.fullmatch, os.listdir(self.folder)):
            with (
                suppress(NotADirectoryError, FileNotFoundError),
                os.scandir(os.path.join(self.folder, name)) as entries,
            ):
                for entry in entries:
                    is_ours = _FILE.fullmatch(entry.name) or _DRAFT.fullmatch(entry.name)
                    if is_ours and entry.name.startswith(name):
                        with suppress(FileNotFoundError):
                            yield entry, entry.stat(follow_symlinks=False)


@dataclass(frozen=True, slots=True)
class _Usage:
    """The number of used bytes in the file."""

    _fd: int
    _boot: bytes

    def read(self) -> int | None:
        """Read the number; None if it cannot be trusted."""
        match = _USAGE.fullmatch(pread(self._fd, 200, 0))
        return int(match[1]) if match and match[2] == self._boot else None

    def write(self, used: int) -> None:
        line = b"%020d %s\n" % (max(used, 0), self._boot)
        pwrite(self._fd, line, 0)
        os.ftruncate(self._fd, len(line))

    def add(self, more: int) -> None:
        used = self.read()
        if used is not None:
            self.write(used + more)


def _blocks(length: int) -> int:
    """Bytes that a file of this length takes on a disk."""
    return -(-length // _BLOCK) * _BLOCK


def _open(path: str, flags: int) -> int:
    """Open a file, in a folder that is made where it is missing."""
    try:
        return open_file(path, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open_file(path, flags, 0o666)


def _write(fd: int, part: memoryview | bytes) -> None:
    remaining = memoryview(part)
    while remaining:
        remaining = remaining[os.write(fd, remaining) :]


def _is_abandoned(draft: str, status: os.stat_result) -> bool:
    """True if the writer is gone: a lock ends with its process."""
    try:
        fd = open_file(draft)
    except OSError:
        return False
    try:
        lock(fd, wait=False, shared=True)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return abs(time.time() - status.st_ctime) > _ABANDONED_S
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    _locked.add(fd)
    with suppress(OSError):
        # a file system without locks: threads still wait for each other, processes may miscount
        lock(fd)


def _unlock(fd: int) -> None:
    with suppress(OSError):
        # by name, since a copy of fd in a process forked without Python would hold the lock
        unlock(fd)
    _locked.discard(fd)
    os.close(fd)
