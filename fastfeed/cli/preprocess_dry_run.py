"""`fastfeed preprocess SRC DST --dry-run`: what would be done, from a sample; DST is not touched."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from fastfeed.cli import preprocess_options as o
from fastfeed.errors import ConfigError

if TYPE_CHECKING:
    from fastfeed.preprocess.inputs.inputs import Input
    from fastfeed.preprocess.recipe import Recipe
    from fastfeed.preprocess.reports.estimate import Estimate
    from fastfeed.preprocess.state import Job

__all__ = ["dry_run"]


def dry_run(src: str, dst: str, recipe: Recipe, given: Mapping[str, Any]) -> None:
    """Count, make a sample, and say what all of it will be."""
    import numpy as np

    from fastfeed.cli.preprocess_inspect import _print, _say
    from fastfeed.preprocess.engines.named import engine_for
    from fastfeed.preprocess.engines.parts import select_part
    from fastfeed.preprocess.reports.estimate import estimate
    from fastfeed.preprocess.targets.overlap import check_overlap

    check_overlap(src, dst)
    job, free = _there(dst, recipe, given)
    source = o.opener(src, given)(None if job is None else job.target)
    ids = None
    part = o.part_of(given["part"])
    if job is not None:
        todo = select_part(job.todo, part or (0, 1))
        order = [job.plan.order[job.shards[k].first : job.shards[k].last] for k in todo]
        ids = np.concatenate(order) if order else np.zeros(0, np.int64)
        if not len(ids):
            _say(f"{dst}: nothing is left to do")
            return
    engine = engine_for("local", given["workers"], given["memory"], given["timeout"])
    workers = getattr(engine, "workers", 1)
    with _bar() as told:
        found = estimate(source, recipe, engine, ids=ids, free=free, on_sample=told)
    if given["as_json"]:
        typer.echo(json.dumps(found.document(workers) | {"source": src, "target": dst}))
        return
    _print(f"{src} -> {dst} (dry run, nothing is written)", _facts(found, source, recipe, job, workers))
    for sentence in _warnings(found, recipe, dst):
        _say(sentence, style="yellow")


def _there(dst: str, recipe: Recipe, given: Mapping[str, Any]) -> tuple[Job | None, int | None]:
    """The job that is in DST, if one is, and the bytes that may be written there."""
    from fastfeed.preprocess.planning import check_plan
    from fastfeed.preprocess.state import load_plan, open_job
    from fastfeed.preprocess.targets.target import open_target
    from fastfeed.storage.byte_range import is_local
    from fastfeed.storage.storage import Storage

    place, options = dst.removeprefix("file://"), o.target_options(given)
    if is_local(place) and not os.path.exists(place):
        return None, _free(place)
    try:
        target = open_target(dst, options, writes=False)
    except ConfigError:
        if is_local(place) or Storage(options).find(dst):
            raise
        return None, None  # a bucket that holds nothing there
    plan, free = load_plan(target), target.free_bytes()
    if plan is None:
        if others := sorted(name for name in target.files() if not name.startswith("_job/")):
            raise ConfigError(f"{dst} is not empty, it holds {others[0]}, and no job: choose an empty folder")
        return None, free
    check_plan(target, plan, recipe)
    return open_job(target, plan), free


def _free(place: str) -> int:
    """Where a folder will be."""
    folder = os.path.abspath(place)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free


def _facts(found: Estimate, source: Input, recipe: Recipe, job: Job | None, workers: int) -> list[tuple[str, str]]:
    from fastfeed.preprocess.reports.progress import format_duration, format_reasons, format_size

    images = f"{found.images:,}"
    if job is not None:
        images += f" of {len(job.plan):,}, {len(job.records):,} of {len(job.shards):,} shards are there already"
    rows = [
        ("images", images),
        ("shards", f"{found.shards:,} of up to {recipe.packing.samples:,}, {recipe.packing.format}"),
    ]
    if source.left_out:
        rows.append(("left out", ", ".join(f"{n:,} {what}" for what, n in sorted(source.left_out.items())[:8])))
    if recipe.looks:
        rows.append(("first", "all photographs are looked at, for duplicates or sizes: not counted here"))
    rows.append(("sample", f"{found.sampled:,} photographs were really made, spread over all of them"))
    bad = found.bad.total()
    rows.append(
        (
            "bad",
            f"{bad} of these ({bad / max(found.sampled, 1):.1%}): {format_reasons(found.bad)}"
            if bad
            else "none of these",
        )
    )
    spread = f", {format_size(found.least)} to {format_size(found.most)}" if found.spread else ""
    rows.append(("output", f"about {format_size(found.output)}{spread}, {format_size(found.bytes_out)} an image"))
    if found.bytes_in:
        rows.append(
            ("input", f"about {format_size(found.bytes_in * found.good)}, {format_size(found.bytes_in)} an image")
        )
    if found.free is not None:
        rows.append(("free", f"{format_size(found.free)} in the target"))
    stages = {name: took for name, took in found.stages.items() if took >= 5e-5}
    each = ", ".join(f"{name} {1e3 * took:.1f}" for name, took in stages.items())
    long = found.seconds(workers)
    about = f"about {format_duration(long)}" if long >= 1 else "less than a second, and some to start,"
    rows.append(("time", f"{about} with {workers} worker{'s' if workers != 1 else ''}"))
    rows.append(("ms an image", each))
    return rows


def _warnings(found: Estimate, recipe: Recipe, dst: str) -> list[str]:
    from fastfeed.errors import TargetError
    from fastfeed.preprocess.reports.estimate import check_space

    said = []
    try:
        check_space(found, dst)
        if found.free is not None and found.most > found.free:
            said.append(f"{dst} may have too little room: it could be full before the job is done")
    except TargetError as error:
        said.append(str(error))
    encode, all_of_it = found.stages.get("encode", 0.0), sum(found.stages.values())
    if recipe.encoding.image in ("webp", "png") and encode > all_of_it / 2:
        said.append(
            f"encoding {recipe.encoding.image} takes {encode / all_of_it:.0%} of the time; --image-format jpeg is many "
            "times as fast"
        )
    if found.sampled and found.bad.total() == found.sampled:
        said.append("all photographs of the sample are bad: look at the reasons before you begin")
    return said


class _bar:
    """Tells how far the sample is, on a terminal."""

    def __enter__(self) -> Any:
        self._status = Console(stderr=True, emoji=False).status("making a sample") if sys.stderr.isatty() else None
        if self._status is None:
            return None
        self._status.start()
        return lambda done, of: self._status and self._status.update(f"making a sample: {done} of {of} photographs")

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
