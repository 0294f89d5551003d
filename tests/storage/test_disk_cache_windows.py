"""The cache where files are as on Windows: no times by descriptor, and no open file is renamed or
removed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.caches import BLOCK, audit, content, fill, whole

from fastfeed.storage.disk_cache import Cache

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="asks Linux which files are open"
)


def is_open(path: str | os.PathLike[str]) -> bool:
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{number}") == os.path.realpath(path):
                return True
        except OSError:  # the descriptor of the list itself
            pass
    return False


@pytest.fixture(autouse=True)
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what Windows lacks."""
    utime, replace, unlink = os.utime, os.replace, os.unlink

    def by_path(path, *args, **more):
        if isinstance(path, int):
            raise TypeError("utime: path should be string, bytes or os.PathLike, not int")
        return utime(path, *args, **more)

    def closed(call):
        def checked(*paths):
            if any(map(is_open, paths)):
                raise PermissionError(
                    13, "the process cannot access the file because it is being used", paths[0]
                )
            return call(*paths)

        return checked

    monkeypatch.setattr(os, "utime", by_path)
    monkeypatch.setattr(os, "replace", closed(replace))
    monkeypatch.setattr(os, "unlink", closed(unlink))


def test_what_is_stored_is_read(tmp_path):
    cache = Cache(tmp_path, boot="1")
    assert fill(cache, "x", 1000) == whole(cache, "x", 1000)
    os.utime(
        cache.path("x", "1", 0, 1000), ns=(0, os.stat(cache.path("x", "1", 0, 1000)).st_mtime_ns)
    )
    assert whole(cache, "x", 1000) == content("x", 1000)
    assert os.stat(cache.path("x", "1", 0, 1000)).st_atime_ns > 0  # it is recently read
    again = Cache(tmp_path, boot="2")  # checks it, and marks it as whole
    assert whole(again, "x", 1000) == content("x", 1000)
    assert cache.counts == {"stored": 1} and not again.counts


def test_a_damaged_chunk_is_dropped(tmp_path):
    cache = Cache(tmp_path)
    fill(cache, "x", 1000)
    os.truncate(cache.path("x", "1", 0, 1000), 999)
    assert whole(cache, "x", 1000) is None
    assert cache.counts == {"stored": 1, "damaged": 1} and audit(tmp_path).chunks == 0


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    cache, write = Cache(tmp_path), os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:0]) or _full())
    with pytest.warns(RuntimeWarning, match="No space left"):
        fill(cache, "x", 1000)
    monkeypatch.setattr(os, "write", write)
    assert fill(cache, "y", 1000) == whole(cache, "y", 1000)
    assert audit(tmp_path) == (BLOCK, BLOCK, 1, 0)


def _full() -> int:
    raise OSError(28, "No space left on device")
