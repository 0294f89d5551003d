"""Labels that are lists of classes: from each kind of source, in each format, through updates."""

from __future__ import annotations

import csv
import gc
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import hugging_face
from helpers.photos import folder, jpeg
from helpers.preprocess.libraries import streaming, tensorflow
from helpers.preprocess.outcomes import tree
from helpers.small_jobs import FORMATS, IN_TURN, InlineEngine, recipe

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.preprocess import (
    Limits,
    Recipe,
    Report,
    Selection,
    merge,
    open_input,
    plan_table,
    run,
    update,
)
from fastfeed.preprocess.inputs.source_spec import SourceSpec
from fastfeed.preprocess.model.bad_filter import BadFilter
from fastfeed.preprocess.planning.bad_images import select_bad
from fastfeed.preprocess.reports.preview import draw_cells
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.target import open_target

NAMES = [["red", "ü"], ["one"], [], ["red", "one", "blue"], ["blue"]]
SORTED = [sorted(names) for names in NAMES]
CLASSES = ("blue", "one", "red", "ü")
NUMBERS = [[CLASSES.index(name) for name in names] for names in SORTED]
Make = Any


def table(root: Path, lists: list[list[str]] = NAMES, first: int = 0) -> str:
    """A CSV, its lists as JSON and separated by semicolons in turn."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "t.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "keywords"])
        for k, names in enumerate(lists):
            name = f"{first + k}.jpg"
            (root / name).write_bytes(jpeg(first + k, (40, 56)))
            rows.writerow([name, "; ".join(names) if k % 2 else json.dumps(names)])
    return str(root / "t.csv")


def opened(place: str, **options: Any) -> Any:
    return open_input(place, label="keywords", label_kind="multi", **options)


def built(root: Path, format: str, made: Recipe | None = None) -> Path:
    data = opened(table(root / "data"))
    made = made or recipe(format, samples=3)
    report = run(data, root / "shards", made, engine=InlineEngine())
    assert report.classes == CLASSES
    assert report.tally.samples == len(NAMES)
    return root / "shards"


def source(shards: Path, format: str, classes: tuple[str, ...]) -> Any:
    """The numbers of the classes, read by this package."""
    sources: dict[str, Make] = {
        "webdataset": lambda: ff.TarShards(
            f"{shards}/*.tar", label="label.json", label_kind="multi", classes=classes
        ),
        "tfrecord": lambda: ff.TFRecords(
            f"{shards}/*.tfrecord", label_kind="multi", classes=classes
        ),
        "parquet": lambda: ff.Table(
            shards, image="image", label="label", label_kind="multi", classes=classes
        ),
        "mds": lambda: ff.MDSShards(shards, label_kind="multi", classes=classes),
        "raw": lambda: ff.RawShards(shards, classes=classes),
    }
    return sources[format]()


def by_names(shards: Path, format: str) -> Any:
    sources: dict[str, Make] = {
        "webdataset": lambda: ff.TarShards(
            f"{shards}/*.tar", label="json:class", label_kind="multi"
        ),
        "tfrecord": lambda: ff.TFRecords(
            f"{shards}/*.tfrecord", label="image/class/text", label_kind="multi"
        ),
        "parquet": lambda: ff.Table(shards, image="image", label="class", label_kind="multi"),
        "mds": lambda: ff.MDSShards(shards, label="class", label_kind="multi"),
    }
    return sources[format]()


def names_in(found: Any) -> list[list[str]]:
    labels = found.label(np.arange(len(found)))
    assert labels.dtype == np.float32
    assert labels.shape == (len(found), len(found.classes))
    assert set(np.unique(labels).tolist()) <= {0, 1}
    return [sorted(found.classes[k] for k in np.flatnonzero(row)) for row in labels]


@pytest.mark.parametrize("format", IN_TURN)
def test_shards_are_read_as_multi_hot_vectors(tmp_path: Path, format: str) -> None:
    shards = built(tmp_path, format)
    assert names_in(source(shards, format, CLASSES)) == SORTED
    if format != "raw":
        assert names_in(by_names(shards, format)) == SORTED
        assert all(isinstance(data, bytes) for data in by_names(shards, format).read(range(5)))
    rows = plan_table(shards).select(["class", "label"]).to_pylist()
    assert [row["label"] for row in rows] == NUMBERS
    assert [row["class"] for row in rows] == SORTED
    job = open_job(open_target(shards, writes=False))
    assert [cell.title for cell in draw_cells(job, job.records[0], 2, 16)] == [
        "red, ü  #0",
        "one  #1",
    ]


@pytest.mark.parametrize("format", FORMATS[:-1])
def test_jobs_are_sources_of_jobs(tmp_path: Path, format: str) -> None:
    shards = built(tmp_path, format)
    report = run(str(shards), tmp_path / "again", recipe("raw", 2), engine=InlineEngine())
    assert report.classes == CLASSES
    assert names_in(source(tmp_path / "again", "raw", CLASSES)) == SORTED


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
def test_webdataset_reads_lists(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset", reason="no webdataset; pip install webdataset")
    shards = built(tmp_path, "webdataset")
    urls = [str(path) for path in sorted(shards.glob("*.tar"))]
    data = wds.WebDataset(urls, shardshuffle=False)
    samples = list(data.decode())
    del data
    gc.collect()  # it leaves its files open
    assert [sample["label.json"] for sample in samples] == NUMBERS
    assert [sample["json"]["class"] for sample in samples] == SORTED


BY_TENSORFLOW = """
rows = []
for record in tf.data.TFRecordDataset(sys.argv[1:]):
    kinds = {"image/class/label": tf.io.VarLenFeature(tf.int64), "image/class/text": tf.io.VarLenFeature(tf.string)}
    found = tf.io.parse_single_example(record, kinds)
    numbers, texts = (found[name].values.numpy().tolist() for name in sorted(kinds))
    rows.append([numbers, [text.decode() for text in texts]])
