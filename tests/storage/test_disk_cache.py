"""Cache in one process: what is found, and what is refused."""

from __future__ import annotations

import pickle
import tracemalloc

import pytest
from helpers.caches import audit, content, fill, whole
from hypothesis import example, given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError, SourceError
from fastfeed.storage.byte_sizes import in_bytes
from fastfeed.storage.disk_cache import Cache, Chunk

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
    assert [cache.get("x", "1", *range, 12) for range in [(0, 12), (3, 4), (9, 11)]] == [
        b"0123456789ab",
        b"3",
        b"9a",
    ]


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
        [
            ("s3://b/ü/\0/../..\n/%20 x?y#z", "1", 50),
            ("\ud800", "\udcff", 50),
            ("a" * 5000, "1", 50),
            (".", "..", 50),
        ],
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
        *[
            (1, 1),
            (10**15, 10**15),
            ("7B", 7),
            ("200GB", 2 * 10**11),
            ("1.5TB", 15 * 10**11),
            ("500 MB", 5 * 10**8),
        ],
        *[
            ("64KiB", 65536),
            ("2mib", 2 << 20),
            ("0.5GiB", 1 << 29),
            ("3TiB", 3 << 40),
            (" 1kB ", 1000),
        ],
    ],
)
def test_limits(limit, count):
    assert in_bytes(limit) == count


@pytest.mark.parametrize(
    "limit",
    [
        0,
        -1,
        True,
        1e9,
        None,
        "",
        "200",
        "GB",
        "-1GB",
        "1e3GB",
        "0MB",
        "0.1B",
        "nanGB",
        "1PB",
        "1,5GB",
        "2 G",
        "²GB",
    ],
)
def test_limits_that_are_none(tmp_path, limit):
    with pytest.raises(
        ConfigError, match=r'limit must be a number of bytes > 0.*"500MB".*KiB.*, got '
    ):
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
        with pytest.raises(
            ConfigError, match=r"bytes \[.*\) are not in s3://x, which has 10 bytes"
        ):
            ask("s3://x", "1", *bounds, 10)


@pytest.mark.parametrize(
    ("number", "data", "size"),
    [
        (0, b"123", 5),
        (0, b"12345", 5),
        (1, b"1234", 5),
        (2, b"", 5),
        (2, b"", 8),
        (-1, b"1234", 5),
        (0, b"", 5),
    ],
)
def test_data_that_is_not_the_chunk(tmp_path, number, data, size):
    with pytest.raises(
        ConfigError, match=rf"chunk {number} of s3://x .* got {len(data)}; discard truncated reads"
    ):
        Cache(tmp_path, chunk=4).put("s3://x", "1", number, data, size)
