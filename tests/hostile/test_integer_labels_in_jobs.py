"""Labels that are integers of a table, through preprocessing: classes in new jobs; earlier jobs
keep what they have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import CliRunner
from helpers.photos import jpeg
from helpers.preprocess.commands import preprocess
from helpers.small_jobs import FORMATS, InlineEngine, recipe

import fastfeed as ff
from fastfeed.cli import app
from fastfeed.cli.open_source import open_source
from fastfeed.errors import ConfigError
from fastfeed.preprocess import Report, open_input, run
from fastfeed.preprocess.inputs.previous_job import open_previous_job
from fastfeed.preprocess.inputs.source_spec import SourceSpec
from fastfeed.preprocess.job import job as job_module
from fastfeed.storage.storage import Storage

IDS = [7, 55, 1000007, 7]
CLASSES = ("7", "55", "1000007")
SMALL = ("--size", "24", "--shard-samples", "6")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        job_module,
        "engine_for",
        lambda engine, *_: InlineEngine() if isinstance(engine, str) else engine,
    )
    write()


def write(ids: list[int] = IDS) -> None:
    Path("photos").mkdir(exist_ok=True)
    for i in range(len(ids)):
        Path(f"photos/{i}.jpg").write_bytes(jpeg(i, (40, 56)))
    rows = "".join(f"{i}.jpg,{k}\n" for i, k in enumerate(ids))
    Path("photos/t.csv").write_text(f"path,label\n{rows}")


def job(**options: Any) -> Report:
    return run(
        SourceSpec("photos/t.csv", **options), "shards", recipe(samples=2), engine=InlineEngine()
    )


def labels(source: Any) -> list[int]:
    return source.label(np.arange(len(source))).tolist()


def files() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path("shards").glob("shard-*")}


@pytest.mark.parametrize("format", FORMATS)
def test_shards_have_classes(format: str) -> None:
    report = run("photos/t.csv", "shards", recipe(format), engine=InlineEngine())
    assert report.classes == CLASSES
    manifest = json.loads(Path("shards/__job/manifest.json").read_text())
    assert manifest["classes"] == list(CLASSES)
    opened = open_previous_job("shards", Storage())
    assert opened is not None and opened.source.classes == CLASSES
    assert labels(opened.source) == [0, 1, 2, 0]


def test_shards_in_feeds() -> None:
    job()
    tar = ff.TarShards("shards/*.tar", columns=["json"], classes=CLASSES)
    assert labels(tar) == labels(ff.TarShards("shards/*.tar")) == [0, 1, 2, 0]
    texts = [row["json"]["class"] for row in tar.extra_columns(range(4))]
    assert texts == ["7", "55", "1000007", "7"]
    run("photos/t.csv", "records", recipe("tfrecord"), engine=InlineEngine())
    assert labels(ff.TFRecords("records/*.tfrecord")) == [0, 1, 2, 0]
    named = ff.TFRecords("records/*.tfrecord", label="image/class/text", classes=CLASSES)
    assert (labels(named), named.classes) == ([0, 1, 2, 0], CLASSES)


def test_a_labels_file_of_a_folder() -> None:
    Path("l.csv").write_text("path,label\n" + "".join(f"{i}.jpg,{k}\n" for i, k in enumerate(IDS)))
    assert open_input("photos", labels_file="l.csv").source.classes == CLASSES
    assert open_input("photos", labels_file="l.csv", label_kind="index").source.classes == ()


def test_show_opens_a_table_with_classes() -> None:
    for labeled in (True, False):
        source = open_source("photos/t.csv", "label", [], labeled=labeled)
        assert (source.classes, labels(source)) == (CLASSES, [0, 1, 2, 0])


def test_indices_stay_as_they_are() -> None:
    assert job(label_kind="index").classes == ()
    assert labels(ff.TarShards("shards/*.tar")) == IDS


def test_an_earlier_job_keeps_its_labels() -> None:
    """Earlier versions wrote integers as they are."""
    job(label_kind="index")
    before = files()
    assert job().complete and files() == before
    Path("shards/__job/records/shard-000001.json").unlink()
    Path("shards/shard-000001.tar").unlink()
    assert job().complete and files() == before
    assert labels(ff.TarShards("shards/*.tar")) == IDS
    assert preprocess("resume", "photos/t.csv", "shards")[0] == 0 and files() == before


def test_a_job_with_classes_keeps_them() -> None:
    job(label_kind="name")
    before = files()
    write([*IDS, 55, 8])
    run("photos/t.csv", "shards", recipe(samples=2), engine=InlineEngine(), append=True)
    assert {name: files()[name] for name in before} == before
    assert labels(ff.TarShards("shards/*.tar")) == [0, 1, 2, 0, 1, 3]


@pytest.mark.parametrize(("was", "now"), [("index", "name"), ("name", "index")])
def test_the_other_kind_is_refused(was: Any, now: Any) -> None:
    job(label_kind=was)
    with pytest.raises(ConfigError) as caught:
        job(label_kind=now)
    words = {"index": "indices, as they are", "name": "class names"}[was]
    line = (
        f"labels: this job takes integers for {words}; pass label_kind='{was}' (--label-kind {was})"
    )
    assert line in str(caught.value)


def test_an_opened_input_of_the_other_kind_is_refused() -> None:
    job(label_kind="index")
    with pytest.raises(ConfigError, match="this job takes integers for indices"):
        run(open_input("photos/t.csv"), "shards", recipe(samples=2), engine=InlineEngine())


def test_a_kind_for_a_folder_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="label_kind is for shards and tables, got 'index' for the folder photos"
    ):
        open_input("photos", label_kind="index")
    with pytest.raises(ConfigError, match=r"^preprocess: label_kind must be 'name'"):
        open_input("photos/t.csv", label_kind="ids")  # type: ignore[arg-type]


def test_on_the_command_line() -> None:
    assert preprocess("photos/t.csv", "named", *SMALL)[0] == 0
    assert preprocess("photos/t.csv", "raw", *SMALL, "--label-kind", "index")[0] == 0
    assert [labels(ff.TarShards(f"{place}/*.tar")) for place in ("named", "raw")] == [
        [0, 1, 2, 0],
        IDS,
    ]
    code, said = preprocess("photos/t.csv", "raw", *SMALL, "--label-kind", "name")
    assert code == 2 and "(--label-kind index)" in said and "for indices, as they are" in said
    code, said = preprocess("photos/t.csv", "other", *SMALL, "--label-kind", "ids")
    assert code == 2 and said.startswith(
        "--label-kind must be 'name', 'index' or 'multi', got 'ids'"
    )
    for words, said in (((), "of 3 classes"), (("--label-kind", "index"), "4 images\n")):
        done = CliRunner().invoke(
            app, ["show", "photos/t.csv", "--label", "label", "--size", "16", *words]
        )
        assert done.exit_code == 0 and said in done.output
