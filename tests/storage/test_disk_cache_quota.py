"""Cache within its limit: what makes room for new chunks."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest
from helpers.caches import BLOCK, audit, content, fill, whole

from fastfeed.storage.disk_cache import Cache

MINUTE_NS = 60 * 10**9


def old(cache: Cache, minutes: int, uri: str, size: int) -> None:
    """Make an object of one chunk look as if it was read so long ago."""
    path = cache.path(uri, "1", 0, size)
    os.utime(path, ns=(time.time_ns() - minutes * MINUTE_NS, os.stat(path).st_mtime_ns))


def test_the_least_recently_used_make_room(tmp_path):
    cache = Cache(tmp_path, 10 * BLOCK, chunk=BLOCK)
    for i in range(10):
        fill(cache, str(i), 1000)
        old(cache, 100 - i, str(i), 1000)
    assert whole(cache, "0", 1000) is not None  # the oldest until now
    fill(cache, "x", 1000)
    kept = [uri for uri in [*map(str, range(10)), "x"] if whole(cache, uri, 1000) is not None]
    assert kept == ["0", "3", "4", "5", "6", "7", "8", "9", "x"], "down to 90 %"
    assert audit(tmp_path) == (9 * BLOCK, 9 * BLOCK, 9, 0)
    assert cache.counts == {"stored": 11, "evicted": 2}


def test_of_chunks_as_old_as_each_other_only_some_make_room(tmp_path):
    cache = Cache(tmp_path, 10 * BLOCK)
    for i in range(10):
        fill(cache, str(i), 1000)
        os.utime(cache.path(str(i), "1", 0, 1000), ns=(10**18 - (i == 7), 0))
    fill(cache, "x", 1000)
    assert cache.counts == {"stored": 11, "evicted": 2}, "7, which is older, and another one"
    assert not os.path.exists(cache.path("7", "1", 0, 1000))
    assert audit(tmp_path) == (9 * BLOCK, 9 * BLOCK, 9, 0)


def test_access_times_are_written_once_a_minute(tmp_path, monkeypatch):
    cache = Cache(tmp_path)
    fill(cache, "x", 1000)
    calls, utime = [], os.utime
    monkeypatch.setattr(os, "utime", lambda *args, **ns: (calls.append(ns), utime(*args, **ns)))
    for minutes, written in [(0, 0), (2, 1), (0, 0), (-2, 1)]:  # the last: the clock was set back
        old(cache, minutes, "x", 1000)
        before = os.stat(cache.path("x", "1", 0, 1000))
        calls.clear()
        for _ in range(3):
            assert whole(cache, "x", 1000) == content("x", 1000)
        assert len(calls) == written
        assert os.stat(cache.path("x", "1", 0, 1000)).st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("limit", [BLOCK, 2 * BLOCK, 5 * BLOCK - 1, 7 * BLOCK + 1])
def test_never_above_the_limit(tmp_path, limit):
    cache = Cache(tmp_path, limit, chunk=2000)
    for i in range(20):
        blob = fill(cache, str(i), 1000 + i * 37)
        found = audit(tmp_path)
        assert found.counted == found.found <= limit and found.drafts == 0
        assert whole(cache, str(i), len(blob)) == blob, "the newest is there"


def test_a_chunk_larger_than_the_limit(tmp_path):
    cache = Cache(tmp_path, 2 * BLOCK)
    fill(cache, "small", 100)
    with pytest.warns(
        RuntimeWarning, match="cannot be written: 8193 bytes are more than its limit of 8192"
    ) as warned:
        fill(cache, "large", 8185)
        fill(cache, "larger", 9000)
    assert len(warned) == 1
    assert whole(cache, "large", 8185) is None
    assert whole(cache, "small", 100) == content("small", 100)
    assert cache.counts == {"stored": 1, "unstored": 2}


def test_only_what_is_ours_makes_room(tmp_path):
    others = [
        "notes.txt",
        "ab/notes.txt",
        "ab/cd-1.txt",
        "ab/cdcdcdcdcdcd-1",
        "zz/zzzzzzzzzzzz-1",
        "abc/abcabcabcabc-1",
        "ab/ab-1",
    ]
    for name in others:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(10**5))
    (tmp_path / "cd").touch()
    cache = Cache(tmp_path, 2 * BLOCK)
    for i in range(5):
        fill(cache, str(i), 100)
    assert cache.counts["evicted"] == 4
    assert all((tmp_path / name).stat().st_size == 10**5 for name in others)


def test_room_for_others_on_the_disk(tmp_path, monkeypatch):
    """2 % of the disk, or 10 GB, stay free; where others take them, we give way."""
    cache = Cache(tmp_path, "1TB")
    for i in range(10):
        fill(cache, str(i), 100)
        old(cache, 100 - i, str(i), 100)
    real = list(os.statvfs(tmp_path))

    def disk(total: int, free: int) -> None:
        changed = [BLOCK, BLOCK, total // BLOCK, free // BLOCK, free // BLOCK, *real[5:]]
        monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(changed))

    disk(10**12, 10**10 + 2 * BLOCK)
    fill(cache, "x", 100)
    assert cache.counts == {"stored": 11}
    disk(10**12, 10**10 - BLOCK)
    fill(cache, "y", 100)
    assert [whole(cache, str(i), 100) is None for i in range(4)] == [True, True, True, False]
    disk(100 * BLOCK, BLOCK)
    fill(cache, "z", 100)
    assert cache.counts == {"stored": 13, "evicted": 5}
    disk(0, 0)  # a file system that does not say
    fill(cache, "a", 100)
    assert cache.counts == {"stored": 14, "evicted": 5}
    assert audit(tmp_path).counted == 9 * BLOCK


def test_threads(tmp_path):
    cache = Cache(tmp_path, 30 * BLOCK, chunk=3000)
    wrong: list[object] = []

    def work(seed: int) -> None:
        for i in range(150):
            uri, size = str((i * 7 + seed * 13) % 40), 2000 + (i * 7 + seed * 13) % 40 * 100
            found = whole(cache, uri, size)
            if found is None:
                found = fill(cache, uri, size)
            if found != content(uri, size):
                wrong.append((uri, found))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    found = audit(tmp_path)
    assert found.counted == found.found <= 30 * BLOCK and found.drafts == 0
    assert cache.counts["evicted"] > 0 and not cache.counts["unstored"]


@pytest.mark.parametrize(("read", "left"), [("", "cx"), ("a", "acx"), ("ab", "bx"), ("abc", "cx")])
def test_what_is_read_while_room_is_made_stays(tmp_path, monkeypatch, read, left):
    """Eviction looks twice: what another process has read in between is not old any more, and the
    next oldest go.
    """
    cache, argsort, now = Cache(tmp_path, 3 * BLOCK), np.argsort, time.time_ns()
    for minutes, uri in [(9, "a"), (8, "b"), (7, "c")]:
        fill(cache, uri, 100)
        os.utime(cache.path(uri, "1", 0, 100), ns=(now - minutes * 60 * 10**9, 0))

    def read_meanwhile(ages):
        monkeypatch.setattr(np, "argsort", argsort)
        for i, uri in enumerate(read):
            os.utime(cache.path(uri, "1", 0, 100), ns=(now + i * 10**6, 0))
        return argsort(ages)

    monkeypatch.setattr(np, "argsort", read_meanwhile)
    fill(cache, "x", 100)
    monkeypatch.setattr(np, "argsort", argsort)
    kept = [uri for uri in "abcx" if whole(cache, uri, 100) is not None]
    assert "".join(kept) == left
    assert audit(tmp_path) == (len(left) * BLOCK, len(left) * BLOCK, len(left), 0)
