"""Named pipes and devices where a file is expected: an error or a bad sample at once, never a
wait.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.mosaic import mds_index
from helpers.shards import shard_folder
from helpers.tables import write

import fastfeed as ff
from fastfeed.errors import FastfeedError
from fastfeed.preprocess import open_input
from fastfeed.preprocess.targets.target import open_target


def quarantine(path: Path) -> object:
    return ff.Feed(ff.Arrays(np.zeros((4, 4, 4, 3), np.uint8)), [], batch=2, quarantine=path)


def cifar(path: Path) -> object:
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        (path.parent / name).symlink_to(path)
    return ff.Arrays.cifar(path.parent)


def mnist(path: Path) -> object:
    (path.parent / "train-images-idx3-ubyte").symlink_to(path)
    return ff.Arrays.mnist(path.parent)


def wids(path: Path) -> object:
    (path.parent / "w.json").write_text('{"wids_version": 1, "shardlist": [{"url": "file"}]}')
    return ff.TarShards(path.parent / "w.json", allow_path=["/"])


def mds(path: Path) -> object:
    (path.parent / "index.json").write_text(mds_index(["file"]))
    return ff.MDSShards(path.parent, allow_path=["/"])


def index_json(path: Path) -> object:
    (path.parent / "index.json").symlink_to(path)
    return ff.MDSShards(path.parent)


def index(path: Path) -> object:
    shard_folder(path.parent / "data", (1,))
    return ff.TarShards(f"{path.parent}/data/*.tar", index=path)


def table(suffix: str) -> Callable[[Path], object]:
    def opened(path: Path) -> object:
        (path.parent / f"t{suffix}").symlink_to(path)
        return ff.Table(path.parent / f"t{suffix}", image="path")

    return opened


def plan(path: Path) -> object:
    (path.parent / "job" / "__job").mkdir(parents=True)
    (path.parent / "job" / "__job" / "plan.json").symlink_to(path)
    return open_input(str(path.parent / "job"))


def target(path: Path) -> object:
    (path.parent / "job").mkdir()
    (path.parent / "job" / "x").symlink_to(path)
    return open_target(str(path.parent / "job"), {}, writes=False).read("x")


def coco(path: Path) -> object:
    return ff.Objects.coco(path.parent, path)


def listing(path: Path) -> object:
    (path.parent / "l.csv").symlink_to(path)
    return ff.ImageFolder(path.parent, listing=path.parent / "l.csv")


OPENERS: list[Any] = [
    quarantine,
    cifar,
    mnist,
    wids,
    mds,
    index_json,
    index,
    table(".csv"),
    table(".jsonl"),
    table(".parquet"),
    plan,
    target,
    coco,
    listing,
    ff.load_state,
    ff.load_ops,
    ff.TarShards,
    ff.TFRecords,
    ff.RawShards,
]


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)
def test_files_that_are_none(
    opener: Callable[[Path], object], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(FastfeedError):
        opener(path)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_images_that_are_none(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    options = {"allow_path": ["/"]}
    for source in (
        ff.Table(write(tmp_path / "t.csv", {"path": ["x.jpg"]}), image="path", **options),
    ):
        (bad,) = source.read([0])
        assert bad.reason == "not_image" and bad.detail == "not a regular file"
