"""A job as an Arrow table: what shards and records say, in every format, also before it is done."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.photos import jpeg
from helpers.small_jobs import IN_TURN, InlineEngine, finished_job, recipe, source

from fastfeed.errors import MissingExtra, SourceError
from fastfeed.preprocess import (
    Metadata,
    Packing,
    Recipe,
    Scaling,
    Selection,
    open_input,
    plan_table,
    run,
    update,
)

pa = pytest.importorskip("pyarrow")

NAMES = ["id", "uri", "state", "class", "label", "split", "shard", "position"]
NAMES += ["source_height", "source_width", "source_bytes", "reason", "detail"]


@pytest.mark.parametrize("format", IN_TURN)
def test_every_format(tmp_path: Path, format: str) -> None:
    job = finished_job(tmp_path, format)
    table = plan_table(tmp_path / "shards")
    assert table.schema.names == NAMES and table.num_rows == 21
    rows = {row["id"]: row for row in table.to_pylist()}
    assert sorted(rows) == list(range(21))
    suffix = Path(job.records[0].files[0].name).suffix
    for record in job.records.values():
        for position, i in enumerate(record.ids):
            row = rows[i]
            file = tmp_path / "source" / row["uri"]
            assert row["class"] == file.parent.name == job.plan.classes[row["label"]]
            assert row["source_bytes"] == file.stat().st_size
            assert (row["source_height"], row["source_width"]) == (40, 56)
            assert (row["state"], row["reason"], row["split"]) == ("done", None, None)
            assert (row["shard"], row["position"]) == (f"{record.shard}{suffix}", position)
        for bad in record.bad:
            row = rows[bad.id]
            assert (row["state"], row["reason"]) == ("bad", bad.reason)
            assert (row["class"], row["label"], row["shard"]) == ("cats", None, None)
            assert (tmp_path / "source" / row["uri"]).exists()


def test_a_job_that_is_not_done(tmp_path: Path) -> None:
    job = finished_job(tmp_path)
    job.target.remove("__job/records/shard-000001.json")
    table = plan_table(tmp_path / "shards")
    planned = [row for row in table.to_pylist() if row["state"] == "planned"]
    assert [row["id"] for row in planned] == job.plan.order[6:12].tolist()
    assert {row["uri"] for row in planned} == {row["shard"] for row in planned} == {None}
    assert {row["class"] for row in planned} == {"cats"}
    for name in job.target.files():
        if name.startswith("__job/records/"):
            job.target.remove(name)
    assert set(plan_table(tmp_path / "shards")["state"].to_pylist()) == {"planned"}


def test_removed_images_have_no_row(tmp_path: Path) -> None:
    finished_job(tmp_path)
    places = str(tmp_path / "source"), tmp_path / "shards"
    update(
        *places, remove=["cats/0001.jpg"], relabel={"cats/0002.jpg": "owls"}, engine=InlineEngine()
    )
    (tmp_path / "source" / "cats" / "0000_0.jpg").write_bytes(jpeg(99))
    update(*places, repair=True, engine=InlineEngine())
    rows = {row["uri"]: row for row in plan_table(tmp_path / "shards").to_pylist()}
    assert "cats/0001.jpg" not in rows and len(rows) == 20
    assert (rows["cats/0002.jpg"]["class"], rows["cats/0002.jpg"]["label"]) == ("owls", 2)
    assert rows["cats/0000_0.jpg"]["state"] == "done"
    assert {row["state"] for row in rows.values()} == {"done", "bad"}


def test_splits_buckets_and_full_names(tmp_path: Path) -> None:
    root = source(tmp_path / "source", 12, reasons=())
    by_recipe = Recipe(
        Scaling((32, 32), "buckets", buckets=((32, 32), (32, 48))),
        packing=Packing(samples=6),
        choice=Selection(val=0.3),
        metadata=Metadata(absolute_uri=True),
    )
    run(str(root), tmp_path / "shards", by_recipe, engine=InlineEngine())
    table = plan_table(tmp_path / "shards")
    assert set(table["split"].to_pylist()) == {"train", "val"}
    for row in table.to_pylist():
        assert (
            row["shard"].startswith(f"{row['split']}/32x48/shard-") and Path(row["uri"]).is_file()
        )


def test_metadata_columns_have_types(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for k in range(4):
        (tmp_path / "photos" / f"{k}.jpg").write_bytes(jpeg(k))
    (tmp_path / "photos" / "3.jpg").write_bytes(b"")
    lines = [
        '{"path": "0.jpg", "score": 0.5, "n": 1, "word": "a"}',
        '{"path": "1.jpg", "score": null, "n": 2, "word": ""}',
        '{"path": "2.jpg", "score": 1.5, "n": 3, "word": null}',
        '{"path": "3.jpg", "score": 9.0, "n": 4, "word": "c"}',
    ]
    (tmp_path / "labels.jsonl").write_text("\n".join(lines) + "\n")
    input = open_input(
        str(tmp_path / "photos"),
        labels_file=str(tmp_path / "labels.jsonl"),
        columns=["score", "n", "word"],
    )
    by_recipe = replace(recipe(), packing=Packing(samples=2))
    run(input, tmp_path / "shards", by_recipe, engine=InlineEngine())
    table = plan_table(tmp_path / "shards")
    kind = table.schema.field("columns").type
    assert kind.field("score").type == pa.float64() and kind.field("n").type == pa.int64()
    assert kind.field("word").type == pa.string()
    columns = table["columns"].combine_chunks()
    assert columns.field("score").to_pylist() == [0.5, None, 1.5, None], "the bad one has none"
    assert columns.field("word").to_pylist()[:2] == ["a", ""]


def test_values_of_mixed_types_are_json() -> None:
    from fastfeed.preprocess.reports.arrow_table import _typed

    assert _typed([1, "a", None, [2]]).to_pylist() == ["1", '"a"', None, "[2]"]
    assert _typed([None, None]).type == pa.null()
    assert _typed([1 << 70, 1]).to_pylist() == [str(1 << 70), "1"]


def test_no_job_and_damaged_shards(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="holds no job of fastfeed preprocess"):
        plan_table(tmp_path / "empty")
    finished_job(tmp_path)
    path = tmp_path / "shards" / "shard-000001.tar"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(SourceError):
        plan_table(tmp_path / "shards")
    finished_job(tmp_path / "raw", "raw")
    path = tmp_path / "raw" / "shards" / "shard-000001.meta.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]).ljust(path.stat().st_size))
    with pytest.raises(SourceError, match="shard-000001: its metadata cannot be read: Expecting"):
        plan_table(tmp_path / "raw" / "shards")
    path.write_bytes(b"".join(lines[:-1])[:-1] + b" " * len(lines[-1]) + b"\n")
    with pytest.raises(SourceError, match="shard-000001 holds 5 samples, its record lists 6"):
        plan_table(tmp_path / "raw" / "shards")


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "fastfeed.preprocess.reports.arrow_table", raising=False)
    with pytest.raises(MissingExtra, match=r"plan_table needs PyArrow: .*fastfeed\[parquet\]"):
        plan_table(tmp_path)
