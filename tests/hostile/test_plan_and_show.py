"""`fastfeed plan` and `fastfeed show` of what lies around: small folders, tables, shards of any
kind.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.commands import CliRunner
from helpers.photos import jpeg
from helpers.preprocess.commands import preprocess
from helpers.records import record_folder
from helpers.remotes import uploaded
from helpers.shards import shard_folder
from helpers.tables import write
from PIL import Image

from fastfeed.cli import app
from fastfeed.errors import ConfigError
from fastfeed.sources import TFRecords
from fastfeed.sources.detect import detect_kind


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "160"})
    if done.exception is not None:
        raise done.exception
    return done.output


@pytest.fixture
def photos(tmp_path):
    for i in range(12):
        path = tmp_path / "photos" / "ab"[i % 2] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(i, (24, 32)))
    return tmp_path / "photos"


@pytest.fixture
def table(photos):
    paths = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.jpg"))
    return write(photos / "list.csv", {"path": paths, "label": [path[0] for path in paths]})


def test_a_small_folder_is_planned_without_a_number_no_one_asked_for(photos):
    found = json.loads(run("plan", photos, "--json"))
    assert found["ranks"] == 8 and found["global_batch"] == 8
    sizes = sum(path.stat().st_size for path in photos.rglob("*.jpg"))
    read = found["bytes_per_rank"]["mean"] * 8 / (8 * found["steps"]) * 12
    assert read == pytest.approx(sizes)
    with pytest.raises(ConfigError, match="got 128 samples per step"):
        run("plan", photos, "--batch", 128)


def test_bytes_of_folders_and_tables_are_measured(photos, table):
    for source in (photos, table):
        out = run("plan", source, "-w", 2, "-b", 2)
        row = next(line for line in out.splitlines() if line.startswith("bytes per rank"))
        assert " 0 bytes" not in out and row.split()[-1] in ("kB", "bytes")
        assert "each sample is a separate file" in out
        assert "shards per rank" not in out


def test_bytes_that_are_not_known_are_said_to_be_unknown(tmp_path):
    gone = write(tmp_path / "t.csv", {"path": [f"{i}.jpg" for i in range(8)]})
    out = run("plan", gone, "-w", 2, "-b", 2)
    assert "unknown" in next(line for line in out.splitlines() if line.startswith("bytes per rank"))
    assert json.loads(run("plan", gone, "-w", 2, "-b", 2, "--json"))["bytes_per_rank"] is None


@pytest.mark.parametrize(
    "name",
    [
        "train-*-of-01024",
        "gs://b/train-*-of-01024",
        "train-{00000..01023}-of-01024",
        "train-00000-of-00002",
    ],
)
def test_names_of_tfrecords_without_an_extension(name):
    assert detect_kind(name) == "tfrecord"


def test_names_that_look_like_them():
    assert detect_kind("train-00000-of-00002.parquet") == "table"
    assert detect_kind("photos-of-2019/cats") == "folder"
    assert detect_kind("best-of-2019") == "folder"


@pytest.mark.parametrize("command", ["plan", "index"])
def test_tfrecords_without_an_extension(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for k, path in enumerate(sorted(record_folder(tmp_path / "r", (3, 3)).glob("*.tfrecord"))):
        path.rename(tmp_path / f"train-{k:05d}-of-00002")
    assert "TFRecords" in run(command, "train-*-of-00002")


def test_shows_shards_and_tables(tmp_path, photos, table):
    shards = shard_folder(tmp_path / "shards", [3, 3])
    records = record_folder(tmp_path / "records", (3, 3))
    for source, said in (
        (shards / "*.tar", "TarShards"),
        (records, "TFRecords"),
        (table, "Table"),
        (photos, "ImageFolder"),
    ):
        out = run("show", source, "--out", tmp_path / "sheet.png", "-n", 4, "--size", 32)
        assert said in out and "4 samples of epoch 0" in out
        with Image.open(tmp_path / "sheet.png") as sheet:
            assert len(np.unique(np.asarray(sheet.convert("RGB")).reshape(-1, 3), axis=0)) > 20
    grid = run(
        "show",
        shards / "*.tar",
        "--ops",
        "RandomFlip()",
        "--out",
        tmp_path / "ops.png",
        "--size",
        32,
    )
    assert "1 rows" in grid or "1 row" in grid


def test_shows_what_a_source_leaves_out(tmp_path):
    shards = shard_folder(tmp_path / "shards", [3, 3])
    path = shards / "s-001.tar"
    path.write_bytes(path.read_bytes()[:1500])
    for words in (
        ("plan", shards / "*.tar", "-w", 1, "-b", 1),
        ("show", shards / "*.tar", "--out", tmp_path / "sheet.png", "-n", 2, "--size", 32),
    ):
        out = run(*words)
        assert "s-001.tar: " in out and "see .notes" not in out


def split_names(folder, start="train-"):
    """TFRecords called as TensorFlow's scripts and TensorFlow Datasets call them."""
    for k, path in enumerate(sorted(record_folder(folder, (3, 3, 3)).glob("*.tfrecord"))):
        path.rename(folder / f"{start}{k:05d}-of-00003")
    return folder


@pytest.mark.parametrize("start", ["train-", "imagenet-train.tfrecord-"])
def test_a_folder_of_tfrecords_without_an_extension(tmp_path, start):
    folder = split_names(tmp_path / "r", start)
    (folder / "dataset_info.json").write_text("{}")
    (folder / "labels.txt").write_text("x")
    assert detect_kind(str(folder)) == "tfrecord"
    source = TFRecords(folder)
    assert len(source) == 9
    assert source.notes == [f"left out 1 other entry of {folder}: labels.txt"]
    assert "9 images" in run("show", folder, "--out", tmp_path / "sheet.png", "-n", 2, "--size", 32)
    code, said = preprocess(str(folder), str(tmp_path / "out"), "--size", "16")
    assert code == 0 and "9 images" in said


def test_a_pattern_of_local_files_is_what_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(split_names(tmp_path / "r"))
    for pattern in ("train-*", "t*", "train-0000?-of-*", "{train,train}-*", "file://train-*"):
        assert detect_kind(pattern) == "tfrecord"
    assert "TFRecords" in run("plan", "train-*", "-w", 1, "-b", 1)
    (tmp_path / "r" / "train-notes").write_text("x")
    assert (
        detect_kind("train-*") == detect_kind("nothing-*") == detect_kind("train-{0..") == "folder"
    )
    (tmp_path / "r" / "photos-1").mkdir()
    assert detect_kind("photos-*") == "folder"
    (tmp_path / "r" / "a-1.csv").write_text("path\n")
    assert detect_kind("a-*") == "table"


def test_a_remote_folder_of_them(tmp_path):
    folder = split_names(tmp_path / "r")
    assert len(TFRecords(uploaded(folder))) == 9
