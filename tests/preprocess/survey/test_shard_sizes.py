"""Shards by bytes: cut by the plan, of expected sizes, the same wherever and however often it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import jpeg
from helpers.preprocess.outcomes import tree
from helpers.small_jobs import IN_TURN, InlineEngine, recipe
from PIL import Image

from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess import Encoding, Packing, Recipe, Scaling, merge, run
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.model.plan import PLAN
from fastfeed.preprocess.model.task import Task
from fastfeed.preprocess.planning.estimate import ExpectedSizes, _fitted
from fastfeed.preprocess.reports.verify import verify
from fastfeed.preprocess.targets.job_state import Job, load_plan, open_job
from fastfeed.preprocess.targets.target import open_target


def noise(folder: Path, sides: list[int]) -> Path:
    """Squares of noise, as PNG: their files have 3 bytes a pixel and a little more."""
    (folder / "x").mkdir(parents=True, exist_ok=True)
    for i, side in enumerate(sides):
        pixels = np.random.default_rng(i).integers(0, 256, (side, side, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"x/{i:04d}.png")
    return folder


def built(source: Path, place: Path, how: Recipe, append: bool = False) -> Job:
    run(str(source), place, how, engine=InlineEngine(), append=append)
    return open_job(open_target(place, writes=False))


def sizes(job: Job) -> list[int]:
    return [job.records[k].bytes for k in sorted(job.records)]


COPIED = Recipe(
    Scaling(None, "none"),
    Encoding("png", keep_small=True),
    packing=Packing(shard_bytes=200_000),
)


def test_shards_of_copied_files_have_the_bytes(tmp_path: Path) -> None:
    sides = [20 + 7 * (i * 5 % 13) for i in range(60)]
    job = built(noise(tmp_path / "photos", sides), tmp_path / "out", COPIED)
    assert len({len(record.ids) for record in job.records.values()}) > 1
    found = sizes(job)[:-1]
    assert len(found) >= 4 and min(found) > 150_000 and max(found) < 210_000
    fixed, rate = job.plan.rates
    assert abs(rate / 65536 - 1) < 0.05 and fixed < 4000
    assert verify(job).problems == ()


@pytest.mark.parametrize("format", IN_TURN)
def test_shards_of_scaled_images_have_the_bytes(tmp_path: Path, format: str) -> None:
    how = recipe(format)
    how = replace(how, packing=Packing(format, shard_bytes="40kB"))
    source = noise(tmp_path / "photos", [30 + i % 40 for i in range(40)])
    job = built(source, tmp_path / "out", how)
    found = sizes(job)[:-1]
    assert len(found) >= 1 and min(found) > 25_000 and max(found) < 50_000
    assert sum(job.plan.cuts) == 40 and verify(job).problems == ()


class Backwards(InlineEngine):
    """Completes the last piece first, as faster workers may."""

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        return super().run(task, [*reversed(pieces)])


def test_the_plan_is_the_same_in_any_order_of_the_work(tmp_path: Path) -> None:
    source = noise(tmp_path / "photos", [30 + i % 40 for i in range(40)])
    built(source, tmp_path / "once", COPIED)
    run(str(source), tmp_path / "backwards", COPIED, engine=Backwards())
    assert tree(tmp_path / "backwards") == tree(tmp_path / "once")


def test_the_plan_is_the_same_again_and_resumed(tmp_path: Path) -> None:
    source = noise(tmp_path / "photos", [30 + i % 40 for i in range(40)])
    built(source, tmp_path / "once", COPIED)
    job = built(source, tmp_path / "out", COPIED)
    (tmp_path / "out" / job.records[1].files[0].name).unlink()
    built(source, tmp_path / "out", COPIED)
    assert tree(tmp_path / "out") == tree(tmp_path / "once")
    assert (tmp_path / "out" / PLAN).read_bytes() == (tmp_path / "once" / PLAN).read_bytes()


def test_appended_images_get_shards_by_the_same_rates(tmp_path: Path) -> None:
    source = noise(tmp_path / "photos", [30 + i % 40 for i in range(40)])
    before = built(source, tmp_path / "out", COPIED)
    noise(source, [30 + i % 40 for i in range(80)])
    job = built(source, tmp_path / "out", COPIED, append=True)
    assert job.plan.rates == before.plan.rates
    assert job.plan.cuts[: len(before.plan.cuts)] == before.plan.cuts
    assert sum(job.plan.cuts) == 80 and max(sizes(job)) < 210_000
    assert verify(job).problems == ()


def test_jobs_of_shards_by_bytes_are_merged(tmp_path: Path) -> None:
    jobs = []
    for k, first in enumerate((30, 35)):
        source = noise(tmp_path / f"photos{k}", [first + i % 40 for i in range(40)])
        jobs.append(built(source, tmp_path / f"job{k}", COPIED))
    merge([job.target.text for job in jobs], tmp_path / "out")
    merged = open_job(open_target(tmp_path / "out", writes=False))
    assert merged.plan.cuts == (*jobs[0].plan.cuts, *jobs[1].plan.cuts)
    assert sizes(merged) == [*sizes(jobs[0]), *sizes(jobs[1])]
    assert verify(merged).problems == ()


def test_unknown_sizes_count_as_the_mean(tmp_path: Path) -> None:
    source = noise(tmp_path / "photos", [30 + i % 40 for i in range(40)])
    rows = [f"x/{i:04d}.png" for i in range(40)]
    (source / "table.csv").write_text("\n".join(["path", *rows]) + "\n")
    job = built(source / "table.csv", tmp_path / "out", COPIED)
    assert sum(job.plan.cuts) == 40 and len({*job.plan.cuts[:-1]}) <= 2


def test_a_shard_holds_at_least_one_image_and_ends_with_its_folder() -> None:
    how = replace(COPIED, packing=Packing(shard_bytes=100))
    expected = ExpectedSizes(how, (10, 1 << 16), np.array([500, 20, 20, 20, 20, 20, 90, 90]))
    order = np.array([0, 1, 2, 3, 4, 5, 6, 7])
    assert expected.cuts(order, [("train", 3), ("val", 5)]) == (1, 2, 3, 1, 1)


@pytest.mark.parametrize(
    ("points", "rates"),
    [
        ([], (1, 0)),
        ([(2, 0, 500), (1, 0, 250)], (250, 0)),
        ([(2, 2000, 2600), (2, 4000, 4600), (1, 3000, 3300)], (300, 1 << 16)),
        ([(2, 1000, 900), (2, 3000, 700)], (400, 0)),  # larger files, smaller images
        ([(1, 100, 50), (1, 300, 160)], (1, 34734)),  # nothing is fixed: x.y / x.x
    ],
)
def test_rates_are_those_of_the_closest_line(
    points: list[tuple[int, int, int]], rates: tuple[int, int]
) -> None:
    assert _fitted(points) == rates


def test_wrong_sizes_and_plans_are_refused(tmp_path: Path) -> None:
    for value, text in [
        ("256", "shard_bytes must be"),
        (-1, "shard_bytes must be"),
        ("lots", "shard_bytes must be"),
    ]:
        with pytest.raises(ConfigError, match=text):
            Packing(shard_bytes=value)
    with pytest.raises(ConfigError, match="give samples or shard_bytes"):
        Packing(samples=5, shard_bytes="1MB")
    with pytest.raises(ConfigError, match="at most 4 GiB"):
        Packing("mds", shard_bytes="4GB")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").write_bytes(jpeg(0, (20, 20)))
    job = built(tmp_path / "photos", tmp_path / "out", COPIED)
    path = tmp_path / "out" / PLAN
    for cuts in ("2", "0", '"1"'):
        text = path.read_text().replace('"cuts": [\n  1\n ]', f'"cuts": [\n  {cuts}\n ]')
        assert text != path.read_text()
        (tmp_path / "plan.json").write_text(text)
        with pytest.raises(SourceError, match="is damaged"):
            load_plan(_Damaged(job, text))  # type: ignore[arg-type]


class _Damaged:
    text = "out"

    def __init__(self, job: Job, plan: str) -> None:
        self._target = job.target
        self._plan = plan

    def read(self, name: str) -> bytes | None:
        return self._plan.encode() if name == PLAN else self._target.read(name)
