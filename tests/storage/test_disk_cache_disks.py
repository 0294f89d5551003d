"""Cache on disks that are full, that fail, that have no locks, or whose files others remove."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time

import pytest
from helpers.caches import BLOCK, audit, content, fill, whole

from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.disk_quota import Quota

WRITING = os.O_RDWR | os.O_WRONLY


def failing(function: str, code: int, first: int = 0, times: int = 99):
    """An os function that fails, at its first call or a later one.

    `open` fails for writing alone.
    """
    real, calls = getattr(os, function), []

    def fail(*args, **kwargs):
        if function == "open" and not args[1] & WRITING:
            return real(*args, **kwargs)
        calls.append(args)
        if first < len(calls) <= first + times:
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    return fail


FAILURES = [
    ("write", errno.ENOSPC, 0, 99),
    ("write", errno.ENOSPC, 1, 99),  # the trailer
    ("write", errno.EDQUOT, 0, 99),
    ("write", errno.EIO, 0, 99),
    ("open", errno.EROFS, 0, 99),
    ("open", errno.EACCES, 0, 99),
    ("open", errno.EMFILE, 0, 99),
    ("open", errno.ENOSPC, 1, 99),  # the draft
    ("ftruncate", errno.EFBIG, 1, 1),
    ("pwrite", errno.ENOSPC, 0, 99),
    ("utime", errno.EPERM, 0, 99),
    ("replace", errno.EACCES, 0, 99),
]


@pytest.mark.parametrize(("function", "code", "first", "times"), FAILURES)
def test_what_cannot_be_written_is_not_kept(tmp_path, monkeypatch, function, code, first, times):
    """One warning, no exception, nothing left behind; and it resumes once the disk works again."""
    cache = Cache(tmp_path)
    fill(cache, "before", 5000)
    with monkeypatch.context() as patch, pytest.warns(RuntimeWarning) as warned:
        for i in range(3):
            patch.setattr(os, function, failing(function, code, first, times))
            fill(cache, str(i), 5000)
            assert whole(cache, "before", 5000) == content("before", 5000)
    assert [str(w.message) for w in warned] == [
        f"the cache {tmp_path} cannot be written: {os.strerror(code)}; continuing without it"
    ]
    assert warned[0].filename.endswith("caches.py"), "the line that called put"
    assert cache.counts == {"stored": 1, "unstored": 3}
    assert audit(tmp_path) == (2 * BLOCK, 2 * BLOCK, 1, 0)
    fill(cache, "after", 5000)
    assert [whole(cache, uri, 5000) for uri in ("0", "after")] == [None, content("after", 5000)]
    assert audit(tmp_path) == (4 * BLOCK, 4 * BLOCK, 2, 0)


def test_a_write_that_is_cut_short_continues(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:700]))
    cache = Cache(tmp_path)
    assert fill(cache, "x", 5000) == whole(cache, "x", 5000)


def test_an_interrupt_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(fd, data):
        raise KeyboardInterrupt

    cache = Cache(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fill(cache, "x", 100)
    assert audit(tmp_path) == (0, 0, 0, 0)
    assert fill(cache, "x", 100) == whole(cache, "x", 100)


@pytest.mark.parametrize("function", ["open", "fstat", "pread"])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_what_cannot_be_read_is_missing(tmp_path, monkeypatch, function, code):
    cache = Cache(tmp_path)
    fill(cache, "x", 100)
    with (
        monkeypatch.context() as patch,
        pytest.warns(RuntimeWarning, match="cannot be read: ") as warned,
    ):
        patch.setattr(
            os, function, lambda *_: (_ for _ in ()).throw(OSError(code, os.strerror(code)))
        )
        assert [whole(cache, "x", 100) for _ in range(3)] == [None] * 3
    assert len(warned) == 1
    assert cache.counts["unread"] == (1 if function == "pread" else 3), "a bad spot is given up"
    fill(cache, "x", 100)
    assert whole(cache, "x", 100) == content("x", 100)


def test_a_read_that_is_cut_short_is_a_miss(tmp_path, monkeypatch):
    cache, pread = Cache(tmp_path), os.pread
    fill(cache, "x", 100)
    monkeypatch.setattr(os, "pread", lambda fd, count, offset: pread(fd, count, offset)[:50])
    assert whole(cache, "x", 100) is None


def test_a_bad_spot_is_given_up(tmp_path, monkeypatch):
    """Else the chunk would be fetched again in every epoch, and never stored because it is
    there.
    """
    cache, pread = Cache(tmp_path), os.pread

    def bad(fd: int, count: int, offset: int) -> bytes:
        if count == 100:
            raise OSError(errno.EIO, "bad")
        return pread(fd, count, offset)

    fill(cache, "x", 100)
    with monkeypatch.context() as patch, pytest.warns(RuntimeWarning):
        patch.setattr(os, "pread", bad)
        assert whole(cache, "x", 100) is None
    assert audit(tmp_path) == (0, 0, 0, 0)


def test_damage_that_cannot_be_removed_is_not_served(tmp_path, monkeypatch):
    cache = Cache(tmp_path)
    fill(cache, "x", 100)
    path = cache.path("x", "1", 0, 100)
    status = os.stat(path)
    os.truncate(path, 50)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    monkeypatch.setattr(os, "unlink", failing("unlink", errno.EROFS))
    with pytest.warns(RuntimeWarning, match="cannot be read: Read-only"):
        assert whole(cache, "x", 100) is None
    assert cache.missing("x", "1", 0, 100, 100) == [(0, 0, 100)]
    cache.put("x", "1", 0, content("x", 100), 100)
    assert whole(cache, "x", 100) == content("x", 100), "replaced"
    assert audit(tmp_path) == (BLOCK, BLOCK, 1, 0)


def test_files_of_another_user_make_no_room(tmp_path, monkeypatch):
    cache = Cache(tmp_path, 2 * BLOCK)
    fill(cache, "a", 100)
    fill(cache, "b", 100)
    with (
        monkeypatch.context() as patch,
        pytest.warns(RuntimeWarning, match="no room within its limit") as warned,
    ):
        patch.setattr(os, "unlink", failing("unlink", errno.EPERM))
        fill(cache, "c", 100)
        fill(cache, "d", 100)
    assert len(warned) == 1
    assert cache.counts == {"stored": 2, "unstored": 2}
    assert audit(tmp_path) == (2 * BLOCK, 2 * BLOCK, 2, 0)


# -- others at work in the folder


def test_without_locks(tmp_path, monkeypatch):
    def flock(fd: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    cache = Cache(tmp_path, 4 * BLOCK)
    draft = tmp_path / "ab" / ("ab" * 16 + "-0." + "0" * 16)
    draft.parent.mkdir()
    draft.write_bytes(bytes(100))
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        for i in range(10):
            assert fill(cache, str(i), 100) == whole(cache, str(i), 100)
        assert draft.exists(), "may be at work"
        hour, now = 3600, time.time()
        patch.setattr(time, "time", lambda: now + hour + 1)
        for i in range(10, 15):
            fill(cache, str(i), 100)
        assert not draft.exists()
    found = audit(tmp_path)
    assert found.counted == found.found <= 4 * BLOCK


def test_drafts_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path):
    cache = Cache(tmp_path, 5 * BLOCK)
    dead, alive = (tmp_path / "ab" / ("ab" * 16 + "-0." + digit * 16) for digit in "01")
    dead.parent.mkdir()
    for draft in (dead, alive):
        draft.write_bytes(bytes(100))
    with alive.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for i in range(10):
            fill(cache, str(i), 100)
            found = audit(tmp_path)
            assert found.counted == found.found <= 5 * BLOCK
        assert alive.exists() and not dead.exists()
    for i in range(10):
        fill(cache, str(i), 100)
    assert not alive.exists()


def test_two_writers_of_one_chunk(tmp_path, monkeypatch):
    """The second one to end replaces the file of the first, and it is counted once."""
    cache, other, write = Cache(tmp_path), Cache(tmp_path), os.write

    def interleaved(fd, data):
        monkeypatch.setattr(os, "write", write)
        fill(other, "x", 5000)
        return write(fd, data)

    monkeypatch.setattr(os, "write", interleaved)
    fill(cache, "x", 5000)
    assert (cache.counts, other.counts) == ({"stored": 1}, {"stored": 1})
    assert audit(tmp_path) == (2 * BLOCK, 2 * BLOCK, 1, 0)
    cache.put("x", "1", 0, content("x", 5000), 5000)
    assert cache.counts == {"stored": 1}, "it is there"


def test_what_is_removed_while_it_is_read_is_read_to_its_end(tmp_path, monkeypatch):
    cache, fstat = Cache(tmp_path, 2 * BLOCK), os.fstat
    fill(cache, "x", 5000)
    path = cache.path("x", "1", 0, 5000)

    def evict(fd: int) -> os.stat_result:
        monkeypatch.setattr(os, "fstat", fstat)
        fill(cache, "y", 5000)
        assert not os.path.exists(path)
        return fstat(fd)

    monkeypatch.setattr(os, "fstat", evict)
    assert whole(cache, "x", 5000) == content("x", 5000)
    assert whole(cache, "x", 5000) is None


@pytest.mark.parametrize("when", ["between", "while writing"])
def test_the_folder_is_removed(tmp_path, monkeypatch, when):
    cache, write = Cache(tmp_path / "cache"), os.write
    fill(cache, "x", 100)

    def remove(fd, data):
        monkeypatch.setattr(os, "write", write)
        shutil.rmtree(tmp_path / "cache")
        return write(fd, data)

    if when == "between":
        shutil.rmtree(tmp_path / "cache")
    else:
        monkeypatch.setattr(os, "write", remove)
        with pytest.warns(RuntimeWarning, match="No such file"):
            fill(cache, "y", 100)
    assert [whole(cache, uri, 100) for uri in "xy"] == [None, None]
    fill(cache, "z", 100)
    assert whole(cache, "z", 100) == content("z", 100)
    assert audit(tmp_path / "cache") == (BLOCK, BLOCK, 1, 0)


def test_the_count_is_removed_while_we_wait_for_it(tmp_path, monkeypatch):
    """Locking a file that is gone would lock no one out."""
    cache, flock = Cache(tmp_path), fcntl.flock
    fill(cache, "x", 100)

    def late(fd: int, kind: int) -> None:
        if kind == fcntl.LOCK_EX:
            monkeypatch.setattr(fcntl, "flock", flock)
            os.unlink(tmp_path / "usage")
        flock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    fill(cache, "y", 100)
    assert audit(tmp_path) == (2 * BLOCK, 2 * BLOCK, 2, 0)


def test_a_count_that_is_removed_each_time_is_named(tmp_path, monkeypatch):
    quota = Quota(str(tmp_path), BLOCK, "boot")
    flock = fcntl.flock

    def removed(fd: int, kind: int) -> None:
        if kind == fcntl.LOCK_EX:
            os.unlink(tmp_path / "usage")
        flock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", removed)
    with pytest.raises(
        OSError, match="usage keeps being removed; do not delete a cache that is in use"
    ):
        with quota._locked_usage():
            pass
