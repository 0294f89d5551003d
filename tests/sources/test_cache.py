"""Cache in one process: what is found, what makes room, what is checked."""

from __future__ import annotations

import os
import pickle
import threading
import time
import tracemalloc
import zlib

import pytest
from caches import BLOCK, audit, content, fill, whole
from hypothesis import example, given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.cache import Cache, Chunk, in_bytes

MINUTE_NS = 60 * 10**9


def old(cache: Cache, minutes: int, uri: str, size: int) -> None:
    """Make an object of one chunk look as if it was read so long ago."""
    path = cache.path(uri, "1", 0, size)
    os.utime(path, ns=(time.time_ns() - minutes * MINUTE_NS, os.stat(path).st_mtime_ns))


# -- what is found


@given(
    chunk=st.integers(1, 60),
    size=st.integers(0, 300),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    put=st.sets(st.integers(0, 300)),
    held=st.sets(st.integers(0, 300)),
)
@example(chunk=10, size=30, ends=(0.0, 1.0), put={0, 1, 2}, held=set())
@example(chunk=10, size=31, ends=(1 / 3, 1.0), put={0, 1, 2}, held={3})
@example(chunk=300, size=7, ends=(0.0, 1.0), put={0}, held=set())
def test_any_range_is_exact_or_missing(tmp_path_factory, chunk, size, ends, put, held):
    cache = Cache(tmp_path_factory.mktemp("cache"), "1GB", chunk=chunk)
    start, stop = sorted(round(end * size) for end in ends)
    blob = content("x", size)
    pieces = [Chunk(n, at, min(at + chunk, size)) for n, at in enumerate(range(0, size, chunk))]
    for n, first, last in pieces:
        if n in put:
            cache.put("x", "1", n, blob[first:last], size)
    needed = [p for p in pieces if p.start < stop and start < p.stop and start < stop]
    missing = [p for p in needed if p.number not in put]
    assert cache.missing("x", "1", start, stop, size) == missing
    assert cache.get("x", "1", start, stop, size) == (None if missing else blob[start:stop])
    fetched = {n: blob[first:last] for n, first, last in pieces if n in held}
    found = cache.get("x", "1", start, stop, size, fetched)
    assert found == (None if {p.number for p in missing} - held else blob[start:stop])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_kinds_of_bytes(tmp_path, kind):
    cache = Cache(tmp_path, chunk=10)
    cache.put("x", "1", 0, kind(b"0123456789"), 12)
    cache.put("x", "1", 1, kind(b"ab"), 12)
    assert [cache.get("x", "1", *range, 12) for range in [(0, 12), (3, 4), (9, 11)]] == [b"0123456789ab", b"3", b"9a"]


def test_a_hit_is_one_object_without_a_copy(tmp_path):
    cache = Cache(tmp_path)
    size = 4 << 20
    fill(cache, "x", size)
    whole(cache, "x", size)
    tracemalloc.start()
    try:
        assert whole(cache, "x", size) == content("x", size)
        blob = whole(cache, "x", size)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        del blob
        whole(cache, "x", size)
        assert tracemalloc.get_traced_memory()[1] < before + size / 2
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "others",
    [
        [("a", "bc", 50), ("ab", "c", 50), ("abc", "", 50), ("", "abc", 50)],
        [("a", "1", 50), ("a", "2", 50), ("a", "1", 51)],
        [("a 1", "", 50), ("a", " 1", 50), ("a", "1 ", 50)],
        [("s3://b/ü/\0/../..\n/%20 x?y#z", "1", 50), ("\ud800", "\udcff", 50), ("a" * 5000, "1", 50), (".", "..", 50)],
    ],
)
def test_objects_are_told_apart(tmp_path, others):
    """By uri, version and size, whatever characters are in them."""
    cache = Cache(tmp_path, chunk=1 << 20)
    for i, (uri, version, size) in enumerate(others):
        assert cache.get(uri, version, 0, size, size) is None
        cache.put(uri, version, 0, bytes([i]) * size, size)
    for i, (uri, version, size) in enumerate(others):
        assert cache.get(uri, version, 0, size, size) == bytes([i]) * size
    assert audit(tmp_path).chunks == len(others)


