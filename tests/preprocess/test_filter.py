"""Samples that `where` or a function of the user drops: which, when, and where they are listed."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import command_line
from helpers.small_jobs import InlineEngine
from PIL import Image

import fastfeed as ff
from fastfeed.decode.base import DecodeFailure
from fastfeed.errors import ConfigError, FastfeedError
from fastfeed.preprocess import (
    Encoding,
    Limits,
    Metadata,
    Packing,
    Recipe,
    Scaling,
    Selection,
    run,
    update,
)
from fastfeed.preprocess.inputs.source_spec import SourceSpec
from fastfeed.preprocess.pixels.transform import Transformer
from fastfeed.preprocess.planning.estimate import estimate
from fastfeed.preprocess.reports.statistics import statistics, summary
from fastfeed.preprocess.reports.status import job_status
from fastfeed.preprocess.shard.build import _ShardBuilder
from fastfeed.preprocess.shard.images import SampleImages
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.target import open_target
from fastfeed.sources.folder import ImageFolder

MODULE = """
import numpy as np
from fastfeed.preprocess import Drop

def number(sample):
    return int(sample.uri.split(".")[0])

def score(samples):
    return [{"score": np.float32(number(s))} for s in samples]

def gaps(samples):
    values = {0: None, 1: float("nan"), 2: np.float32("nan")}
    return [{"score": values.get(number(s), 1.0)} for s in samples]

def forgets(samples):
    return [{} if s.uri == "3.png" else {"score": 1.0} for s in samples]

def misspelled(samples):
    return [{"scor": 1.0} for s in samples]

