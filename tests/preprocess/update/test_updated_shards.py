"""Updated jobs: read by the libraries of their formats, in buckets, by readers that were open."""

from __future__ import annotations

import errno
import gc
import json
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from helpers.photos import jpeg
from helpers.preprocess.libraries import streaming, tensorflow
from helpers.small_jobs import FORMATS, InlineEngine, finished_job, recipe
from helpers.small_jobs import source as make_source

import fastfeed as ff
from fastfeed.errors import TargetError
from fastfeed.preprocess import run, update
from fastfeed.preprocess.reports.verify import verify
from fastfeed.preprocess.targets import local
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.target import open_target

TENSORFLOW = """
kinds = {
    "image/key": tf.io.FixedLenFeature([], tf.string),
    "image/source": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
for record in tf.data.TFRecordDataset(sys.argv[1:]):
    row = tf.io.parse_single_example(record, kinds)
    print(json.dumps([row["image/source"].numpy().decode(), int(row["image/class/label"])]))
"""
MOSAIC = """
from streaming import StreamingDataset
for sample in StreamingDataset(local=sys.argv[1], batch_size=1, validate_hash="sha256"):
    print(json.dumps([sample["uri"], int(sample["label"])]))
"""


def rows(printed: str) -> dict[str, int]:
    return dict(json.loads(line) for line in printed.splitlines() if line.startswith("["))


def by_webdataset(folder: Path) -> dict[str, int]:
    wds = pytest.importorskip("webdataset", reason="no webdataset; pip install webdataset")
    shards = [str(path) for path in sorted(folder.glob("*.tar"))]
    read = list(wds.WebDataset(shards, shardshuffle=False, empty_check=False).decode())
    gc.collect()  # it leaves its files open
    return {sample["json"]["uri"]: sample["cls"] for sample in read}


def by_tensorflow(folder: Path) -> dict[str, int]:
    return rows(tensorflow(TENSORFLOW, *sorted(folder.glob("*.tfrecord"))))


def by_pyarrow(folder: Path) -> dict[str, int]:
    import pyarrow.dataset

    table = pyarrow.dataset.dataset(folder).to_table(["uri", "label"])
    return dict(zip(table["uri"].to_pylist(), table["label"].to_pylist(), strict=True))


def by_mosaic(folder: Path) -> dict[str, int]:
    return rows(streaming(MOSAIC, str(folder), folder=folder.parent))


def by_numpy(folder: Path) -> dict[str, int]:
    read: dict[str, int] = {}
    for path in sorted(folder.glob("*.meta.jsonl")):
        stem = str(path).removesuffix(".meta.jsonl")
        labels = np.load(f"{stem}.labels.npy")
        pixels = np.load(f"{stem}.npy", mmap_mode="r")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(labels) == len(pixels) == len(lines)
        read |= {line["meta"]["uri"]: int(i) for line, i in zip(lines, labels, strict=True)}
    return read


LIBRARIES = {
    "webdataset": by_webdataset,
    "tfrecord": by_tensorflow,
    "parquet": by_pyarrow,
    "mds": by_mosaic,
    "raw": by_numpy,
}
BY_LIBRARIES = [  # to import two of them takes seconds; `test_a_reader_with_an_index_notices`
    pytest.param(name, marks=[pytest.mark.slow] if name in ("tfrecord", "mds") else [])
    for name in FORMATS
]


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
@pytest.mark.parametrize("format", BY_LIBRARIES)
def test_the_format_s_library_reads_every_change(tmp_path: Path, format: str) -> None:
    finished_job(tmp_path, format)
    source = tmp_path / "source"
    shards = tmp_path / "shards"
    (source / "cats/0000_0.jpg").write_bytes(jpeg(70, (40, 56)))
    (source / "dogs/new.jpg").write_bytes(jpeg(71, (40, 56)))
    first = ["cats/0000.jpg", "cats/0001.jpg", "cats/0002.jpg"]  # all of the first shard
    update(
        str(source),
        shards,
        remove=first,
        relabel={"dogs/0001.jpg": "cats", "dogs/0002.jpg": "wolf"},
        repair=True,
        add=True,
        engine=InlineEngine(),
    )
    names = [f"{folder}/000{k}.jpg" for folder in ("cats", "dogs") for k in range(9)]
    wanted = {name: int(name[0] == "d") for name in names if name not in first}
    wanted |= {"dogs/0001.jpg": 0, "dogs/0002.jpg": 2, "cats/0000_0.jpg": 0, "dogs/new.jpg": 1}
    assert LIBRARIES[format](shards) == wanted


@pytest.mark.parametrize(
    ("format", "opened"),
    [
        ("webdataset", lambda folder: ff.TarShards(f"{folder}/*.tar")),
        ("tfrecord", lambda folder: ff.TFRecords(f"{folder}/*.tfrecord")),
        ("mds", lambda folder: ff.MDSShards(str(folder))),
    ],
)
def test_a_reader_with_an_index_notices(tmp_path: Path, format: str, opened: Any) -> None:
    finished_job(tmp_path, format)
    before = opened(tmp_path / "shards")
    assert len(before) == 18
    update(
        str(tmp_path / "source"),
        tmp_path / "shards",
        remove=["dogs/0003.jpg"],
        relabel={"dogs/0004.jpg": "cats"},
        engine=InlineEngine(),
    )
    after = opened(tmp_path / "shards")
    assert len(after) == 17 and sum(after.label(np.arange(17)).tolist()) == 7
    assert all(isinstance(blob, bytes) for blob in after.read(range(17)))


@pytest.mark.parametrize("format", ["webdataset", "mds", "raw"])
def test_a_job_in_a_bucket(tmp_path: Path, format: str) -> None:
    source = make_source(tmp_path / "source")
    place = f"memory://{tmp_path.name}/shards"
    run(str(source), place, recipe(format), engine=InlineEngine())
    report = update(str(source), place, remove=["cats/0003.jpg"], add=True, engine=InlineEngine())
    assert report.complete and report.tally.samples == 17
    assert not verify(open_job(open_target(place, writes=False))).problems
    fsspec.filesystem("memory").rm(f"/{tmp_path.name}", recursive=True)


def test_a_full_disk_leaves_whole_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished_job(tmp_path)
    place = local.LocalTarget.place

    def full(self: local.LocalTarget, attempt: Any, written: Any) -> None:
        if any(file.name == "shard-000002.tar" for file in written):
            raise TargetError("no space left on device", errno.ENOSPC)
        place(self, attempt, written)

    monkeypatch.setattr(local.LocalTarget, "place", full)
    changes = {"remove": ["cats/0000.jpg", "dogs/0001.jpg"], "engine": InlineEngine()}
    with pytest.raises(TargetError, match="no space left"):
        update(str(tmp_path / "source"), tmp_path / "shards", **changes)
    assert len(ff.TarShards(f"{tmp_path}/shards/*.tar")) == 17
    monkeypatch.undo()
    report = update(str(tmp_path / "source"), tmp_path / "shards", **changes)
    assert report.complete and report.tally.samples == 16


def test_a_long_list_of_other_names(tmp_path: Path) -> None:
    finished_job(tmp_path)
    names = [f"other/{k}.jpg" for k in range(20_000)]
    report = update(
        str(tmp_path / "source"),
        tmp_path / "shards",
        remove=[*names, "cats/0000.jpg"],
        ignore_unknown=True,
        engine=InlineEngine(),
    )
    assert report.tally.samples == 17
