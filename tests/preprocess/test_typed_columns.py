"""Metadata columns of any type: from each kind of source, in each format, read by its libraries."""

from __future__ import annotations

import gc
import hashlib
import io
import json
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.photos import folder, jpeg
from helpers.preprocess.libraries import streaming, tensorflow
from helpers.preprocess.one_column import json_lines, one_column, pictures
from helpers.preprocess.outcomes import tree
from helpers.preprocess.packing import files, write
from helpers.small_jobs import IN_TURN, InlineEngine, recipe

import fastfeed as ff
from fastfeed.preprocess import Packing, merge, open_input, run, update
from fastfeed.preprocess.model.record import Entry
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.target import open_target

UTC = timezone.utc
COUNT = 4
# of each type: values in Arrow, and the same as JSON holds them
VALUES: dict[str, tuple[pa.Array, list[Any]]] = {
    "keywords": (pa.array([["red", "ü"], None, [], ["one"]]), [["red", "ü"], None, [], ["one"]]),
    "day": (
        pa.array([date(2024, 1, 5), None, date(1, 1, 1), date(9999, 12, 31)]),
        ["2024-01-05", None, "0001-01-01", "9999-12-31"],
    ),
    "taken": (
        pa.array([datetime(2024, 1, 5, 10, 0, 0, 5), None, None, None], pa.timestamp("us")),
        ["2024-01-05T10:00:00.000005", None, None, None],
    ),
    "uploaded": (
        pa.array([None, datetime(2024, 1, 5, tzinfo=UTC), None, None], pa.timestamp("ms", "UTC")),
        [None, "2024-01-05T00:00:00.000Z", None, None],
    ),
    "price": (
        pa.array([Decimal("12.50"), None, Decimal("-0.05"), Decimal(3)], pa.decimal128(10, 2)),
        ["12.50", None, "-0.05", "3.00"],
    ),
    "facts": (
        pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}, {"a": -3, "b": None}]),
        [{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}, {"a": -3, "b": None}],
    ),
    "flag": (pa.array([True, None, False, True]), [True, None, False, True]),
    "stock": (pa.array([7, None, -1, 0]), [7, None, -1, 0]),
    "large": (pa.array([2**60 + 1, None, 3, 4]), [2**60 + 1, None, 3, 4]),
    "score": (pa.array([0.5, None, float("nan"), 2.0]), [0.5, None, None, 2.0]),
    "marks": (pa.array([[1, 2, 3], [4], None, []]), [[1, 2, 3], [4], None, []]),
    "mask": (
        pa.array([b"\xff\x00\x01", None, b"text", b"\x89PNG"]),
        [b"\xff\x00\x01", None, b"text", b"\x89PNG"],
    ),
    "title": (pa.array(["é", "b", "c", "d"]), ["é", "b", "c", "d"]),
}
NAMES = list(VALUES)
WANTED: list[dict[str, Any]] = [
    {name: values[row] for name, (_, values) in VALUES.items()} for row in range(COUNT)
]


def table(root: Path) -> Path:
    root.mkdir(exist_ok=True, parents=True)
    paths = []
    for row in range(COUNT):
        (root / f"{row}.jpg").write_bytes(jpeg(row, (40, 56)))
        paths.append(f"{row}.jpg")
    columns: dict[str, Any] = {name: values for name, (values, _) in VALUES.items()}
    pq.write_table(pa.table({"path": paths, **columns}), root / "t.parquet")
    return root / "t.parquet"


def built(root: Path, format: str, **options: Any) -> Path:
    data = open_input(str(table(root / "data")), columns=NAMES, **options)
    report = run(data, root / "shards", recipe(format, samples=3), engine=InlineEngine())
    assert report.tally.samples == COUNT
    return root / "shards"


def metadata(shards: Path, format: str) -> list[dict[str, Any]]:
    """Columns of all samples, without bytes, as their metadata has them."""
    return [json.loads(meta)["columns"] for meta in metas(shards, format)]


