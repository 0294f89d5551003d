"""A job whose source is the output of another: names, sums, sizes and columns of the originals are
kept.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import jpeg
from helpers.small_jobs import InlineEngine

from fastfeed.errors import ConfigError
from fastfeed.preprocess import (
    Encoding,
    Metadata,
    Packing,
    Recipe,
    Scaling,
    Selection,
    open_input,
    run,
)
from fastfeed.preprocess.inputs.source_spec import SourceSpec

NAMES = ["cat/0.jpg", "cat/1.jpg", "dog/2.jpg", "dog/3.jpg"]
FORMATS = ("webdataset", "tfrecord", "parquet", "mds")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for k, name in enumerate(NAMES):
        Path("photos", name).parent.mkdir(parents=True, exist_ok=True)
        Path("photos", name).write_bytes(jpeg(k, (40, 56 + k)))
    rows = [f"{name},{name[:3]},{k / 2},{k}" for k, name in enumerate(NAMES)]
    Path("photos/t.csv").write_text("\n".join(["path,label,score,caption", *rows]) + "\n")


def make(
    source: Any, target: str, format: str = "parquet", scaling: Scaling | None = None, **more: Any
) -> Any:
    image = Encoding("png") if more.pop("png", False) else Encoding(keep_small=True)
    recipe = Recipe(scaling or Scaling(24), image, packing=Packing(format, samples=3), **more)
    return run(source, target, recipe, engine=InlineEngine())


def metas(folder: str) -> list[dict[str, Any]]:
    import pyarrow.dataset as ds

    return [
        json.loads(text)
        for text in ds.dataset(folder).to_table(columns=["meta"])["meta"].to_pylist()
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_known_of_the_originals_is_kept(format: str) -> None:
    make(
        SourceSpec("photos/t.csv", columns=("score",)),
        "first",
        format,
        metadata=Metadata(exif=("time",)),
    )
    report = make(
        "first", "second", scaling=Scaling(mode="none"), metadata=Metadata(exif=("time",))
    )
    assert report.complete and report.classes == ("cat", "dog") and not report.bad
    for k, meta in enumerate(metas("second")):
        original = Path("photos", NAMES[k]).read_bytes()
        assert meta["uri"] == NAMES[k] and meta["class"] == NAMES[k][:3]
        assert meta["sha256"] == hashlib.sha256(original).hexdigest() and meta[
            "source_bytes"
        ] == len(original)
        assert (meta["source_height"], meta["source_width"]) == (40, 56 + k)
        assert meta["box"] == [0.0, 0.0, 40.0, 56.0 + k] and not meta["kept"]
        assert meta["columns"] == {"score": k / 2, "exif_time": None}
    import pyarrow.dataset as ds

    assert ds.dataset("second").to_table(columns=["text"])["text"].to_pylist() == [
        "0",
        "1",
        "2",
        "3",
    ]


def test_a_crop_of_a_crop_has_no_box_and_a_third_job_still_knows_the_first() -> None:
    make("photos", "first", "webdataset")
    make("first", "second", "mds", Scaling(16, "cover"))
    make("second", "third", png=True)
    assert [meta["uri"] for meta in metas("third")] == NAMES
    assert all("box" not in meta or meta["box"] is None for meta in metas("third"))
    assert all(meta["source_width"] >= 56 for meta in metas("third"))


def test_metadata_columns_of_the_second_job_are_added() -> None:
    make(SourceSpec("photos/t.csv", columns=("score",)), "first", "mds")
    make(SourceSpec("first", columns=("height",)), "second")
    assert [meta["columns"] for meta in metas("second")] == [
        {"score": k / 2, "height": 24} for k in range(4)
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_a_job_without_captions_is_a_source(format: str) -> None:
    make("photos", "first", format)
    report = make("first", "second")
    assert report.complete and report.tally.samples == 4
    assert [meta["uri"] for meta in metas("second")] == NAMES


def test_an_interrupted_one_resumes_and_a_val_split_can_be_a_source() -> None:
    make("photos", "first", "webdataset", choice=Selection(val=0.5, split_by="names", split_seed=1))
    folders = [name for name in ("first/train", "first/val") if Path(name).exists()]
    for name in folders:
        report = make(name, name.replace("first", "second").replace("/", "-"))
        assert (
            report.complete
            and make(name, name.replace("first", "second").replace("/", "-")).shards_now == 0
        )


@pytest.mark.parametrize("asked", ["", "caption"])
def test_captions_that_are_numbers_are_texts(asked: str) -> None:
    Path("photos/t.csv").write_text("path,label,caption\ncat/0.jpg,a,1984\ncat/1.jpg,b,2001\n")
    report = make(SourceSpec("photos/t.csv", caption=asked or None), "shards")
    assert report.tally.samples == 2 and not report.bad
    input = open_input("photos/t.csv")
    assert [note["text"] for note in input.notes(np.arange(2))] == ["1984", "2001"]  # type: ignore[index]


def test_a_caption_column_without_captions_is_an_error_only_where_it_was_asked_for() -> None:
    Path("photos/t.csv").write_text("path,label,caption\ncat/0.jpg,a,\ncat/1.jpg,b,\n")
    assert make("photos/t.csv", "shards").tally.samples == 2
    with pytest.raises(ConfigError, match=r"no checked sample of photos/t\.csv has caption"):
        make(SourceSpec("photos/t.csv", caption="caption"), "again")


@pytest.mark.parametrize("file", ["photos/t.csv", "nowhere.csv"])
def test_a_labels_file_is_refused(file: str) -> None:
    make("photos", "first")
    with pytest.raises(
        ConfigError, match=r"labels_file is for folders, first holds the shards of a job: .* photos"
    ):
        make(SourceSpec("first", labels_file=file), "second")
    assert not Path("second/__job").exists()
