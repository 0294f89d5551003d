"""`fastfeed preprocess SRC DST --dry-run`: estimates a job from a sample; DST is not touched."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from fastfeed.cli.preprocess import values as preprocess_values
from fastfeed.cli.screen.streams import Console, show_facts
from fastfeed.errors import ConfigError

if TYPE_CHECKING:
    from fastfeed.preprocess.inputs.inputs import Input
    from fastfeed.preprocess.model.recipe import Recipe
    from fastfeed.preprocess.planning.estimate import JobEstimate
    from fastfeed.preprocess.targets.job_state import Job


def dry_run(src: str, dst: str, recipe: Recipe, values: Mapping[str, Any]) -> None:
    """Process a sample and print an estimate of the job."""
    import numpy as np

    from fastfeed.cli.preprocess.inspect import _say, _status
    from fastfeed.preprocess.engines.named import engine_for, select_part
    from fastfeed.preprocess.inputs.plan_ids import label_codes
    from fastfeed.preprocess.planning.check_source import planned_ids
    from fastfeed.preprocess.planning.estimate import estimate
    from fastfeed.preprocess.planning.planning import planned_input, unmixed
    from fastfeed.preprocess.targets.overlap import check_overlap

    check_overlap(src, dst)
    job, free = _existing_job(dst, recipe, values)
    opener = preprocess_values.opener(src, values).with_column(recipe.choice.group)
    source = opener(None if job is None else job.target)
    if job is not None:
        source = planned_input(job.plan, source, planned_ids(job.target, job.plan, source))
    ids = None
    part = preprocess_values.parse_part_option(values["part"])
    if job is not None:
        todo = select_part(job.todo, part or (0, 1))
        order = [job.plan.order[job.shards[k].first : job.shards[k].last] for k in todo]
        ids = np.concatenate(order) if order else np.zeros(0, np.int64)
        if not len(ids):
            _say(f"{dst}: nothing is left to do")
            return
    engine = engine_for("local", values["workers"], values["memory"], values["timeout"])
    workers = getattr(engine, "workers", 1)
    with _status("processing a sample") as bar:
        estimated = estimate(
            source,
            recipe,
            engine,
            ids=ids,
            free=free,
            on_sample=lambda done, of: bar.update(f"processing a sample: {done} of {of} images"),
        )
    if values["as_json"]:
        typer.echo(json.dumps(estimated.document(workers) | {"source": src, "target": dst}))
        return
    title = f"{src} -> {dst} (dry run, nothing is written)"
    show_facts(Console(emoji=False), title, _facts(estimated, source, recipe, job, workers))
    labels, _ = label_codes(source.source, np.arange(len(source.source)))
    of_shard = -(-len(labels) // max(estimated.shards, 1))
    counts = [min(of_shard, len(labels) - k) for k in range(0, len(labels), max(of_shard, 1))]
    hints = [*source.hints, *unmixed(labels, recipe, counts)] if job is None else []
    for sentence in (*hints, *_warnings(estimated, recipe, dst)):
        _say(sentence, style="yellow")


def _existing_job(
    dst: str, recipe: Recipe, values: Mapping[str, Any]
) -> tuple[Job | None, int | None]:
    """The job in DST, if there is one, and the free space there."""
    from fastfeed.preprocess.model.layout import is_job_file
    from fastfeed.preprocess.planning.planning import check_plan
    from fastfeed.preprocess.targets.job_state import load_plan, open_job
    from fastfeed.preprocess.targets.target import open_target
    from fastfeed.storage.reads import is_local
    from fastfeed.storage.storage import Storage
    from fastfeed.system.folders import free_bytes

    path = dst.removeprefix("file://")
    storage_options = preprocess_values.target_options(values["target_option"])
    if is_local(path) and not os.path.exists(path):
        folder = os.path.abspath(path)
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        return None, free_bytes(folder)[0]
    try:
        target = open_target(dst, storage_options, writes=False)
    except ConfigError:
        if is_local(path) or Storage(storage_options).find(dst):
            raise
        return None, None  # an empty place in a bucket
    plan = load_plan(target)
    free = target.free_bytes()
    if plan is None:
        if other_files := sorted(name for name in target.files() if not is_job_file(name)):
            raise ConfigError(
                f"{dst} is not empty: it contains {other_files[0]} but no job; choose an empty"
                " folder"
            )
        return None, free
    check_plan(target, plan, recipe)
    return open_job(target, plan), free


def _facts(
    estimated: JobEstimate, source: Input, recipe: Recipe, job: Job | None, workers: int
) -> list[tuple[str, str]]:
    from fastfeed.faults import format_reasons
    from fastfeed.preprocess.model.report import format_duration
    from fastfeed.printable import format_size, plural

    sampled = estimated.sampled
    bad = estimated.bad.total()
    images = f"{estimated.images:,}"
    if job is not None:
        images += f" of {len(job.plan):,}, {len(job.records):,} of {len(job.shards):,} shards done"
    spread = ""
    if estimated.spread:
        spread = f", {format_size(estimated.low)} to {format_size(estimated.high)}"
    incoming = ""
    if estimated.bytes_in:
        whole = format_size(estimated.bytes_in * estimated.good)
        incoming = f"about {whole}, {format_size(estimated.bytes_in)} per image"
    skipped = sorted(source.skipped.items())[:8]
    seconds = estimated.seconds(workers)
    about = "less than a second, plus startup,"
    if seconds >= 1:
        about = f"about {format_duration(seconds)}"
    stages = {name: took for name, took in estimated.stages.items() if took >= 5e-5}
    reasons = "none"
    if bad:
        reasons = f"{bad} of these ({bad / sampled:.1%}): {format_reasons(estimated.bad, 4)}"
    packing = recipe.packing
    most = f"{packing.samples:,}"
    if packing.shard_bytes:
        most = format_size(int(packing.shard_bytes))
    survey = "a survey of all images, for duplicates or sizes: not included in this estimate"
    output = format_size(estimated.output)
    each = format_size(estimated.bytes_out)
    rows = [
        ("images", images),
        ("shards", f"{estimated.shards:,} of up to {most}, {packing.format}"),
        ("left out", ", ".join(f"{n:,} {what}" for what, n in skipped)),
        ("survey", survey * recipe.looks),
        ("sample", f"{sampled:,} images were processed, spread over all"),
        ("bad", reasons),
        ("output", f"about {output}{spread}, {each} per image"),
        ("input", incoming),
        ("free", "" if estimated.free is None else f"{format_size(estimated.free)} in the target"),
        ("time", f"{about} with {plural(workers, 'worker')}"),
        ("ms per image", ", ".join(f"{name} {1e3 * took:.1f}" for name, took in stages.items())),
    ]
    return [(name, text) for name, text in rows if text]


def _warnings(estimated: JobEstimate, recipe: Recipe, dst: str) -> list[str]:
    from fastfeed.errors import TargetError
    from fastfeed.preprocess.planning.estimate import check_space

    warnings = []
    try:
        check_space(estimated, dst)
        if estimated.free is not None and estimated.high > estimated.free:
            warnings.append(f"{dst} may have too little space for the whole job")
    except TargetError as error:
        warnings.append(str(error))
    encode = estimated.stages.get("encode", 0.0)
    total = sum(estimated.stages.values())
    if recipe.encoding.image in ("webp", "png") and encode > total / 2:
        warnings.append(
            f"encoding {recipe.encoding.image} takes {encode / total:.0%} of the time;"
            " --image-format jpeg is many times faster"
        )
    if estimated.sampled and estimated.bad.total() == estimated.sampled:
        warnings.append("all images of the sample are bad: check the reasons before you start")
    return warnings
