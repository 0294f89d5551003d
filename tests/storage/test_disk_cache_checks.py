"""Cache after damage: what is checked, and when, and what is made good."""

from __future__ import annotations

import os
import zlib

import pytest
from helpers.caches import BLOCK, audit, content, fill, whole

from fastfeed.storage.disk_cache import Cache


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


@pytest.mark.parametrize(
    ("boot", "markable", "checks"), [("2", True, 1), ("2", False, 2), ("", True, 2)]
)
def test_chunks_from_before_the_last_start_are_checked_once(
    tmp_path, monkeypatch, boot, markable, checks
):
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
    """The native extension names this one; a name gives one modification time, a past one, in whole
    seconds.
    """
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
def test_a_damaged_count_is_made_again(tmp_path, text):
    cache = Cache(tmp_path, boot="1")
    fill(cache, "x", 5000)
    (tmp_path / "usage").write_bytes(text)
    fill(cache, "y", 1000)
    assert audit(tmp_path) == (3 * BLOCK, 3 * BLOCK, 2, 0)


def test_damage_that_another_has_repaired_is_not_removed(tmp_path, monkeypatch):
    cache, other, fstat = Cache(tmp_path), Cache(tmp_path), os.fstat
    fill(cache, "x", 100)
    os.truncate(cache.path("x", "1", 0, 100), 50)

    def meanwhile(fd: int) -> os.stat_result:
        status = fstat(fd)
        monkeypatch.setattr(os, "fstat", fstat)
        assert whole(other, "x", 100) is None
        fill(other, "x", 100)
        return status

    monkeypatch.setattr(os, "fstat", meanwhile)
    assert whole(cache, "x", 100) is None
    assert whole(cache, "x", 100) == content("x", 100)
    assert (cache.counts["damaged"], other.counts["damaged"]) == (0, 1)