def metas(shards: Path, format: str) -> list[str]:
    if format == "raw":
        files = sorted(shards.glob("*.meta.jsonl"))
        lines = [line for file in files for line in file.read_text().splitlines()]
        return [json.dumps(json.loads(line)["meta"]) for line in lines]
    if format == "parquet":
        return pq.read_table(shards).column("meta").to_pylist()
    sources: dict[str, Any] = {
        "webdataset": lambda: ff.TarShards(f"{shards}/*.tar", label=None, columns=["json"]),
        "tfrecord": lambda: ff.TFRecords(
            f"{shards}/*.tfrecord", label=None, columns=["image/meta"]
        ),
        "mds": lambda: ff.MDSShards(shards, label=None, columns=["meta"]),
    }
    source = sources[format]()
    ((values),) = source.columns(np.arange(len(source))).values()
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


def without_bytes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name != "mask"} for row in rows]


@pytest.mark.parametrize("format", IN_TURN)
def test_metadata_has_all_columns_through_two_jobs(tmp_path: Path, format: str) -> None:
    first = built(tmp_path, format)
    assert metadata(first, format) == without_bytes(WANTED)
    if format == "raw":  # holds pixels, which no job reads
        return
    for other in ("webdataset", "tfrecord", "parquet", "mds", "raw"):
        again = tmp_path / other
        run(str(first), again, recipe(other, samples=2), engine=InlineEngine())
        assert metadata(again, other) == without_bytes(WANTED)
        assert masks(again, other) == [row["mask"] or b"" for row in WANTED]
        assert (
            open_job(open_target(again, writes=False)).plan.columns
            == open_job(open_target(first, writes=False)).plan.columns
        )
        originals = [json.loads(meta) for meta in metas(again, other)]
        assert [meta["uri"] for meta in originals] == [f"{k}.jpg" for k in range(COUNT)]
        assert [meta["sha256"] for meta in originals] == [
            hashlib.sha256((tmp_path / f"data/{k}.jpg").read_bytes()).hexdigest()
            for k in range(COUNT)
        ]
        assert {(meta["source_height"], meta["source_width"]) for meta in originals} == {(40, 56)}


