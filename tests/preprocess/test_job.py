"""Jobs from end to end: what is there is not done again, what was asked for is what is there, bytes
are the same.
"""

from __future__ import annotations

import errno
import json
import os
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.photos import jpeg
from helpers.preprocess.outcomes import photographs, tree
from helpers.small_jobs import InlineEngine
from PIL import Image

import fastfeed as ff
from fastfeed import preprocess
from fastfeed.errors import ConfigError, TargetError, TooManyFailures
from fastfeed.preprocess import Encoding, Limits, Packing, Progress, Recipe, Scaling, Selection, run
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.model.record import REASONS
from fastfeed.preprocess.model.task import Task

RECIPE = Recipe(Scaling(48), packing=Packing(samples=8))


class Here:
    """An engine of the user's own: this process, pieces last first, and a note of which were
    done.
    """

    def __init__(self, fail_after: int = 1000) -> None:
        self.done: list[int] = []
        self._left = fail_after

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        for piece in reversed(pieces):
            if not self._left:
                yield Outcome(piece, error=TargetError("no space left on device", errno.ENOSPC))
                return
            self._left -= 1
            self.done.append(piece)
            yield from InlineEngine().run(task, [piece])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photographs(tmp_path_factory.mktemp("source") / "photographs", 60, bad=3)


