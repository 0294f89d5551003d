"""Runs a job: plans it or resumes it, builds the missing shards, and writes the manifest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from fastfeed.errors import ConfigError, TooManyFailures
from fastfeed.preprocess.engines import Engine, Outcome, run_pieces
from fastfeed.preprocess.engines.named import engine_for
from fastfeed.preprocess.engines.parts import select_part
from fastfeed.preprocess.finalize import MANIFEST, finalize, log_run
from fastfeed.preprocess.inputs.inputs import Input, InputLike, resolve_input
from fastfeed.preprocess.plan import Shard
from fastfeed.preprocess.planning import check_plan, check_source, create_plan, existing_plan
from fastfeed.preprocess.recipe import Recipe
from fastfeed.preprocess.record import BadSample, Counts
from fastfeed.preprocess.report import Progress, Report
from fastfeed.preprocess.shard import ShardTask
from fastfeed.preprocess.state import Job, open_job
from fastfeed.preprocess.targets.overlap import check_overlap
from fastfeed.preprocess.targets.target import open_target

__all__ = ["run"]

OnProgress = Callable[[Progress], None]


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
    storage: dict[str, Any] | None = None,
    target_storage: dict[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Report:
    """Build the shards of `source` in `dst`, or those that are missing there.

    >>> report = run("photos/", "shards/", Recipe(Scaling(512)))

    Finished shards are not built again: if a run is interrupted, the same call resumes it.

    Args:
        source: A path or URL (a folder, shards, a table), a Source, an Input, or a function that takes the target and
            returns an Input; the function is called only when the source is needed.
        dst: An empty folder or URL, or one that holds the same job.
        recipe: How photographs are scaled, encoded, filtered and packed. Default: `Recipe()`.
        engine: "local", "ray", "ray:ADDRESS", a `concurrent.futures.Executor`, or an Engine of your own.
        workers: Processes, each working on one photograph at a time. Default: one per core.
        memory: Bytes, or a string such as "2GB", for all processes of the local engine together. Default: three fifths
            of the machine's memory.
        max_bad: The number of bad photographs above which the run stops; below 1, a fraction of the planned ones.
        part: (i, n): build only every n-th shard, starting with the i-th, counted from 0.
        timeout_s: Seconds that one photograph may take.
        retry: Reasons, such as "io_error". Shards with bad photographs of these reasons are built again.
        storage: fsspec options for the source.
        target_storage: fsspec options for `dst`.
        on_progress: Called with a Progress several times a second.

    Returns:
        What the run did, and the state of the job.

    Raises:
        ConfigError: `dst` holds another job, or an argument is wrong.
        TargetError: `dst` cannot be written to; finished shards are kept.
        TooManyFailures: More photographs are bad than `max_bad` allows.
    """
    started = monotonic()
    recipe = recipe or Recipe()
    _check_arguments(max_bad, part)
    if isinstance(source, (str, os.PathLike)):
        check_overlap(source, dst)
    target = open_target(dst, target_storage)
    runner = engine_for(engine, workers, memory, timeout_s)
    plan = existing_plan(target)
    input: Input | None = None
    if plan is None:
        input = resolve_input(source, target, storage)
        on_survey, on_sample = _survey_reporter(on_progress, started), _sample_reporter(on_progress, started)
        plan = create_plan(target, input, recipe, runner, on_survey, on_sample)
    else:
        check_plan(target, plan, recipe)
    target.sweep()
    job = open_job(target, plan)
    part_shards = [job.shards[k] for k in select_part(range(len(job.shards)), part or (0, 1))]
    _discard_records(job, part_shards, retry)
    pieces = [shard.index for shard in part_shards if shard.index not in job.records]
    state = _RunState(job, part_shards, len(pieces), started, max_bad, on_progress)
    state.report_progress()
    state.check_limit()
    if pieces:
        if input is None:
            input = resolve_input(source, target, storage)
            check_source(target, plan, input)
        try:
            with run_pieces(runner, ShardTask(input, target, plan), pieces) as outcomes:
                for outcome in outcomes:
                    state.handle(outcome)
        finally:
            state.log(getattr(runner, "workers", None), len(pieces))
            with suppress(OSError):  # the next run sweeps as well
                target.sweep()
    after = open_job(target, plan)
    if not after.todo:
        finalize(after)
    if state.errors:
        raise state.errors[0]
    return _report(after, state, input.remarks if input else (), monotonic() - started)


def _discard_records(job: Job, part_shards: Sequence[Shard], retry: Collection[str]) -> None:
    """Remove the records of shards with bad photographs of these reasons, so that they are built again.

    Invalid records are removed too, or another worker would take their shards for done. The manifest, which lists all
    shards, is removed first.
    """
    indexes = [k for k, record in job.records.items() if any(bad.reason in retry for bad in record.bad)]
    shards = [shard for shard in part_shards if shard.index in job.stale or shard.index in indexes]
    if shards:
        job.target.remove(MANIFEST)
    for shard in shards:
        job.target.remove(shard.name + ".json")
        job.records.pop(shard.index, None)


@dataclass(slots=True)
class _RunState:
    """What a run has done so far; reports progress and checks `max_bad`."""

    job: Job
    part_shards: Sequence[Shard]  # shards of this part
    remaining: int  # number of these that this run still has to build
    started: float
    max_bad: float | None
    on_progress: OnProgress | None
    bytes_in: int = 0
    bytes_out: int = 0
    images: int = 0  # in shards that this run completed
    bad: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    in_progress: dict[int, int] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)
    images_before: int = 0  # photographs in shards that were complete at the start
    shards_before: int = 0

    def __post_init__(self) -> None:
        self.bad = Counter(bad.reason for bad in self.job.bad)
        self.shards_before = len(self.part_shards) - self.remaining
        self.images_before = sum(
            shard.last - shard.first for shard in self.part_shards if shard.index in self.job.records
        )

    @property
    def seconds(self) -> float:
        return monotonic() - self.started

    def handle(self, outcome: Outcome) -> None:
        """Handle an outcome of the engine. Raises errors that end the run."""
        if not outcome.summary and not outcome.error:
            self.in_progress[outcome.piece] = outcome.samples
            self.report_progress()
            return
        self.in_progress.pop(outcome.piece, None)
        if outcome.error is not None:
            if isinstance(outcome.error, OSError):  # the target is full or gone: the other shards would fail too
                raise outcome.error
            self.errors.append(outcome.error)
            return
        summary = outcome.summary
        self.remaining -= 1
        self.images += summary["samples"]
        self.bytes_in += summary["bytes_in"]
        self.bytes_out += summary["bytes_out"]
        self.bad.update(summary["bad"])
        self.stages.update(summary["seconds"])
        self.report_progress()
        self.check_limit()

    def check_limit(self) -> None:
        """Raise TooManyFailures if too many photographs are bad, including those of earlier runs."""
        if self.max_bad is None:
            return
        limit = self.max_bad if self.max_bad >= 1 else self.max_bad * len(self.job.plan)
        if (bad := self.bad.total()) > limit:
            bad_samples = _first_bad(open_job(self.job.target, self.job.plan).bad)
            raise TooManyFailures(
                f"{bad} photographs are bad, more than max_bad allows ({limit:g}): "
                + ", ".join(f"{n} {why}" for why, n in self.bad.most_common())
                + "".join(f"\n  {bad_sample}" for bad_sample in bad_samples[:5])
                + "\nfinished shards are kept; run again with a larger max_bad, or repair these files and retry them",
                bad_samples,
            )

    def log(self, workers: int | None, pieces: int) -> None:
        """Log what this run did, for `stats`. Errors are ignored: the cause is being raised already."""
        with suppress(OSError):
            log_run(
                self.job.target, self.seconds, self.images, self.stages, pieces - self.remaining, workers=workers,
                bytes_in=self.bytes_in, bytes_out=self.bytes_out,
            )  # fmt: skip

    def report_progress(self) -> None:
        """Call `on_progress`."""
        if self.on_progress is None:
            return
        images = sum(shard.last - shard.first for shard in self.part_shards)
        done = self.images_before + self.images + sum(self.in_progress.values())
        self.on_progress(
            Progress(
                "shards", len(self.part_shards) - self.remaining, len(self.part_shards), self.shards_before, done,
                images, self.images_before, self.bytes_in, self.bytes_out, Counter(self.bad), self.seconds,
            )
        )  # fmt: skip


def _first_bad(bad: Sequence[BadSample]) -> list[BadSample]:
    return list(bad[:1000])


def _survey_reporter(on_progress: OnProgress | None, started: float) -> Callable[[int, int, int, int], None]:
    """Reports progress of the survey: (pieces done, pieces, photographs done, photographs)."""

    def tell(done: int, pieces: int, images: int, total: int) -> None:
        if on_progress is not None:
            on_progress(Progress("survey", done, pieces, 0, images, total, 0, seconds=monotonic() - started))

    return tell


def _sample_reporter(on_progress: OnProgress | None, started: float) -> Callable[[int, int], None]:
    """Reports progress of the sample that estimates the output's size: (photographs done, photographs)."""

    def tell(images: int, total: int) -> None:
        if on_progress is not None:
            on_progress(Progress("room", 0, 1, 0, images, total, 0, seconds=monotonic() - started))

    return tell


def _check_arguments(max_bad: float | None, part: tuple[int, int] | None) -> None:
    if max_bad is not None and (isinstance(max_bad, bool) or not max_bad >= 0):
        raise ConfigError(f"max_bad must be a number of photographs, or a fraction below 1, got {max_bad!r}")
    if part is not None and not 0 <= part[0] < part[1]:
        raise ConfigError(f"part must be (i, n) with 0 <= i < n, got {part!r}")


def _report(job: Job, state: _RunState, notes: tuple[str, ...], seconds: float) -> Report:
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
        notes=notes,
    )
