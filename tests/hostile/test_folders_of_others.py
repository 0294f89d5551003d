"""Folders in /tmp that another user made first, or may write to."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
from helpers.shards import shard_folder

from fastfeed.errors import ConfigError
from fastfeed.live.folder import writable_folder
from fastfeed.sources import TarShards
from fastfeed.sources.cache_folder import cache_folder
from fastfeed.system.folders import private_folder
from fastfeed.system.processes import user


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of a user without a home."""

    def no_home() -> Path:
        raise RuntimeError("no home")

    for name in ("FASTFEED_CACHE", "XDG_CACHE_HOME", "FASTFEED_LIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"fastfeed-{user()}"


def test_a_folder_of_ones_own(temporary: Path) -> None:
    assert cache_folder() == temporary and stat.S_IMODE(temporary.stat().st_mode) == 0o700
    assert cache_folder() == temporary


def another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(0o700)
    monkeypatch.setattr(os, "getuid", lambda: 12345)


def test_another_user_made_it(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = temporary.parent / "fastfeed-12345"
    another_user(folder, monkeypatch)
    with pytest.raises(
        ConfigError, match=r"belongs to user \d+; set FASTFEED_CACHE to a folder of yours$"
    ):
        cache_folder()
    with pytest.raises(PermissionError, match="belongs to user"):
        writable_folder(str(folder))


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_others_may_write_to_it(temporary: Path, mode: int) -> None:
    temporary.mkdir()
    temporary.chmod(mode)
    with pytest.raises(
        ConfigError, match=f"may be written to by others, mode {mode:o}; set FASTFEED_CACHE"
    ):
        cache_folder()
    with pytest.raises(PermissionError):
        writable_folder(str(temporary))


@pytest.mark.parametrize("kind", ["link", "file"])
def test_something_else_lies_there(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    if kind == "link":
        temporary.symlink_to(tmp_path_factory.mktemp("mine"))
    else:
        temporary.touch()
    with pytest.raises(ConfigError, match="is not a folder; set FASTFEED_CACHE"):
        cache_folder()
    with pytest.raises(NotADirectoryError):
        private_folder(str(temporary))


def test_a_source_says_so(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    temporary.mkdir()
    temporary.chmod(0o777)
    folder = shard_folder(tmp_path_factory.mktemp("shards"), (1,))
    with pytest.raises(ConfigError, match="set FASTFEED_CACHE"):
        TarShards(f"{folder}/*.tar")
