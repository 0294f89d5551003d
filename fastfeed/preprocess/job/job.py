"""Runs a job: plans it or resumes it, builds the missing shards, and writes the manifest."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from time import monotonic
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines import Engine, run_pieces
from fastfeed.preprocess.engines.named import engine_for
from fastfeed.preprocess.engines.parts import select_part
from fastfeed.preprocess.inputs.inputs import Input, InputLike, resolve_input
from fastfeed.preprocess.inputs.request import InputRequest, open_now, request_of
from fastfeed.preprocess.job.state import (
    OnProgress,
    RunState,
    sample_reporter,
    stage_reporter,
    survey_reporter,
)
from fastfeed.preprocess.model.layout import DUPLICATES, record_name
from fastfeed.preprocess.model.plan import JobPlan, Shard
from fastfeed.preprocess.model.recipe import Recipe
from fastfeed.preprocess.model.record import Counts
from fastfeed.preprocess.model.report import Report
from fastfeed.preprocess.planning.check_source import added_since, check_content, planned_ids
from fastfeed.preprocess.planning.planning import (
    append_plan,
    check_plan,
    create_plan,
    existing_plan,
    planned_input,
    unmixed,
)
from fastfeed.preprocess.planning.shares import concerns, sentences
from fastfeed.preprocess.shard.build import ShardTask
from fastfeed.preprocess.shard.user_function import find_function
from fastfeed.preprocess.targets.finalize import BAD, MANIFEST, finalize
from fastfeed.preprocess.targets.job_state import Job, open_job
from fastfeed.preprocess.targets.overlap import check_overlap
from fastfeed.preprocess.targets.target import Target, open_target

__all__ = ["run"]


def run(
    source: InputLike,
    dst: str | os.PathLike[str],
    recipe: Recipe | None = None,
    *,
    engine: Engine | Executor | str = "local",
    workers: int | None = None,
    memory: int | str | None = None,
    max_bad: float | None = None,
    part: tuple[int, int] | None = None,
    timeout_s: float = 120.0,
    retry: Collection[str] = (),
    append: bool = False,
    storage: dict[str, Any] | None = None,
    target_storage: dict[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    on_hint: Callable[[str], None] | None = None,
) -> Report:
    """Build the shards of `source` in `dst`, or those that are missing there.

    Finished shards are not built again: if a run is interrupted, the same call resumes it.

    Args:
        source (str | os.PathLike[str] | Source | Input | Callable): A path or URL (a folder,
            shards, a table), a Source, an Input, or a function that takes the target and returns an
            Input. A complete job is compared with it: the notes of the report say what is new in
            it.
        dst (str | os.PathLike[str]): An empty folder or URL, or one that holds the same job.
        recipe (Recipe | None): How photographs are scaled, encoded, filtered and packed. Default:
            None, `Recipe()`.
        engine (Engine | Executor | str): "local", "ray", "ray:ADDRESS", a
            `concurrent.futures.Executor`, or an Engine of your own. Default: "local".
        workers (int | None): Processes, each working on one photograph at a time. Default: None,
            one per core.
        memory (int | str | None): Bytes, or a string such as "2GB", for all processes of the local
            engine together. Default: None, three fifths of the machine's memory.
        max_bad (float | None): The number of bad photographs above which the run stops; below 1, a
            fraction of the planned ones. Default: None, no limit.
        part (tuple[int, int] | None): (i, n): build only every n-th shard, starting with the i-th,
            counted from 0. Default: None, all.
        timeout_s (float): Seconds that one photograph may take. Default: 120.0.
        retry (Collection[str]): Reasons, such as "io_error". Shards with bad photographs of these
            reasons are built again. Default: ().
        append (bool): Add what is new in the source since the job was complete, in shards of its
            own. Earlier shards keep their bytes. Default: False.
        storage (dict[str, Any] | None): fsspec options for the source. Default: None.
        target_storage (dict[str, Any] | None): fsspec options for `dst`. Default: None.
        on_progress (Callable[[Progress], None] | None): Called with a Progress several times a
            second. Default: None.
        on_hint (Callable[[str], None] | None): Called before the shards of a new job are built,
            with sentences such as that they will have no labels. They are in the report's notes,
            too. Default: None.

    Returns:
        What the run did, and the state of the job.

    Raises:
        ConfigError: `dst` holds a job of another recipe, source or labels, or an argument is wrong.
        TargetError: `dst` cannot be written to; finished shards are kept.
        TooManyFailures: More photographs are bad than `max_bad` allows.

    Example:
        >>> from fastfeed.preprocess import Recipe, Scaling, run
        >>> report = run("photos", "shards", Recipe(Scaling(16)))
        >>> len(ff.TarShards("shards/*.tar"))
        6
    """
    started = monotonic()
    recipe = recipe or Recipe()
    _check_arguments(max_bad, part)
    if isinstance(source, (str, os.PathLike)):
        check_overlap(source, dst)
    if recipe.metadata.extras:
        find_function(recipe.metadata.extras)
    target = open_target(dst, target_storage)
    runner = engine_for(engine, workers, memory, timeout_s)
    source, on_survey = request_of(source, storage), survey_reporter(on_progress, started)
    plan, notes = existing_plan(target), tuple[str, ...]()
    input: Input | None = None
    rebuilt: list[Shard] = []
    on_stage = stage_reporter(on_progress, started)
    if plan is None:
        if append:
            raise ConfigError(
                f"{target.text} holds no job that photographs could be appended to; leave"
                " append out",
                field="append",
            )
        on_stage("source")
        input = resolve_input(source, target)
        on_sample = sample_reporter(on_progress, started)
        plan = create_plan(
            target,
            input,
            recipe,
            runner,
            on_survey,
            on_sample,
            lambda: on_stage("compare"),
            part or (0, 1),
            source.document() if isinstance(source, InputRequest) else None,
        )
        # of another part's plan, maybe
        input = planned_input(plan, input, planned_ids(target, plan, input))
        job, part_shards = _open_part(target, plan, part)
        notes = (*input.hints, *unmixed(input.source.label(plan.order), recipe))
        if on_hint is not None:
            for note in (*notes, *concerns(plan.shares, plan.classes)):
                on_hint(note)
    else:
        check_plan(target, plan, recipe)
        on_stage("resume")
        job, part_shards = _open_part(target, plan, part)
        rebuilt = _take_records(job, part_shards, retry)
        if not job.todo:
            on_stage("source")
            with open_now(source, target) as (now, listing):
                changes = added_since(target, plan, now)
                kept = plan.source_ids if changes is None else changes.kept
                check_content(target, plan, now, job.records, kept, listing)
                if changes is not None and append:
                    plan, input = append_plan(
                        target,
                        plan,
                        changes,
                        listing,
                        runner,
                        on_survey,
                        lambda: on_stage("compare"),
                    )
                elif changes is not None:
                    notes = (f"{changes.text}; append=True (--append) adds them in new shards",)
            job, part_shards = _open_part(target, plan, part)
            append = False  # done
    pieces = [shard.index for shard in part_shards if shard.index not in job.records]
    state = RunState(job, part_shards, len(pieces), started, max_bad, on_progress)
    state.report_progress()
    state.check_limit()
    if pieces:
        if input is None:
            on_stage("source")
            input = resolve_input(source, target)
            ids = planned_ids(target, plan, input)
            check_content(target, plan, input, job.records, ids)
            input = planned_input(plan, input, ids)
        _remove_records(target, rebuilt)  # nothing is written before every check has passed
        try:
            with run_pieces(runner, ShardTask(input, target, plan), pieces) as outcomes:
                for outcome in outcomes:
                    state.handle(outcome)
        finally:
            state.log(getattr(runner, "workers", None), len(pieces))
            with suppress(OSError):  # the next run sweeps as well
                target.sweep()
    state.report_progress("finish")
    after = open_job(target, plan)
    if not after.todo:
        finalize(after)
    if state.errors:
        raise state.errors[0]
    if (
        append and not after.todo
    ):  # an earlier run was interrupted: what is new now comes after its shards
        return run(
            source,
            dst,
            recipe,
            engine=engine,
            workers=workers,
            memory=memory,
            max_bad=max_bad,
            part=part,
            timeout_s=timeout_s,
            append=True,
            target_storage=target_storage,
            on_progress=on_progress,
            on_hint=on_hint,
        )
    return _report(after, state, (*notes, *(input.remarks if input else ())), monotonic() - started)


def _open_part(
    target: Target, plan: JobPlan, part: tuple[int, int] | None
) -> tuple[Job, list[Shard]]:
    """The job, and the shards of a part of it.

    Temporary files of runs that have ended are removed.
    """
    target.sweep()
    job = open_job(target, plan)
    return job, [job.shards[k] for k in select_part(range(len(job.shards)), part or (0, 1))]


def _take_records(job: Job, part_shards: Sequence[Shard], retry: Collection[str]) -> list[Shard]:
    """Take the records of shards with bad photographs of these reasons from `job`, not yet from its
    target.

    Returns their shards, and those of invalid records.
    """
    indexes = [
        k for k, record in job.records.items() if any(bad.reason in retry for bad in record.bad)
    ]
    shards = [shard for shard in part_shards if shard.index in job.stale or shard.index in indexes]
    for shard in shards:
        job.records.pop(shard.index, None)
    return shards


def _remove_records(target: Target, shards: Sequence[Shard]) -> None:
    """Remove the records of these shards, or a worker would take the shards for done; first the
    manifest.
    """
    if shards:
        target.remove(MANIFEST)
    for shard in shards:
        target.remove(record_name(shard.name))


def _check_arguments(max_bad: float | None, part: tuple[int, int] | None) -> None:
    if max_bad is not None and (isinstance(max_bad, bool) or not max_bad >= 0):
        raise ConfigError(
            f"max_bad must be a number of photographs, or a fraction below 1, got {max_bad!r}",
            field="max_bad",
        )
    if part is not None and not 0 <= part[0] < part[1]:
        raise ConfigError(f"part must be (i, n) with 0 <= i < n, got {part!r}", field="part")


def _report(job: Job, state: RunState, notes: tuple[str, ...], seconds: float) -> Report:
    records = [job.records[index] for index in sorted(job.records)]
    return Report(
        target=job.target.text,
        shards=len(job.shards),
        shards_done=len(records),
        shards_now=len(state.part_shards) - state.shards_before - state.remaining,
        tally=Counts.sum(record.tally for record in records),
        bad=tuple(job.bad),
        left_out=job.plan.left_out,
        bytes=sum(record.bytes for record in records),
        seconds=seconds,
        stages=dict(state.stages),
        classes=job.plan.classes,
        bad_list="" if job.todo else job.target.layout.path(BAD),
        duplicates=job.target.layout.path(DUPLICATES) if job.plan.left_out else "",
        notes=notes,
        selection=sentences(job.plan.shares, job.plan.classes),
    )
