"""Locks on files where the system is Windows: a byte far behind the end of the file, by
`msvcrt`.
"""

from __future__ import annotations

import errno
import os

import pytest

from fastfeed.system import locks

FAR = 2**31 - 2  # behind the end of any file that is locked


class Msvcrt:
    """One byte per file and process of these descriptors, as _locking() has it."""

    LK_UNLCK, LK_LOCK, LK_NBLCK = 0, 1, 2

    def __init__(self) -> None:
        self.holders: dict[
            tuple[int, int], int
        ] = {}  # (inode, offset) -> descriptor, which stands for a process
        self.tries = 0

    def locking(self, fd: int, mode: int, count: int) -> None:
        assert count == 1
        where = os.fstat(fd).st_ino, os.lseek(fd, 0, os.SEEK_CUR)
        if mode == self.LK_UNLCK:
            if self.holders.get(where) != fd:
                raise OSError(errno.EACCES, "Permission denied")
            del self.holders[where]
        elif where in self.holders:
            self.tries += 1
            if self.tries == 3:  # the other process ends
                self.holders.clear()
            raise OSError(errno.EDEADLK if mode == self.LK_LOCK else errno.EACCES, "locked")
        else:
            self.holders[where] = fd


@pytest.fixture
def msvcrt(monkeypatch: pytest.MonkeyPatch) -> Msvcrt:
    fake = Msvcrt()
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", fake)
    return fake


@pytest.fixture
def files(tmp_path):
    path = tmp_path / "lock"
    path.write_bytes(b"0123456789")
    fds = [os.open(path, os.O_RDWR) for _ in range(2)]
    yield fds
    for fd in fds:
        os.close(fd)


def test_one_process_at_a_time(msvcrt, files):
    ours, theirs = files
    os.lseek(ours, 4, os.SEEK_SET)
    locks.lock(ours)
    assert msvcrt.holders == {(os.fstat(ours).st_ino, FAR): ours}
    assert os.read(ours, 2) == b"45", "the position is where it was"
    for shared in (False, True):
        with pytest.raises(BlockingIOError, match="locked by another process"):
            locks.lock(theirs, wait=False, shared=shared)
    locks.unlock(ours)
    locks.lock(theirs, wait=False)
    assert list(msvcrt.holders.values()) == [theirs]


def test_a_lock_is_waited_for(msvcrt, files):
    ours, theirs = files
    locks.lock(theirs)
    locks.lock(ours)
    assert msvcrt.tries == 3 and list(msvcrt.holders.values()) == [ours]


def test_other_errors_are_raised(msvcrt, files, monkeypatch):
    def fail(*_):
        raise OSError(errno.EINVAL, "no such range")

    monkeypatch.setattr(msvcrt, "locking", fail)
    with pytest.raises(OSError, match="no such range"):
        locks.lock(files[0], wait=False)


def test_without_any_locks(monkeypatch, files):
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", None)
    with pytest.raises(OSError, match="no locks on files"):
        locks.lock(files[0])
    locks.unlock(files[0])