def test_caches_that_cut_differently_share_a_folder(tmp_path):
    """Chunk 2 is 4 bytes of the object in both ways to cut it, but other ones."""
    coarse, fine = Cache(tmp_path, chunk=8), Cache(tmp_path, chunk=4)
    blob = fill(coarse, "x", 20)
    assert whole(fine, "x", 20) is None
    assert fill(fine, "x", 20) == whole(fine, "x", 20) == whole(coarse, "x", 20) == blob


def test_pickle_and_repr(tmp_path):
    cache = Cache(tmp_path, "64KiB", chunk=100)
    blob = fill(cache, "x", 250)
    again = pickle.loads(pickle.dumps(cache))
    assert (again.folder, again.limit, again.chunk) == (str(tmp_path), 65536, 100)
    assert repr(again) == repr(cache) == f"Cache({str(tmp_path)!r}, 65536, chunk=100)"
    assert whole(again, "x", 250) == blob
    assert again.counts == {} and cache.counts == {"stored": 3}


def test_a_relative_folder_stays_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = Cache("here/cache")
    monkeypatch.chdir("/")
    blob = fill(pickle.loads(pickle.dumps(cache)), "x", 100)
    assert whole(Cache(tmp_path / "here" / "cache"), "x", 100) == blob


# -- what is refused


@pytest.mark.parametrize(
    ("limit", "count"),
    [
        *[(1, 1), (10**15, 10**15), ("7B", 7), ("200GB", 2 * 10**11), ("1.5TB", 15 * 10**11), ("500 MB", 5 * 10**8)],
        *[("64KiB", 65536), ("2mib", 2 << 20), ("0.5GiB", 1 << 29), ("3TiB", 3 << 40), (" 1kB ", 1000)],
    ],
)
def test_limits(limit, count):
    assert in_bytes(limit) == count


@pytest.mark.parametrize(
    "limit",
    [0, -1, True, 1e9, None, "", "200", "GB", "-1GB", "1e3GB", "0MB", "0.1B", "nanGB", "1PB", "1,5GB", "2 G", "²GB"],
)
def test_limits_that_are_none(tmp_path, limit):
    with pytest.raises(ConfigError, match=r'limit must be a number of bytes > 0.*"500MB".*KiB.*, got '):
        Cache(tmp_path, limit)


@pytest.mark.parametrize("chunk", [0, -1, 1.5, True, "8MB", (1 << 30) + 1])
def test_chunks_that_are_none(tmp_path, chunk):
    with pytest.raises(ConfigError, match=r"chunk must be bytes in \[1, 1073741824\], got "):
        Cache(tmp_path, chunk=chunk)


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="file is not a folder; pass a folder on a local disk"):
        Cache(tmp_path / "file")
    with pytest.raises(SourceError, match="cannot be created: Not a directory"):
        Cache(tmp_path / "file" / "cache")


@pytest.mark.parametrize("bounds", [(-1, 2), (3, 2), (0, 11), (11, 11)])
def test_ranges_outside_the_object(tmp_path, bounds):
    for ask in (Cache(tmp_path).get, Cache(tmp_path).missing):
        with pytest.raises(ConfigError, match=r"bytes \[.*\) are not in s3://x, which has 10 bytes"):
            ask("s3://x", "1", *bounds, 10)


@pytest.mark.parametrize(
    ("number", "data"), [(0, b"123"), (0, b"12345"), (1, b"1234"), (2, b""), (-1, b"1234"), (0, b"")]
)
def test_data_that_is_not_the_chunk(tmp_path, number, data):
    with pytest.raises(ConfigError, match=rf"chunk {number} of s3://x .* got {len(data)}; drop what ended early"):
        Cache(tmp_path, chunk=4).put("s3://x", "1", number, data, 5)


# -- what makes room


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
    with pytest.warns(RuntimeWarning, match="cannot be written: 8193 bytes are more than its limit of 8192") as warned:
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


# -- what is checked


