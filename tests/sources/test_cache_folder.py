"""The cache of indexes and tables: bounded, the oldest first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.shards import shard_folder

from fastfeed.cli.doctor.command import collect, sections
from fastfeed.errors import ConfigError
from fastfeed.sources import TarShards
from fastfeed.sources.cache_folder import cache_limit, cache_size, trim_cache


def file(folder: Path, name: str, size: int, used: int) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (used, used))
    return path


def test_what_was_used_longest_ago_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTFEED_CACHE_LIMIT", "250B")
    other = file(tmp_path, "index/other.txt", 1000, 0)
    names = ["index/0.ffindex", "tables/1.ffarrays", "index/2.ffindex", "tables/3.ffarrays"]
    files = [file(tmp_path, name, 100, k) for k, name in enumerate(names)]
    assert cache_size(tmp_path) == 400
    trim_cache(tmp_path, files[0])
    assert [path.exists() for path in files] == [True, False, False, True] and other.exists()
    monkeypatch.setenv("FASTFEED_CACHE_LIMIT", "1B")
    trim_cache(tmp_path, files[3])
    assert [path.exists() for path in files] == [False, False, False, True]


def test_a_source_keeps_the_cache_below_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "cache"))
    old = file(tmp_path / "cache", "tables/0.ffarrays", 5000, 0)
    monkeypatch.setenv("FASTFEED_CACHE_LIMIT", "4KiB")
    shards = shard_folder(tmp_path / "data", (2,))
    assert len(TarShards(f"{shards}/*.tar")) == 2 and not old.exists()


def test_doctor_shows_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path))
    file(tmp_path, "index/0.ffindex", 160_000_000, 0)
    machine = dict(dict(sections(collect()))["Machine"])
    assert machine["cache"] == f"0.2 of 20 GB of indexes and tables in {tmp_path}"


def test_a_limit_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTFEED_CACHE_LIMIT", "much")
    with pytest.raises(ConfigError, match="FASTFEED_CACHE_LIMIT must be"):
        cache_limit()
