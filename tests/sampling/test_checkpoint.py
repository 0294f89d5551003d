"""Positions in files: whole or as before."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from helpers.feeds import numbers
from helpers.shards import shard_folder

import fastfeed as ff
from fastfeed.errors import StateError


def test_round_trip(tmp_path: Path):
    path = tmp_path / "feed.json"
    with numbers() as feed:
        next(iter(feed))
        ff.save_state(path, feed.state())
        assert ff.load_state(path) == feed.state()
    with numbers() as other:
        other.restore(ff.load_state(path))
        assert other.state()["step"] == 1
    assert os.listdir(tmp_path) == ["feed.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_last_one_stays_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "feed.json"
    ff.save_state(path, {"step": 1})

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        ff.save_state(path, {"step": 2})
    assert json.loads(path.read_text()) == {"step": 1}
    assert os.listdir(tmp_path) == ["feed.json"]


@pytest.mark.parametrize("text", ["", '{"step": 1', "[1]", "\0\0\0"])
def test_what_is_no_state_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "feed.json"
    path.write_text(text)
    with pytest.raises(StateError, match=r"is not a saved state.*save_state"):
        ff.load_state(path)


def test_missing_places_are_named(tmp_path: Path):
    with pytest.raises(StateError, match=r"cannot read a state from .*nowhere"):
        ff.load_state(tmp_path / "nowhere")
    with pytest.raises(StateError, match=r"no folder .*nowhere; create it first"):
        ff.save_state(tmp_path / "nowhere" / "feed.json", {})


def test_a_changed_data_set_is_refused_and_the_change_named(tmp_path: Path):
    def shards(changed: int | None = None) -> ff.TarShards:
        return ff.TarShards(shard_folder(tmp_path / "shards", (20, 20), changed))

    def made(source: ff.TarShards) -> ff.Feed:
        return ff.Feed(source, [ff.Resize((8, 8))], batch=4, threads=1)

    with made(shards()) as feed:
        next(iter(feed))
        saved = feed.state()
    with made(shards(changed=33)) as feed:
        with pytest.raises(
            StateError, match=r"changed: content of samples in 32\.\.34 .*s-001.tar.*strict=False"
        ) as error:
            feed.restore(saved)
        assert "the same: names of samples" in str(error.value)
        feed.restore(saved, strict=False)
        assert feed.state()["step"] == 1