def masks(shards: Path, format: str) -> list[bytes]:
    """The column of bytes, as this package's sources return it."""
    sources: dict[str, Any] = {
        "webdataset": lambda: ff.TarShards(f"{shards}/*.tar", label=None, columns=["mask:bytes"]),
        "tfrecord": lambda: ff.TFRecords(
            f"{shards}/*.tfrecord", label=None, columns=["mask:bytes"]
        ),
        "parquet": lambda: ff.Table(shards, image="image", columns=["mask"]),
        "mds": lambda: ff.MDSShards(shards, label=None, columns=["mask"]),
        "raw": lambda: ff.RawShards(shards, columns=["mask"]),
    }
    source = sources[format]()
    return [value or b"" for value in source.columns(np.arange(len(source)))["mask"].tolist()]


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
def test_webdataset_reads_columns(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset", reason="no webdataset; pip install webdataset")
    shards = built(tmp_path, "webdataset")
    urls = [str(path) for path in sorted(shards.glob("*.tar"))]
    data = wds.WebDataset(urls, shardshuffle=False)
    samples = list(data.decode())
    del data
    gc.collect()  # it leaves its files open
    assert [sample["json"]["columns"] for sample in samples] == without_bytes(WANTED)
    assert [sample.get("mask") for sample in samples] == [row["mask"] for row in WANTED]


BY_TENSORFLOW = """
rows = []
for record in tf.data.TFRecordDataset(sys.argv[1:]):
    features = tf.train.Example.FromString(record.numpy()).features.feature
    row = {}
    for name, feature in features.items():
        if not name.startswith("image/"):
            kind = feature.WhichOneof("kind")
            values = getattr(feature, kind).value
            row[name] = [kind, [v.hex() if isinstance(v, bytes) else v for v in values]]
    rows.append(row)
json.dump(rows, sys.stdout)
"""


def test_tensorflow_reads_columns(tmp_path: Path) -> None:
    shards = built(tmp_path, "tfrecord")
    rows = json.loads(tensorflow(BY_TENSORFLOW, *sorted(shards.glob("*.tfrecord"))))
    kinds = {
        "flag": "int64",
        "stock": "int64",
        "large": "int64",
        "marks": "int64",
        "score": "float",
    }
    for row, wanted in zip(rows, WANTED, strict=True):
        expected = {}
        for name, value in wanted.items():
            if value is None:
                continue
            items: list[Any] = value if isinstance(value, list) else [value]
            if isinstance(value, dict):
                items = [json.dumps(value, separators=(",", ":"), sort_keys=True)]
            if name not in kinds:
                items = [(i if isinstance(i, bytes) else i.encode()).hex() for i in items]
            expected[name] = [f"{kinds.get(name, 'bytes')}_list", items]
        assert row == expected


def test_arrow_reads_columns_in_types_of_parquet(tmp_path: Path) -> None:
    shards = built(tmp_path, "parquet")
    found = pq.read_table(shards)
    for name, (values, _) in VALUES.items():
        wanted: Any = values if name != "score" else pa.array([0.5, None, None, 2.0])
        assert found.column(name).type == wanted.type
        assert found.column(name).combine_chunks().equals(wanted), name


def test_streaming_reads_columns(tmp_path: Path) -> None:
    shards = built(tmp_path, "mds")
    program = """
from streaming import LocalDataset
local = LocalDataset(sys.argv[1])
for shard in local.shards:
    shard.validate(allow_unsafe_types=False)
rows = []
for i in range(len(local)):
    sample = local[i]
    rows.append({n: sample[n].hex() if isinstance(sample[n], bytes) else sample[n] for n in sys.argv[2:]})
json.dump(rows, sys.stdout)
"""
    rows = json.loads(streaming(program, str(shards), *NAMES, folder=tmp_path))
    texts = ("day", "taken", "uploaded", "price", "title")
    for row, wanted in zip(rows, WANTED, strict=True):
        expected = {name: value or "" if name in texts else value for name, value in wanted.items()}
        assert row == expected | {"mask": (wanted["mask"] or b"").hex()}


def test_numpy_and_json_read_columns_of_raw_shards(tmp_path: Path) -> None:
    shards = built(tmp_path, "raw")
    lines = (shards / "shard-000000.meta.jsonl").read_text().splitlines()
    assert [json.loads(line).get("bytes", {}).get("mask") for line in lines] == [
        "/wAB",
        None,
        "dGV4dA==",
    ]
    assert len(np.load(shards / "shard-000000.npy")) == len(lines) == 3


def test_sources_of_this_package_read_columns(tmp_path: Path) -> None:
    names = [name for name in NAMES if name not in ("mask", "score", "flag", "stock", "large")]
    empty = [{name: row[name] if row[name] is not None else "" for name in names} for row in WANTED]
    for format in ("parquet", "mds", "tfrecord", "raw"):
        shards = built(tmp_path / format, format)
        sources: dict[str, Any] = {
            "tfrecord": lambda s=shards: ff.TFRecords(f"{s}/*.tfrecord", label=None, columns=names),
            "parquet": lambda s=shards: ff.Table(s, image="image", columns=names),
            "mds": lambda s=shards: ff.MDSShards(s, label=None, columns=names),
            "raw": lambda s=shards: ff.RawShards(s, columns=names),
        }
        columns = sources[format]().columns(np.arange(COUNT))
        for row, wanted in enumerate(empty):
            for name in names:
                value = columns[name][row]
                expected = wanted[name]
                value = value.tolist() if isinstance(value, np.ndarray) else value
                if format == "tfrecord" and isinstance(expected, dict):
                    value = json.loads(value)
                if format == "tfrecord" and isinstance(expected, list) and len(expected) < 2:
                    continue  # a feature of one value is that value, one of none is missing
                assert value == expected, (format, name, row)


@pytest.mark.parametrize("format", IN_TURN)
def test_updates_copy_columns(tmp_path: Path, format: str) -> None:
    shards = built(tmp_path, format)
    place = str(tmp_path / "data/t.parquet")
    source = open_input(place, columns=NAMES)
    update(source, shards, remove=["1.jpg"], engine=InlineEngine())
    copied = tree(shards)
    for record in (shards / "__job/records").iterdir():
        record.unlink()
    run(source, shards, recipe(format, samples=3), engine=InlineEngine())
    assert tree(shards) == copied
    assert masks(shards, format) == [row["mask"] or b"" for row in (*WANTED[:1], *WANTED[2:])]


def test_json_lines_of_structs(tmp_path: Path) -> None:
    place = json_lines(tmp_path / "d", [{"a": [1]}, {"b": {"c": True}}, None])
    one_column(tmp_path, place)
    assert pq.read_table(tmp_path / "shards").column("v").to_pylist() == [
        {"a": [1], "b": None},
        {"a": None, "b": {"c": True}},
        None,
    ]


def test_names_of_other_parts_are_in_the_metadata_only(tmp_path: Path) -> None:
    pictures(tmp_path / "d")
    (tmp_path / "d/t.csv").write_text("path,width,text\n0.jpg,7,a\n")
    data = open_input(str(tmp_path / "d/t.csv"), caption="", columns=["width", "text"])
    run(data, tmp_path / "shards", recipe("parquet"), engine=InlineEngine())
    found = pq.read_table(tmp_path / "shards")
    assert found.column_names.count("width") == 1
    assert metadata(tmp_path / "shards", "parquet") == [{"text": "a", "width": 7}]


def test_jobs_of_earlier_versions_keep_their_columns(tmp_path: Path) -> None:
    """Their plan has no types: columns are JSON only, integers with gaps fractions."""
    place = json_lines(tmp_path / "d", [1, None, 3])
    one_column(tmp_path, place)
    plan_file = tmp_path / "shards/__job/plan.json"
    job = open_job(open_target(tmp_path / "shards", writes=False))
    assert job.plan.columns == {"v": "int"}
    assert metadata(tmp_path / "shards", "parquet") == [{"v": 1}, {"v": None}, {"v": 3}]
    plan_file.write_bytes(replace(job.plan, columns={}).head)
    (tmp_path / "shards/__job/records/shard-000000.json").unlink()
    one_column(tmp_path, place)
    assert "v" not in pq.read_table(tmp_path / "shards").column_names
    assert '"v":1.0' in metas(tmp_path / "shards", "parquet")[0]


# sums of the files that version 0.2 wrote of these entries, without a column and with plain ones
PINNED = {
    "webdataset": "d15f33c46a073ad5",
    "tfrecord": "660316318525edeb",
    "mds": "d5247c5a181bda39",
    "raw": "12f0c7bb87ef6d5a",
}


@pytest.mark.parametrize("format", PINNED)
def test_shards_without_types_keep_their_bytes(tmp_path: Path, format: str) -> None:
    """Parquet's bytes depend on the version of PyArrow."""
    image = b"image"
    if format == "raw":
        file = io.BytesIO()
        np.save(file, np.arange(6, dtype=np.uint8).reshape(1, 2, 3))
        image = file.getvalue()
    entries = [
        Entry("000000000", image, "jpg", 1, 2, 1, "text", {"uri": "a", "label": 1}),
        Entry("000000001", image, "jpg", 1, 2, None, None, {"uri": "b", "columns": {"n": 1.0}}),
    ]
    write(tmp_path, Packing(format), entries)
    digest = hashlib.sha256(b"".join(files(tmp_path).values())).hexdigest()
    assert digest[:16] == PINNED[format]


def test_a_job_without_columns_has_the_plan_it_had(tmp_path: Path) -> None:
    folder(tmp_path / "s", {"cats": 2, "dogs": 1}, (40, 56))
    run(str(tmp_path / "s"), tmp_path / "d", recipe(), engine=InlineEngine())
    assert "columns" not in json.loads((tmp_path / "d/__job/plan.json").read_text())
    assert "columns" not in json.loads((tmp_path / "d/__job/manifest.json").read_text())


def test_merged_jobs_with_other_classes_keep_columns(tmp_path: Path) -> None:
    jobs = []
    for name, label in (("a", "cat"), ("b", "ant")):
        pictures(tmp_path / name)
        columns = {"path": ["0.jpg"], "label": [label], "mask": [b"\xff"], "tags": [["x", label]]}
        pq.write_table(pa.table(columns), tmp_path / name / "t.parquet")
        data = open_input(str(tmp_path / name / "t.parquet"), columns=["mask", "tags"])
        run(data, tmp_path / f"{name}-job", recipe("mds"), engine=InlineEngine())
        jobs.append(tmp_path / f"{name}-job")
    merge(jobs, tmp_path / "both", duplicates="keep")
    source = ff.MDSShards(tmp_path / "both", columns=["mask", "tags"])
    found = source.columns(np.arange(2))
    assert found["mask"].tolist() == [b"\xff"] * 2
    assert found["tags"].tolist() == [["x", "cat"], ["x", "ant"]]