def test_a_chunk_of_another_length_is_not_served(tmp_path):
    cache = Cache(tmp_path)
    for length in (0, 999, 1007, 1009):
        fill(cache, "x", 1000)
        os.truncate(cache.path("x", "1", 0, 1000), length)
        assert cache.missing("x", "1", 0, 1000, 1000) == [(0, 0, 1000)]
        assert whole(cache, "x", 1000) is None
        assert audit(tmp_path).chunks == 0
    assert cache.counts == {"stored": 4, "damaged": 4}


@pytest.mark.parametrize("at", [0, 500, 999, 1000, 1003, 1004, 1007])
@pytest.mark.parametrize("ask", ["get", "missing", "put"])
def test_damage_from_before_the_last_start(tmp_path, at, ask):
    fill(Cache(tmp_path, boot="1"), "x", 1000)
    cache = Cache(tmp_path, boot="2")
    path = cache.path("x", "1", 0, 1000)
    status = os.stat(path)
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 8]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    if ask == "get":
        assert cache.get("x", "1", 10, 20, 1000) is None
    elif ask == "missing":
        assert cache.missing("x", "1", 10, 20, 1000) == [(0, 0, 1000)]
    cache.put("x", "1", 0, content("x", 1000), 1000)
    assert whole(cache, "x", 1000) == content("x", 1000)
    assert audit(tmp_path) == (BLOCK, BLOCK, 1, 0)


@pytest.mark.parametrize(("boot", "markable", "checks"), [("2", True, 1), ("2", False, 2), ("", True, 2)])
def test_chunks_from_before_the_last_start_are_checked_once(tmp_path, monkeypatch, boot, markable, checks):
    """By one process for all, where the file can be marked."""
    blob = fill(Cache(tmp_path, boot="1"), "x", 1000)
    calls, crc32, utime = [], zlib.crc32, os.utime
    monkeypatch.setattr(zlib, "crc32", lambda data: (calls.append(len(data)), crc32(data))[1])

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(1, "not yours")

    monkeypatch.setattr(os, "utime", utime if markable else refuse)
    for cache in (Cache(tmp_path, boot=boot), Cache(tmp_path, boot=boot)):
        for _ in range(3):
            assert cache.missing("x", "1", 0, 1000, 1000) == []
            assert cache.get("x", "1", 10, 900, 1000) == blob[10:900]
    assert calls.count(1000) == checks


def test_what_was_counted_before_the_last_start_is_counted_again(tmp_path):
    fill(Cache(tmp_path, boot="1"), "x", 1000)
    os.unlink(Cache(tmp_path, boot="1").path("x", "1", 0, 1000))
    fill(Cache(tmp_path, boot="1"), "y", 1000)
    assert audit(tmp_path)[:2] == (2 * BLOCK, BLOCK), "too much is put right at the limit, or"
    fill(Cache(tmp_path, boot="2"), "z", 1000)
    assert audit(tmp_path)[:2] == (2 * BLOCK, 2 * BLOCK)


def test_starts_of_the_machine_are_told_apart(tmp_path):
    """The kernel names this one; a name gives one modification time, a past one, in whole seconds."""
    marks = set()
    for boot in (None, "1", "2", "3"):
        cache = Cache(tmp_path / str(boot), boot=boot)
        fill(cache, "x", 100)
        marks.add(os.stat(cache.path("x", "1", 0, 100)).st_mtime_ns)
    assert len(marks) == 4
    assert all(315532800 <= ns / 10**9 < 852403712 and ns % (2 * 10**9) == 0 for ns in marks)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"x" * 3000,
        b"-0000000000000000001 1\n",
        b"%020d" % 0,
        b"%020d 9\n" % 0,
        b"%020d 1\n%020d 1\n" % (0, 0),
    ],
)
def test_a_damaged_count_is_made_anew(tmp_path, text):
    cache = Cache(tmp_path, boot="1")
    fill(cache, "x", 5000)
    (tmp_path / "usage").write_bytes(text)
    fill(cache, "y", 1000)
    assert audit(tmp_path) == (3 * BLOCK, 3 * BLOCK, 2, 0)