json.dump(rows, sys.stdout)
"""


@pytest.mark.slow  # imports TensorFlow; test_typed_columns has lists of numbers, too
def test_tensorflow_reads_lists(tmp_path: Path) -> None:
    shards = built(tmp_path, "tfrecord")
    rows = json.loads(tensorflow(BY_TENSORFLOW, *sorted(shards.glob("*.tfrecord"))))
    assert rows == [list(row) for row in zip(NUMBERS, SORTED, strict=True)]


def test_arrow_reads_lists(tmp_path: Path) -> None:
    found = pq.read_table(built(tmp_path, "parquet"))
    assert found.schema.field("label").type == pa.list_(pa.int64())
    assert found.schema.field("class").type == pa.list_(pa.string())
    assert found["label"].to_pylist() == NUMBERS
    assert found["class"].to_pylist() == SORTED


@pytest.mark.slow  # imports streaming; test_typed_columns has lists of numbers, too
def test_streaming_reads_lists(tmp_path: Path) -> None:
    shards = built(tmp_path, "mds")
    program = """
from streaming import LocalDataset
local = LocalDataset(sys.argv[1])
json.dump([[local[i]["label"], local[i]["class"]] for i in range(len(local))], sys.stdout)
"""
    rows = json.loads(streaming(program, str(shards), folder=tmp_path))
    assert rows == [list(row) for row in zip(NUMBERS, SORTED, strict=True)]


def test_numpy_reads_lists_of_raw_shards(tmp_path: Path) -> None:
    shards = built(tmp_path, "raw")
    assert np.load(shards / "shard-000000.labels.npy").tolist() == [[2, 3], [1, -1], [-1, -1]]
    assert np.load(shards / "shard-000001.labels.npy").tolist() == [[0, 1, 2], [0, -1, -1]]


def test_lists_of_each_kind_of_source(tmp_path: Path) -> None:
    table(tmp_path)
    paths = [f"{k}.jpg" for k in range(len(NAMES))]
    lines = [json.dumps({"path": p, "keywords": n}) for p, n in zip(paths, NAMES, strict=True)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    pq.write_table(pa.table({"path": paths, "keywords": NAMES}), tmp_path / "t.parquet")
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        for k, names in enumerate(NAMES):
            about = json.dumps({"keywords": names}).encode()
            for name, data in ((f"{k}.jpg", jpeg(k, (40, 56))), (f"{k}.json", about)):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    places: dict[str, Any] = {
        "t.csv": opened(str(tmp_path / "t.csv")),
        "t.jsonl": opened(str(tmp_path / "t.jsonl")),
        "t.parquet": opened(str(tmp_path / "t.parquet")),
        "t.tar": open_input(str(tmp_path / "t.tar"), label="json:keywords", label_kind="multi"),
        "a source": ff.Table(
            tmp_path / "t.parquet", image="path", label="keywords", label_kind="multi"
        ),
    }
    for name, data in places.items():
        shards = tmp_path / f"of {name}"
        report = run(data, shards, recipe("raw"), engine=InlineEngine())
        assert report.classes == CLASSES, name
        assert names_in(source(shards, "raw", CLASSES)) == SORTED, name


def test_lists_of_a_labels_file(tmp_path: Path) -> None:
    photos = folder(tmp_path / "photos", {"a": 2})
    (tmp_path / "t.csv").write_text("path,label\na/0000.jpg,x;y\na/0001.jpg,\n")
    data = open_input(str(photos), labels_file=str(tmp_path / "t.csv"), label_kind="multi")
    report = run(data, tmp_path / "s", recipe("parquet"), engine=InlineEngine())
    assert report.classes == ("x", "y")
    assert [bad.reason for bad in report.bad] == ["label_missing"]
    assert pq.read_table(tmp_path / "s")["class"].to_pylist() == [["x", "y"]]


def test_data_sets_of_hugging_face(tmp_path: Path) -> None:
    tags = {"feature": {"names": ["none", "dog", "cat"], "_type": "ClassLabel"}, "_type": "List"}
    features = hugging_face.FEATURES | {"tags": tags}
    rows = hugging_face.table([0, 1, 2], features)
    rows = rows.append_column("tags", pa.array([[2, 1], [], [2]]))
    path = hugging_face.write_parquet(tmp_path / "a.parquet", rows)
    found = ff.HuggingFace(path, label="tags", label_kind="multi")
    report = run(found, tmp_path / "s", recipe("parquet"), engine=InlineEngine())
    assert report.classes == ("none", "dog", "cat")
    assert pq.read_table(tmp_path / "s")["label"].to_pylist() == [[1, 2], [], [2]]


# -- changes


@pytest.mark.parametrize("format", IN_TURN)
def test_updates_relabel_and_append(tmp_path: Path, format: str) -> None:
    shards = built(tmp_path, format)
    place = str(tmp_path / "data/t.csv")
    (tmp_path / "new.csv").write_text('uri,label\n1.jpg,"[""red"", ""new""]"\n0.jpg,\n')
    report = update(opened(place), shards, relabel=tmp_path / "new.csv", engine=InlineEngine())
    assert report.selection[0] == "2 images relabeled: 1 of 2 shards is written again"
    assert report.classes == (*CLASSES, "new")
    wanted = [[], ["new", "red"], *SORTED[2:]]
    assert names_in(source(shards, format, report.classes)) == wanted
    again = update(opened(place), shards, relabel=tmp_path / "new.csv", engine=InlineEngine())
    assert again.selection[0] == "nothing to change"
    copied = tree(shards)
    for record in (shards / "__job/records").iterdir():
        record.unlink()
    run(opened(place), shards, recipe(format, samples=3), engine=InlineEngine())
    assert tree(shards) == copied  # built from the source with the same edits
    table(tmp_path / "data", [*NAMES, ["zero", "one"]])
    report = update(opened(place), shards, add=True, engine=InlineEngine())
    assert report.classes == (*CLASSES, "new", "zero")
    assert names_in(source(shards, format, report.classes)) == [*wanted, ["one", "zero"]]


def test_updates_in_another_order_give_the_same_bytes(tmp_path: Path) -> None:
    changes = [{"1.jpg": ["red", "one"]}, {"3.jpg": "", "0.jpg": "blue"}]
    trees = []
    for number, commands in enumerate((changes, changes[::-1])):
        shards = built(tmp_path / str(number), "webdataset")
        for relabel in commands:
            data = opened(str(tmp_path / str(number) / "data/t.csv"))
            update(data, shards, relabel=relabel, engine=InlineEngine())
        plan = json.loads((shards / "__job/plan.json").read_text())
        trees.append((tree(shards), plan["edits"]))
    assert trees[0] == trees[1]


def test_labels_of_another_kind_are_refused(tmp_path: Path) -> None:
    shards = built(tmp_path, "raw")
    data = opened(str(tmp_path / "data/t.csv"))
    with pytest.raises(ConfigError, match="relabel must be lists of names of classes"):
        update(data, shards, relabel={"0.jpg": '{"red": 1}'}, engine=InlineEngine())
    photos = folder(tmp_path / "photos", {"a": 2})
    run(str(photos), tmp_path / "one", recipe("raw"), engine=InlineEngine())
    with pytest.raises(ConfigError, match="relabel must be the name of one class"):
        update(str(photos), tmp_path / "one", relabel={"a/0000.jpg": ["b"]})
    with pytest.raises(ConfigError, match="labels: lists of classes in one job alone"):
        merge([shards, tmp_path / "one"], tmp_path / "merged")
    with pytest.raises(ConfigError, match="images of this job have several classes"):
        select_bad(open_job(open_target(shards, writes=False)), BadFilter(classes=("red",)))
    made = replace(recipe("raw"), limits=Limits(where='class_name == "red"'))
    with pytest.raises(ConfigError, match="class_name is of one class, and the images of"):
        run(data, tmp_path / "where", made, engine=InlineEngine())
    with pytest.raises(ConfigError, match="label_kind must be 'name', 'index' or 'multi'"):
        open_input(str(tmp_path / "data/t.csv"), label="keywords", label_kind="value")


def test_a_job_keeps_to_its_kind_of_labels(tmp_path: Path) -> None:
    shards = built(tmp_path, "raw")
    table(tmp_path / "data", [*NAMES, ["red"]])
    place = str(tmp_path / "data/t.csv")
    spec = SourceSpec(place, label="keywords")  # as a command that names the label alone
    report = run(spec, shards, recipe("raw", samples=3), engine=InlineEngine(), append=True)
    assert names_in(source(shards, "raw", report.classes)) == [*SORTED, ["red"]]


def test_merged_jobs_have_the_classes_of_both(tmp_path: Path) -> None:
    reports: list[Report] = []
    lists = ([["cat", "dog"], ["dog"]], [["ant", "dog"], ["cat"]])
    for k, own in enumerate(lists):
        data = opened(table(tmp_path / f"data{k}", own, first=10 * k))
        reports.append(run(data, tmp_path / f"s{k}", recipe("parquet"), engine=InlineEngine()))
    data = opened(str(tmp_path / "data1/t.csv"))
    update(data, tmp_path / "s1", relabel={"11.jpg": ["ant"]}, engine=InlineEngine())
    report = merge([tmp_path / "s0", tmp_path / "s1"], tmp_path / "m")
    assert report.classes == ("cat", "dog", "ant")
    assert names_in(by_names(tmp_path / "m", "parquet")) == [
        ["cat", "dog"],
        ["dog"],
        ["ant", "dog"],
        ["ant"],
    ]
    labels = pq.read_table(tmp_path / "m")["label"].to_pylist()
    assert labels == [[0, 1], [1], [1, 2], [2]]


def test_stratified_splits_count_sets_of_classes(tmp_path: Path) -> None:
    lists = [["a", "b"] if k % 2 else ["a"] for k in range(20)]
    made = replace(
        recipe("parquet"),
        choice=Selection(split={"train": 0.5, "val": 0.5}, stratify=True),
    )
    report = run(opened(table(tmp_path / "d", lists)), tmp_path / "s", made, engine=InlineEngine())
    assert report.tally.samples == 20
    for side in ("train", "val"):
        found = pq.read_table(tmp_path / "s" / side)["class"].to_pylist()
        assert sorted(map(len, found)) == [1] * 5 + [2] * 5
    target = open_target(tmp_path / "s", writes=False)
    assert open_job(target).plan.shares["by_label"] == [[0, 10, 10], [1, 5, 5]]
    data = opened(str(tmp_path / "d/t.csv"))
    update(data, tmp_path / "s", engine=InlineEngine())  # changes nothing
    assert open_job(target).plan.shares["by_label"] == [[0, 10, 10], [1, 5, 5]]


def by_class(root: Path) -> list[list[int]]:
    """Samples of each class in train/ and val/, counted in the shards."""
    counts: dict[int, list[int]] = {}
    for at, side in enumerate(("train", "val")):
        for numbers in pq.read_table(root / side)["label"].to_pylist():
            for k in numbers:
                counts.setdefault(k, [0, 0])[at] += 1
    return [[k, *counts[k]] for k in sorted(counts)]


CHANGES: list[dict[str, Any]] = [
    {"remove": ["1.jpg", "4.jpg"]},
    {"relabel": {"2.jpg": ["a", "c"], "3.jpg": "c", "5.jpg": ""}},
    {"remove": ["3.jpg"], "relabel": {"2.jpg": ["b"]}},
    {"drop_missing": True},
    {"add": True},
    {"remove": ["21.jpg"], "relabel": {"20.jpg": ["a"]}},
    {"repair": True},
]


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5, 6), (4, 3, 2, 0, 6, 5), (6, 1, 0, 3)])
def test_updates_count_the_classes_of_the_samples_that_are_left(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    lists = [["a", "b"] if k % 4 == 1 else ["b"] if k % 4 == 2 else ["a"] for k in range(20)]
    made = replace(recipe("parquet", 4), choice=Selection(split={"train": 0.5, "val": 0.5}))
    place = table(tmp_path / "d", lists)
    bad = tmp_path / "d/7.jpg"
    bad.write_bytes(bytes(len(bad.read_bytes())))
    run(opened(place), tmp_path / "s", made, engine=InlineEngine())
    target = open_target(tmp_path / "s", writes=False)
    for number in order:
        changes = CHANGES[number]
        if "drop_missing" in changes:
            rows = Path(place).read_text().splitlines()
            Path(place).write_text("\n".join([*rows[:7], *rows[8:]]) + "\n")  # without 6.jpg
        if "add" in changes:
            with open(place, "a") as file:
                file.write('20.jpg,b; c\n21.jpg,"[""a""]"\n')
            for k in (20, 21):
                (tmp_path / f"d/{k}.jpg").write_bytes(jpeg(k, (40, 56)))
        if "repair" in changes:
            bad.write_bytes(jpeg(7, (40, 56)))
        report = update(opened(place), tmp_path / "s", engine=InlineEngine(), **changes)
        shares = open_job(target).plan.shares
        planned = by_class(tmp_path / "s")
        if not report.bad:
            assert shares["by_label"] == planned
        else:  # which are counted with the split that they were drawn for
            off = np.array(shares["by_label"]) - planned
            assert [*off[:, 0]] == [0] * len(off) and off[:, 1:].sum() == len(report.bad) == 1
        assert sum(shares["images"].values()) == report.tally.samples + len(report.bad)


def test_lists_without_any_class_are_refused(tmp_path: Path) -> None:
    place = table(tmp_path, [[], [], []])
    with pytest.raises(ConfigError, match=r"got only empty lists; correct the lists, or .*--label"):
        opened(place)


def test_lists_need_the_name_of_their_column(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,caption\na/0000.jpg,x\n")
    message = r"label_kind='multi' needs the name of a label; name .*\(--label\)"
    with pytest.raises(ConfigError, match=message):
        open_input(str(tmp_path / "t.csv"), label_kind="multi")
    photos = folder(tmp_path / "photos", {"a": 1})
    with pytest.raises(ConfigError, match=message):
        open_input(str(photos), labels_file=str(tmp_path / "t.csv"), label_kind="multi")