@pytest.fixture(scope="module")
def done(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job."""
    folder = tmp_path_factory.mktemp("done") / "shards"
    report = run(str(source), folder, RECIPE, workers=1)
    assert report.complete and report.shards == 8 and report.tally.samples == 57
    return folder


def test_what_a_job_leaves_behind(done: Path, source: Path) -> None:
    shards = ff.TarShards(str(done))
    assert (
        len(shards) == 57
        and shards.classes == ()
        and set(shards.label(range(57)).tolist()) == {0, 1}
    )
    manifest = json.loads((done / "__job/manifest.json").read_text())
    assert manifest["classes"] == ["class0", "class1"]
    assert manifest["samples"] == 57 and manifest["bad"] == {"truncated": 3}
    bad = [json.loads(line) for line in (done / "__job/bad.jsonl").read_text().splitlines()]
    assert sorted(Path(row["uri"]).name for row in bad) == [
        "photo057.jpg",
        "photo058.jpg",
        "photo059.jpg",
    ]
    assert all(Path(row["uri"]).is_relative_to(source) for row in bad)
    # where TarShards keeps its index
    names = {path.name for path in done.iterdir()} - {".fastfeed"}
    assert names == {"__job"} | {
        f"shard-{k:06d}.{suffix}" for k in range(8) for suffix in ("tar", "idx")
    }


@pytest.mark.parametrize(
    "how",
    [
        "2 workers",
        pytest.param("4 workers", marks=pytest.mark.slow),
        pytest.param("executor", marks=pytest.mark.slow),
        "last first",
    ],
)
def test_the_same_bytes_from_any_engine(done: Path, source: Path, tmp_path: Path, how: str) -> None:
    if how == "executor":
        with ThreadPoolExecutor(2) as pool:
            run(str(source), tmp_path / "shards", RECIPE, engine=pool)
    elif how == "last first":
        run(str(source), tmp_path / "shards", RECIPE, engine=Here())
    else:
        run(str(source), tmp_path / "shards", RECIPE, workers=int(how[0]), memory="1GB")
    assert tree(tmp_path / "shards") == tree(done)


def test_what_is_there_is_not_done_again(done: Path, source: Path, tmp_path: Path) -> None:
    engine, told = Here(), list[Progress]()
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*.tar")}
    report = run(str(source), done, RECIPE, engine=engine, on_progress=told.append)
    assert report.complete and report.shards_now == 0 and engine.done == []
    assert told[-1].shards_before == told[-1].shards == 8
    assert {path: path.stat().st_mtime_ns for path in done.rglob("*.tar")} == before


def test_parts_make_the_whole(done: Path, source: Path, tmp_path: Path) -> None:
    engines = [Here(), Here(), Here()]
    for i in (2, 0, 1):
        report = run(str(source), tmp_path / "shards", RECIPE, engine=engines[i], part=(i, 3))
    assert report.complete
    assert [sorted(engine.done) for engine in engines] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert tree(tmp_path / "shards") == tree(done)


def test_a_full_disk_keeps_what_is_done(done: Path, source: Path, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no space left"):
        run(str(source), tmp_path / "shards", RECIPE, engine=Here(fail_after=3))
    assert len(list((tmp_path / "shards").glob("*.tar"))) == 3
    engine = Here()
    assert run(str(source), tmp_path / "shards", RECIPE, engine=engine).complete
    assert sorted(engine.done) == [0, 1, 2, 3, 4], "the last three were there"
    assert tree(tmp_path / "shards") == tree(done)


def test_another_recipe_is_refused_with_the_difference(done: Path, source: Path) -> None:
    other = Recipe(Scaling(64), Encoding("jpeg", 80), packing=Packing(samples=8))
    with pytest.raises(ConfigError) as error:
        run(str(source), done, other, engine=Here())
    assert "scaling.size: 48 -> 64" in str(error.value) and "encoding.quality: 90 -> 80" in str(
        error.value
    )


def test_another_source_is_refused(done: Path, source: Path, tmp_path: Path) -> None:
    with pytest.raises(TargetError):
        run(str(source), tmp_path / "shards", RECIPE, engine=Here(fail_after=1))
    other = photographs(tmp_path / "other", 30)
    with pytest.raises(ConfigError, match=r"holds a job of .* with 60 images; .* has 30 now"):
        run(str(other), tmp_path / "shards", RECIPE, engine=Here())


def test_photographs_that_came_later_are_not_part_of_the_job(
    done: Path, source: Path, tmp_path: Path
) -> None:
    own = photographs(tmp_path / "own", 60, bad=3)
    with pytest.raises(TargetError):
        run(str(own), tmp_path / "shards", RECIPE, engine=Here(fail_after=4))
    (own / "class0" / "new.jpg").write_bytes(jpeg(99))
    (own / "class0" / "photo000.jpg").write_bytes(jpeg(98, (91, 120)))
    report = run(str(own), tmp_path / "shards", RECIPE, engine=Here())
    assert report.complete and report.reasons == {"truncated": 3, "changed": 1}
    assert report.tally.samples == 56


def test_retry_builds_the_shards_of_a_reason_again(source: Path, tmp_path: Path) -> None:
    own = photographs(tmp_path / "own", 24)
    lost = own / "class0" / "photo004.jpg"
    content = lost.read_bytes()
    target = tmp_path / "shards"
    with pytest.raises(TargetError):
        run(str(own), target, RECIPE, engine=Here(fail_after=0))
    lost.unlink()
    assert run(str(own), target, RECIPE, engine=Here()).reasons == {"not_found": 1}
    lost.write_bytes(content)
    engine = Here()
    assert run(str(own), target, RECIPE, engine=engine, retry=["truncated"]).reasons == {
        "not_found": 1
    }
    assert engine.done == []
    report = run(str(own), target, RECIPE, engine=engine, retry=["not_found"])
    assert engine.done == [0] and not report.bad and report.tally.samples == 24
    whole = tmp_path / "whole"
    run(str(own), whole, RECIPE, engine=Here())
    assert tree(target) == tree(whole)


def test_too_many_bad_ones_stop_the_run(source: Path, tmp_path: Path) -> None:
    bad = photographs(tmp_path / "bad", 24, bad=14)
    with pytest.raises(
        TooManyFailures,
        match=r"images are bad, more than max_bad \(--max-bad\) allows \(4\): \d+ truncated",
    ):
        run(str(bad), tmp_path / "shards", RECIPE, engine=Here(), max_bad=4)
    with pytest.raises(TooManyFailures):
        run(str(bad), tmp_path / "shards", RECIPE, engine=Here(), max_bad=0.5)
    assert run(str(bad), tmp_path / "shards", RECIPE, engine=Here(), max_bad=0.9).complete


def test_limits_are_reasons(source: Path, tmp_path: Path) -> None:
    own = photographs(tmp_path / "own", 8)
    (own / "class0" / "tiny.jpg").write_bytes(jpeg(1, (20, 30)))
    (own / "class1" / "long.jpg").write_bytes(jpeg(2, (60, 400)))
    recipe = Recipe(Scaling(48), limits=Limits(min_side=40, max_aspect=3))
    report = run(str(own), tmp_path / "shards", recipe, engine=InlineEngine())
    assert report.reasons == {"too_small": 1, "aspect": 1} and report.tally.samples == 8


def test_duplicates_and_a_split(source: Path, tmp_path: Path) -> None:
    own = photographs(tmp_path / "own", 40)
    for k in range(5):
        os.link(own / "class0" / f"photo{2 * k:03d}.jpg", own / "class0" / f"twin{k}.jpg")
    recipe = Recipe(
        Scaling(48),
        packing=Packing(samples=16),
        choice=Selection(val=0.3, dedupe="exact", shuffle=1),
    )
    report = run(str(own), tmp_path / "shards", recipe, engine=InlineEngine())
    assert report.left_out == {"duplicate_exact": 5} and report.tally.samples == 40
    train, val = (ff.TarShards(str(tmp_path / "shards" / part)) for part in ("train", "val"))
    assert len(train) + len(val) == 40 and 4 <= len(val) <= 20
    assert (tmp_path / "shards" / "__job" / "duplicates.jsonl").read_text().count("\n") == 5


def test_a_target_that_is_not_empty_is_left_alone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"is not empty: it holds mine\.txt"):
        run(str(source), tmp_path, RECIPE)
    assert os.listdir(tmp_path) == ["mine.txt"]
    with pytest.raises(ConfigError, match="must not overlap"):
        run(str(source), source / "shards", RECIPE)


def test_a_split_keeps_what_looks_alike_on_one_side(tmp_path: Path) -> None:
    own = photographs(tmp_path / "own", 40)
    for k in range(0, 40, 2):  # the same picture, once more and smaller
        twin = Image.open(own / "class0" / f"photo{k:03d}.jpg").resize((100, 75))
        twin.save(own / "class1" / f"twin{k:03d}.jpg", quality=85)
    recipe = Recipe(Scaling(48), packing=Packing(samples=64), choice=Selection(val=0.4))
    run(str(own), tmp_path / "looks", recipe, engine=InlineEngine())
    sides = {
        side: {Path(json.loads(meta)["uri"]).stem[-3:] for meta in metas(tmp_path / "looks" / side)}
        for side in ("train", "val")
    }
    assert sides["train"] and sides["val"] and not sides["train"] & sides["val"]
    by_names = replace(recipe, choice=Selection(val=0.4, split_by="names"))
    run(str(own), tmp_path / "names", by_names, engine=InlineEngine())
    assert not (tmp_path / "names" / "__job" / "survey").exists()


def metas(folder: Path) -> list[bytes]:
    """The JSON of every sample."""
    found = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            found += [
                tar.extractfile(member).read() for member in tar if member.name.endswith(".json")
            ]  # type: ignore[union-attr]
    return found


@pytest.mark.slow
def test_every_bad_image_ends_in_the_shards_or_in_the_list(data: Path, tmp_path: Path) -> None:
    report = run(
        data / "bad-images",
        tmp_path / "shards",
        replace(RECIPE, packing=Packing(samples=150)),
        workers=2,
    )
    files = sum(path.is_file() for path in (data / "bad-images").rglob("*"))
    assert report.complete and report.tally.samples + len(report.bad) == files
    assert report.tally.samples > 0.4 * files and set(report.reasons) <= set(REASONS)
    listed = [
        json.loads(line)["reason"]
        for line in (tmp_path / "shards" / "__job/bad.jsonl").read_text().splitlines()
    ]
    assert Counter(listed) == report.reasons


def test_the_earlier_name_of_selection() -> None:
    with pytest.warns(DeprecationWarning, match="Choice is called Selection"):
        assert preprocess.Choice is preprocess.Selection  # type: ignore[attr-defined]