def raises(samples):
    return [1 // 0 for s in samples]

def infinite(samples):
    more = [1.5, float("-inf"), {"a": float("nan")}]
    return [{"score": float("inf"), "more": more, "low": np.float32("-inf")} for s in samples]

def array(samples):
    return [{"score": np.ones(1)} for s in samples]

def drop(samples):
    return [Drop("blurred") if number(s) < 3 else {"sharp": 1} for s in samples]

def directions(samples):  # three of them
    return [{"clip": np.eye(3, dtype=np.float32)[number(s) % 3]} for s in samples]

def one_drop(samples):
    return Drop("all")

def drop_class(samples):
    return [Drop for _ in samples]

def no_reason(samples):
    return [Drop("") for _ in samples]
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """11 images of 40 x (30 + i) pixels, a broken one, and a table about them."""
    (tmp_path / "filters.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("filters", None)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    Path("photos").mkdir()
    rows: list[list[Any]] = [["path", "animal", "country", "score"]]
    for i in range(11):
        Image.fromarray(rng.integers(0, 256, (40, 30 + i, 3), np.uint8)).save(f"photos/{i}.png")
        rows.append([f"{i}.png", "ab"[i % 2], ("ch", "fr", "it")[i % 3], "" if i == 4 else i / 10])
    Path("photos/11.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    rows.append(["11.png", "a", "ch", 0.9])
    with open("photos.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    return tmp_path


def job(where="", function="", dst="shards", columns=("country", "score"), **engine):
    recipe = Recipe(
        Scaling(24),
        Encoding("png"),
        Limits(where=where),
        Packing(samples=5),
        metadata=Metadata(extras=function and f"filters:{function}", extras_batch=4),
    )
    names = {"image": "path", "label": "animal", "columns": columns, "labels_file": "photos.csv"}
    return run(SourceSpec("photos", **names), dst, recipe, **engine or {"engine": InlineEngine()})


def kept(dst="shards") -> list[int]:
    source = ff.TarShards(f"{dst}/*.tar", label=None, columns=["json"])
    values = source.columns(np.arange(len(source)))["json"] if len(source) else []
    return sorted(int(value["uri"].split(".")[0]) for value in values)


def listed(dst="shards") -> dict[int, tuple[str, str]]:
    rows = [json.loads(line) for line in Path(dst, "__job/bad.jsonl").read_text().splitlines()]
    return {int(Path(row["uri"]).stem): (row["reason"], row["detail"]) for row in rows}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("width >= 35", range(5, 11)),
        ("aspect < 1.25", range(3, 11)),
        ("country in ('ch', 'fr') and width > 36", [7, 9, 10]),
        ("score > 0.55", range(6, 11)),  # 4 has none
        ("score is None or score < 0.2", [0, 1, 4]),
        ("class_name == 'b' and label == 1", [1, 3, 5, 7, 9]),
        ("uri == '7.png' or format != 'PNG'", [7]),
    ],
)
def test_samples_for_which_the_condition_holds_are_kept(place, where, expected):
    report = job(where)
    assert report.complete and kept() == list(expected)
    assert sum(report.dropped.values()) + report.tally.samples + len(report.bad) == 12
    out = listed()
    assert sorted(out) == sorted({*range(12)} - {*expected})
    assert set(Counter(reason for reason, _ in out.values())) <= {"dropped", "truncated"}


def test_the_first_part_that_does_not_hold_is_the_reason(place):
    report = job("score > 0.2 and width < 39")
    assert report.dropped == {
        "where score > 0.2": 3,
        "where score > 0.2 (a value is missing)": 1,
        "where width < 39": 2,
    }
    assert listed()[4] == ("dropped", "where score > 0.2 (a value is missing)")
    assert "dropped 6: 3 where score > 0.2, 2 where width < 39, 1 where" in str(report)


def test_nothing_is_read_or_decoded_that_is_decided_before(place, monkeypatch):
    read: list[str] = []
    decoded: list[int] = []
    read_files = ImageFolder.read
    pixels = Transformer._pixels

    def noting_files(self, ids):
        read.extend(Path(self.uri(i)).stem for i in ids)
        return read_files(self, ids)

    def noting_widths(self, blob, info, *rest):
        decoded.append(info.width)
        return pixels(self, blob, info, *rest)

    monkeypatch.setattr(ImageFolder, "read", noting_files)
    monkeypatch.setattr(Transformer, "_pixels", noting_widths)
    job("country == 'ch' and width > 33")
    assert sorted(map(int, read)) == [0, 3, 6, 9, 11] and sorted(decoded) == [36, 39]


def test_scores_of_a_function_are_known_after_it(place):
    report = job("score > 3 and width < 39", "score", columns=("country",))
    assert report.complete and kept() == list(range(4, 9))
    assert report.dropped == {"where score > 3": 4, "where width < 39": 2}


def test_missing_scores_and_nan_are_neither_above_nor_below(place):
    report = job("score > 0.5 or score <= 0.5", "gaps", columns=())
    assert kept() == list(range(3, 11))
    assert report.dropped == {"where score > 0.5 or score <= 0.5 (a value is missing)": 3}
    job("score is None", "gaps", "nulls", columns=())
    columns = ff.TarShards("nulls/*.tar", columns=["json"])
    values = columns.columns(np.arange(len(columns)))["json"]
    assert [value["columns"] for value in values] == [{"score": None}] * 3


def test_a_column_of_the_source_counts_not_what_the_function_returns_instead(place):
    job("score > 0.55", "score")
    assert kept() == list(range(6, 11))


def test_a_sample_without_the_value_is_bad_alone(place):
    report = job("score > 0.5", "forgets", columns=())
    (bad,) = [bad for bad in report.bad if bad.reason == "internal"]
    assert Path(bad.uri).name == "3.png" and "where needs 'score', which nothing gave" in bad.detail
    assert not report.dropped


@pytest.mark.parametrize(
    ("where", "function", "message"),
    [
        ("score > 0.5", "array", r"compares an array of float64 \(1,\) with number 0.5"),
        ("", "one_drop", "must return one mapping or Drop per sample, 4 here, got a single object"),
        ("", "drop_class", "must return mappings of names to values, or Drop, got type"),
        ("", "no_reason", "Drop: reason must be a text of 1 to 200 characters, got ''"),
    ],
)
def test_functions_that_are_wrong_end_the_job(place, where, function, message):
    with pytest.raises(ConfigError, match=message):
        job(where, function, columns=())


def test_unknown_names_are_refused_before_anything_is_written(place):
    with pytest.raises(ConfigError) as error:
        job("width > 5 and scor > 0.5")
    assert (
        "there is no column 'scor', only width, height, aspect, bytes, format, uri, label,"
        " class_name, text and the columns country, score;" in str(error.value)
    )
    assert f"\n  width > 5 and scor > 0.5\n  {' ' * 14}^" in str(error.value)
    assert not Path("shards/__job/plan.json").exists()


@pytest.mark.parametrize("workers", ["inline", pytest.param("processes", marks=pytest.mark.slow)])
def test_unknown_names_are_refused_before_the_plan_also_with_a_function(place, workers):
    engine = {"engine": InlineEngine()} if workers == "inline" else {"workers": 1}
    with pytest.raises(ConfigError, match=r"no column 'score', only .* and the columns scor;"):
        job("width > 5 and score > 0.5", "misspelled", columns=(), **engine)
    with pytest.raises(
        ConfigError, match=r"no column 'scors', only .* columns country, score, shar"
    ):
        job("scors > 0.5", "drop", **engine)
    assert not Path("shards/__job/plan.json").exists()
    with pytest.raises(ConfigError, match="raised ZeroDivisionError"):
        job("score > 0.5", "raises", columns=(), **engine)
    assert Path("shards/__job/plan.json").exists(), "nothing is known of its columns"


def test_numbers_that_json_cannot_hold_are_missing_values(place):
    job("", "infinite", columns=())
    source = ff.TarShards("shards/*.tar", label=None, columns=["json"])
    (columns,) = {json.dumps(m["columns"]) for m in source.columns(np.arange(11))["json"]}
    assert json.loads(columns) == {"score": None, "more": [1.5, None, {"a": None}], "low": None}
    assert kept() == list(range(11))


def test_a_repair_knows_the_columns_of_the_job_in_the_source(place):
    job("", "score", columns=())
    recipe = Recipe(Scaling(12), limits=Limits(where="score >= 2"))
    with pytest.MonkeyPatch.context() as storage:
        make = SampleImages.make

        def slow(task: SampleImages, i: int, *arguments: Any) -> Any:
            return DecodeFailure("timeout", "") if i in (1, 5) else make(task, i, *arguments)

        storage.setattr(SampleImages, "make", slow)
        storage.setattr(_ShardBuilder, "unread", lambda *_: {})
        run("shards", "again", recipe, engine=InlineEngine())
    report = update("shards", "again", repair=True, engine=InlineEngine())
    assert report.selection[0].startswith("1 image repaired"), "the other is dropped for its score"


def test_columns_of_an_earlier_job_are_known(place):
    job("", "drop")
    recipe = Recipe(Scaling(12), limits=Limits(where="sharp == 1 and country == 'fr'"))
    report = run("shards", "again", recipe, engine=InlineEngine())
    assert report.complete and kept("again") == [4, 7, 10]
    wrong = Recipe(limits=Limits(where="scores > 0"))
    with pytest.raises(ConfigError, match="columns country, score, sharp;"):
        run("shards", "wrong", wrong, engine=InlineEngine())


def test_a_function_drops_samples_with_its_reason(place):
    report = job("", "drop")
    assert report.complete and kept() == list(range(3, 11))
    assert report.dropped == {"blurred": 3} and [bad.reason for bad in report.bad] == ["truncated"]
    assert {i: listed()[i] for i in range(3)} == dict.fromkeys(range(3), ("dropped", "blurred"))


def test_dropped_samples_are_counted_apart_and_never_too_many(place):
    progress: list[Any] = []
    report = job("score < 0.3", max_bad=1, engine=InlineEngine(), on_progress=progress.append)
    assert report.complete and sum(report.dropped.values()) == 9 and not report.bad
    assert progress[-1].dropped == 9 and not progress[-1].bad
    state = open_job(open_target("shards"))
    assert ("dropped", "9: 8 where score < 0.3, 1 where score < 0.3 (a value is missing)") in (
        job_status(state).rows()
    )
    assert ("dropped", "9, listed in __job/bad.jsonl") in summary(statistics(state))
    manifest = json.loads(Path("shards/__job/manifest.json").read_text())
    assert manifest["dropped"] == 9 and manifest["bad"] == {}


def test_bytes_depend_on_neither_workers_nor_interruption_nor_parts(place):
    condition = "score > 0.1 and width != 36 and sharp == 1"
    job(condition, "drop", workers=1)
    job(condition, "drop", "parts", engine=InlineEngine(), part=(1, 3))
    job(condition, "drop", "parts", engine=InlineEngine(), part=(0, 3))
    Path("parts/__job/records/shard-000001.json").unlink()
    Path("parts/shard-000001.tar").unlink()
    job(condition, "drop", "parts", engine=ThreadPoolExecutor(1))
    names = [*sorted(p.name for p in Path("shards").glob("*.*")), "__job/bad.jsonl"]
    assert len(names) == 7
    for name in names:
        assert Path("shards", name).read_bytes() == Path("parts", name).read_bytes(), name


def test_a_job_with_another_condition_is_another_job(place):
    job("score > 0.1")
    with pytest.raises(ConfigError, match=r"limits\.where: 'score > 0\.1' -> 'score > 0\.2'"):
        job("score > 0.2")


def test_command(place):
    where = ("--where", "width > 35 and sharp == 1", "--with", "filters:drop")
    done = command_line("preprocess", "photos", "shards", "--size", "24", "-w", "1", *where)
    assert done.returncode == 0 and "dropped 6: 6 where width > 35" in done.stdout, done.stderr
    assert kept() == list(range(6, 11))
    wrong = command_line("preprocess", "photos", "other", "--where", "width >= wide")
    assert (
        wrong.returncode == 2
        and "--where is wrong at character 10: there is no column" in wrong.stderr
    )


def test_gpus_are_for_functions_on_ray(place):
    with pytest.raises(
        ConfigError, match=r'gpus_per_worker is for engine "ray".* got 1 for .local'
    ):
        job("", "drop", engine="local", gpus_per_worker=1)
    with pytest.raises(ConfigError, match="got 1 and no function; leave it out"):
        job(engine="ray:local", gpus_per_worker=1)


def test_an_estimate_calls_no_function(place):
    source = SourceSpec("photos").open()
    recipe = Recipe(Scaling(24), limits=Limits(where="width > 34 and score > 1"))
    recipe = replace(recipe, metadata=Metadata(extras="no_such_module:score"))
    estimated = estimate(source, recipe, InlineEngine())
    assert estimated.sampled == 12 and dict(estimated.bad) == {"truncated": 1}
    known = replace(recipe, limits=Limits(where="width > 34"))
    assert estimate(source, known, InlineEngine()).bad == {"truncated": 1, "dropped": 5}


def test_a_column_that_a_sample_of_an_earlier_job_lacks_is_missing(place):
    assert job("", "forgets", columns=()).complete
    recipe = Recipe(Scaling(24), limits=Limits(where="score > 0.5"))
    report = run("shards", "again", recipe, engine=InlineEngine())
    assert report.dropped == {"where score > 0.5 (a value is missing)": 1}


def embedded(name, directions, **more):
    """A table of images in Parquet, with an embedding in the plane for each: an angle, or None."""
    vectors = [
        None if angle is None else [math.cos(angle), math.sin(angle)] for angle in directions
    ]
    rows = {"image": [Path(f"photos/{i}.png").read_bytes() for i in range(len(vectors))]}
    pq.write_table(pa.table({**rows, "clip": vectors, **more}), name)


SEMANTIC = Selection(dedupe="semantic", embedding="clip", similarity=0.99)  # of 8 degrees


def numbers(dst="shards"):
    shards = ff.TarShards(f"{dst}/*.tar", label=None, columns=["json"])
    metadata = shards.columns(np.arange(len(shards)))["json"]
    assert all(sample["columns"].keys() == {"n"} for sample in metadata), "embeddings are not kept"
    return [sample["columns"]["n"] for sample in metadata]


def test_images_with_similar_embeddings_are_left_out(place):
    # the largest is kept, the last of them: 4 is like 5, but 3 is like 4 alone, which is not kept
    embedded("table.parquet", [0.0, 0.05, 2.0, 1.0, 1.1, 1.2, None, 3.0], n=[*range(8)])
    source = SourceSpec("table.parquet", image="image", columns=["n"])
    report = run(source, "shards", Recipe(Scaling(24), choice=SEMANTIC), engine=InlineEngine())
    assert report.complete and report.left_out == {"duplicate_semantic": 2}
    assert numbers() == [1, 2, 3, 5, 6, 7]
    lines = Path("shards/__job/duplicates.jsonl").read_text().splitlines()
    pairs = {pair["dropped"][-1]: pair for pair in map(json.loads, lines)}
    assert pairs["0"]["cosine"] == pytest.approx(math.cos(0.05), abs=1e-6)
    assert pairs["0"]["kept"].endswith("1") and pairs["4"]["kept"].endswith("5")
    assert "cosine 0.999" in Path("shards/__job/duplicates.html").read_text()
    again = run(source, "shards", Recipe(Scaling(24), choice=SEMANTIC), engine=InlineEngine())
    assert again.complete and not again.shards_now and not again.notes


def test_what_the_condition_drops_is_no_reason_to_drop_another(place):
    embedded("table.parquet", [0.0, 0.05, 1.0, 1.05], n=[0, 1, 2, 3])
    source = SourceSpec("table.parquet", image="image", columns=["n"])
    recipe = Recipe(Scaling(24), limits=Limits(where="n != 1 and width < 33"), choice=SEMANTIC)
    report = run(source, "shards", recipe, engine=InlineEngine())
    assert numbers() == [0, 2] and report.dropped == {"where n != 1": 1, "where width < 33": 1}
    assert not report.left_out


def test_embeddings_of_an_earlier_job(place):
    function = "filters:directions"
    first = Recipe(Scaling(24), metadata=Metadata(extras=function))
    assert run("photos", "shards", first, engine=InlineEngine()).complete
    choice = Selection(dedupe="semantic", embedding="clip.npy", similarity=0.99)
    report = run("shards", "again", Recipe(Scaling(12), choice=choice), engine=InlineEngine())
    assert report.complete and report.left_out == {"duplicate_semantic": 8}
    assert report.tally.samples == 3


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"dedupe": "semantic"}, "needs embedding"),
        ({"embedding": "clip"}, "got dedupe='none', embedding='clip'"),
        ({"similarity": 1.5}, r"similarity must be in \(0, 1\], a cosine, got 1.5"),
        ({"similarity": 0.0}, r"similarity must be in \(0, 1\]"),
        ({"similarity": float("nan")}, r"similarity must be in \(0, 1\]"),
    ],
)
def test_semantic_choices_that_do_not_fit(choice, message):
    with pytest.raises(ConfigError, match=message):
        Selection(**choice)


def test_a_column_of_embeddings_that_is_not_there(place):
    embedded("table.parquet", [0.0, 0.05])
    recipe = Recipe(Scaling(24), choice=replace(SEMANTIC, embedding="vector"))
    with pytest.raises(FastfeedError, match="vector"):
        run(SourceSpec("table.parquet", image="image"), "shards", recipe, engine=InlineEngine())
    with pytest.raises(ConfigError, match="for the folder photos; pass labels_file"):
        run("photos", "shards", recipe, engine=InlineEngine())
    assert not Path("shards/__job/plan.json").exists()
