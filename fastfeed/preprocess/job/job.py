"""A job from start to finish: plan or resume it, build missing shards, write the manifest."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError, TooManyFailures
from fastfeed.faults import format_reasons
from fastfeed.preprocess.engines import Engine, Outcome, run_pieces
from fastfeed.preprocess.engines.local import LocalEngine
from fastfeed.preprocess.engines.named import engine_for, select_part
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.inputs.plan_ids import label_codes
from fastfeed.preprocess.inputs.source_spec import InputLike, JobSource, job_source
from fastfeed.preprocess.model.bad_filter import BadFilter
from fastfeed.preprocess.model.condition import DROPPED
from fastfeed.preprocess.model.layout import DUPLICATES, record_name
from fastfeed.preprocess.model.plan import JobPlan, Shard
from fastfeed.preprocess.model.recipe import Recipe
from fastfeed.preprocess.model.record import EXCLUDED, Counts
from fastfeed.preprocess.model.report import OnProgress, Progress, Report, Reporter
from fastfeed.preprocess.planning.bad_images import select_bad
from fastfeed.preprocess.planning.check_source import (
    added_since,
    check_content,
    planned_ids,
    restored_samples,
)
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
from fastfeed.preprocess.targets.job_state import (
    BAD,
    MANIFEST,
    Job,
    finalize,
    log_run,
    open_job,
)
from fastfeed.preprocess.targets.lock import job_lock
from fastfeed.preprocess.targets.overlap import check_overlap
from fastfeed.preprocess.targets.target import Target, open_target
from fastfeed.runtime.import_path import find_function

# samples that are copied in threads of this process: more are copied faster in several, after the
# second or so of processor time that each takes to start
_FEW = 1 << 17


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
    gpus_per_worker: float = 0.0,
    retry: Collection[str] | BadFilter = (),
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
        recipe (Recipe | None): How images are scaled, encoded, filtered and packed. Default:
            None, `Recipe()`.
        engine (Engine | Executor | str): "local", "ray", "ray:ADDRESS", a
            `concurrent.futures.Executor`, or an Engine of your own. Default: "local".
        workers (int | None): Processes, each working on one image at a time. Default: None,
            one per core.
        memory (int | str | None): Bytes, or a string such as "2GB", for all processes of the local
            engine together. Default: None, three fifths of the machine's memory.
        max_bad (float | None): The number of bad images above which the run stops; below 1, a
            fraction of the planned ones. Default: None, no limit.
        part (tuple[int, int] | None): (i, n): build only every n-th shard, starting with the i-th,
            counted from 0. Default: None, all.
        timeout_s (float): Seconds that one image may take. Default: 120.0.
        gpus_per_worker (float): GPUs that Ray assigns to each process that calls the function in
            `Metadata.extras`: a fraction below 1 shares one. Default: 0.0.
        retry (Collection[str] | BadFilter): Reasons, such as "io_error", or a BadFilter. Shards
            with bad images that match are built again. Default: ().
        append (bool): Add what is new in the source since the job was complete, in shards of its
            own. Earlier shards keep their bytes. Of a merged job, `source` is that of one of the
            jobs that were merged. Default: False.
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
        ConfigError: `dst` holds a job of another recipe, source or labels, another process updates
            it, or an argument is wrong.
        TargetError: `dst` cannot be written to; finished shards are kept.
        TooManyFailures: More images are bad than `max_bad` allows.

    Example:
        >>> from fastfeed.preprocess import Recipe, Scaling, run
        >>> report = run("photos", "shards", Recipe(Scaling(16)))
        >>> len(ff.TarShards("shards/*.tar"))
        6
    """
    if max_bad is not None and (isinstance(max_bad, bool) or not max_bad >= 0):
        raise ConfigError.of("max_bad", "a number of images, or a fraction below 1", max_bad)
    if part is not None and not 0 <= part[0] < part[1]:
        raise ConfigError.of("part", "(i, n) with 0 <= i < n", part)
    recipe = recipe or Recipe()
    if isinstance(source, (str, os.PathLike)):
        check_overlap(source, dst)
    if recipe.metadata.extras:
        find_function(recipe.metadata.extras, "extras")
    elif gpus_per_worker:
        raise ConfigError(
            f"gpus_per_worker is for a function in extras (--with), got {gpus_per_worker!r} and no"
            " function; leave it out",
            field="gpus_per_worker",
        )
    job_run = JobRun(
        open_target(dst, target_storage),
        job_source(source, storage, recipe.choice.group, recipe.choice.embedding),
        recipe,
        engine_for(engine, workers, memory, timeout_s, gpus_per_worker),
        Reporter(on_progress),
        max_bad,
        part or (0, 1),
        on_hint,
    )
    with job_lock(job_run.target, shared=True):
        return job_run.build(BadFilter.of(retry), append)


@dataclass(frozen=True, slots=True)
class JobRun:
    """Arguments of a run, resolved and opened."""

    target: Target
    source: JobSource
    recipe: Recipe
    engine: Engine
    reporter: Reporter
    max_bad: float | None = None
    part: tuple[int, int] = (0, 1)
    on_hint: Callable[[str], None] | None = None

    def build(
        self, retry: BadFilter, append: bool, compare: bool = True, before: Job | None = None
    ) -> Report:
        """Plan the job or resume it, build the missing shards of the part, and finalize the job.

        A complete job is compared with its source, unless `compare` is False. before: the job as it
        was opened, if no other process has written to it since.
        """
        target = self.target
        plan = existing_plan(target)
        input: Input | None = None
        notes: tuple[str, ...] = ()
        rebuilt: list[Shard] = []
        copies = False
        if plan is None:
            if append:
                raise ConfigError(
                    f"{target.text} holds no job that images could be appended to; leave append out",
                    field="append",
                )
            plan, input, notes = self._start()
            job, part_shards = self._open_part(plan)
        else:
            self.reporter.stage("resume")
            job, part_shards = self._open_part(plan, before)
            if plan.merged and job.outdated:  # copies come first: they may be of other sources
                part_shards = [shard for shard in part_shards if shard.index in job.outdated]
            elif plan.merged and (retry or append or compare or job.todo):
                part_shards = self._own_shards(job, part_shards)
            check_plan(target, plan, self.recipe, decodes=not copies_only(job) or bool(retry))
            rebuilt = _take_records(job, part_shards, retry)
            copies = bool(job.outdated) if plan.merged else copies_only(job)
            if not job.todo and compare:
                plan, input, notes = self._compare(plan, job, append)
                append = False  # done
                job, part_shards = self._open_part(plan)
        pieces = [shard.index for shard in part_shards if shard.index not in job.records]
        state = RunState(job, part_shards, len(pieces), self.reporter, self.max_bad)
        state.report_progress()
        state.check_limit()
        if pieces:
            if input is None and not copies:
                input = self._resume(plan, job)
            _remove_records(job, rebuilt)  # nothing is written before every check has passed
            try:
                engine = self._engine(job, pieces, input is not None)
                with run_pieces(engine, ShardTask(input, target, plan), pieces) as outcomes:
                    for outcome in outcomes:
                        state.handle(outcome)
            finally:
                state.log(getattr(self.engine, "workers", None), len(pieces))
                with suppress(OSError):  # the next run sweeps as well
                    target.sweep()
        state.report_progress("finish")
        after = open_job(target, plan, None if before is None else job)
        if not after.todo:
            finalize(after)
        if state.errors:
            raise state.errors[0]
        if pieces and copies and (retry or after.todo) and not copies_only(after):
            # damaged shards are built from the source
            return self.build(retry, append, compare)
        if append and not after.todo:
            # an earlier run was interrupted: new images come after its shards
            return self.build(BadFilter(), append=True)
        notes = (*notes, *(input.remarks if input else ()))
        return make_report(after, state.shards_now, self.reporter.seconds, state.stages, notes)

    def _start(self) -> tuple[JobPlan, Input, tuple[str, ...]]:
        """Plan a new job; also returns its input, and notes."""
        self.reporter.stage("source")
        input = self.source(self.target)
        how = self.recipe, self.engine, self.reporter, self.part, self.source.document()
        plan = create_plan(self.target, input, *how)
        # of another part's plan, maybe
        input = planned_input(plan, input, planned_ids(self.target, plan, input))
        labels, _ = label_codes(input.source, plan.order)
        notes = (*input.hints, *unmixed(labels, self.recipe, plan.counts))
        if self.on_hint is not None:
            for note in (*notes, *concerns(plan.shares, plan.classes)):
                self.on_hint(note)
        return plan, input, notes

    def _compare(
        self, plan: JobPlan, job: Job, append: bool
    ) -> tuple[JobPlan, Input | None, tuple[str, ...]]:
        """Compare a complete job with its source; with `append`, the plan gets new images."""
        self.reporter.stage("source")
        with suppress(SourceError):  # the source has changed, or is gone
            restored_samples(self.target, plan, self.source)
        with self.source.now(self.target) as (now, listing):
            changes = added_since(self.target, plan, now)
            kept = plan.places_in(now.text) if changes is None else changes.new_positions
            check_content(self.target, plan, now, job.records, kept, listing)
            if changes is None or not len(changes.added):
                return plan, None, ()
            if not append:
                note = f"{changes.text}; append=True (--append) adds them in new shards"
                return plan, None, (note,)
            grown = append_plan(self.target, plan, changes, listing, self.engine, self.reporter)
            return *grown, ()

    def _resume(self, plan: JobPlan, job: Job) -> Input:
        """The input of an unfinished job. ConfigError if it is another one now."""
        self.reporter.stage("source")
        input = self.source(self.target)
        ids = planned_ids(self.target, plan, input)
        check_content(self.target, plan, input, job.records, ids)
        return planned_input(plan, input, ids)

    def _own_shards(self, job: Job, shards: Sequence[Shard]) -> list[Shard]:
        """Those of a merged job's shards that the source can build. ConfigError if it is unknown."""
        plan = job.plan
        try:
            own = plan.image_ids(self.source.text or self.source(self.target).text)
        except ConfigError as error:
            if not job.todo:
                raise
            raise _missing_shards_error(job, str(error)) from error
        is_own = np.isin(plan.order[[shard.first for shard in job.shards]], own)
        if job.todo and not is_own[job.todo].any():
            raise _missing_shards_error(job, f"{self.source.text} is not the source of these")
        return [shard for shard in shards if is_own[shard.index]]

    def _engine(self, job: Job, pieces: Sequence[int], has_input: bool) -> Engine:
        """The engine for these shards. Few copies are not worth a start of local processes."""
        engine = self.engine
        if has_input or not isinstance(engine, LocalEngine):
            return engine
        samples = sum(len(job.outdated[k].ids) for k in pieces)
        return replace(engine, in_process=samples <= _FEW)

    def _open_part(self, plan: JobPlan, before: Job | None = None) -> tuple[Job, list[Shard]]:
        """Sweep temporary files, and open the job and the shards of the part."""
        self.target.sweep()
        job = open_job(self.target, plan, before)
        return job, [job.shards[k] for k in select_part(range(len(job.shards)), self.part)]


def _take_records(job: Job, part_shards: Sequence[Shard], retry: BadFilter) -> list[Shard]:
    """Take invalid records, and those with bad images that match, out of `job`."""
    failed = {image.shard for image in select_bad(job, retry)} if retry else set()
    shards = [shard for shard in part_shards if shard.index in job.stale | failed]
    for shard in shards:
        job.records.pop(shard.index, None)
    return shards


def _missing_shards_error(job: Job, why: str) -> ConfigError:
    """The error for missing shards of a merged job that are of another source."""
    jobs = shlex.join(dict.fromkeys(part.target for part in job.plan.merged if part.target))
    place = job.target.text
    verb = "is" if len(job.todo) == 1 else "are"
    return ConfigError(
        f"{place} is merged from jobs, and {len(job.todo):,} of its {len(job.shards):,} shards"
        f" {verb} missing or damaged: {why}\nor take them from these jobs again:\n"
        f"  fastfeed preprocess merge {jobs} -o {shlex.quote(place)}"
    )


def copies_only(job: Job) -> bool:
    """True if all shards to do are copies of earlier ones, with edits."""
    return bool(job.todo) and not set(job.todo) - job.outdated.keys()


def _remove_records(job: Job, shards: Sequence[Shard]) -> None:
    """Remove the manifest, indexes, and these shards' records, so that workers rebuild them."""
    if shards or job.outdated:
        job.target.remove(MANIFEST)
        is_mds = job.plan.recipe.packing.format == "mds"  # with an index in each folder
        for folder in dict(job.plan.groups) if is_mds else ():
            job.target.remove(f"{folder}/index.json".lstrip("/"))
    for shard in shards:
        job.target.remove(record_name(shard.name))


def make_report(
    job: Job, shards_now: int, seconds: float, stages: Mapping[str, float], notes: tuple[str, ...]
) -> Report:
    """The report of a run that completed `shards_now` shards."""
    records = [job.records[index] for index in sorted(job.records)]
    has_page = bool(job.plan.left_out) and not job.plan.merged
    return Report(
        target=job.target.text,
        shards=len(job.shards),
        shards_done=len(records),
        shards_now=shards_now,
        tally=Counts.sum(record.tally for record in records),
        bad=tuple(job.bad),
        left_out=job.plan.left_out,
        bytes=sum(record.bytes for record in records),
        seconds=seconds,
        stages=dict(stages),
        classes=job.plan.classes,
        bad_list="" if job.todo else BAD,
        duplicates=DUPLICATES if has_page else "",
        notes=notes,
        selection=sentences(job.plan.shares, job.plan.classes),
        dropped=dict(Counter(sample.detail for sample in job.dropped)),
    )


@dataclass(slots=True)
class RunState:
    """Progress of a run, its bad images, and the check of `max_bad`."""

    job: Job
    part_shards: Sequence[Shard]  # shards of this part
    remaining: int  # number of these that this run still has to build
    reporter: Reporter
    max_bad: float | None
    bytes_in: int = 0
    bytes_out: int = 0
    images: int = 0  # in shards that this run completed
    bad: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    in_progress: dict[int, int] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)
    images_before: int = 0  # images in shards that were complete at the start
    shards_before: int = 0

    def __post_init__(self) -> None:
        self.bad = Counter(bad.reason for bad in (*self.job.bad, *self.job.dropped))
        self.shards_before = len(self.part_shards) - self.remaining
        done = [shard for shard in self.part_shards if shard.index in self.job.records]
        self.images_before = sum(shard.last - shard.first for shard in done)

    @property
    def shards_now(self) -> int:
        """Shards that this run completed."""
        return len(self.part_shards) - self.shards_before - self.remaining

    def handle(self, outcome: Outcome) -> None:
        """Handle an outcome of the engine. Raises errors that end the run."""
        if not outcome.summary and not outcome.error:
            self.in_progress[outcome.piece] = outcome.samples
            self.report_progress()
            return
        self.in_progress.pop(outcome.piece, None)
        if outcome.error is not None:
            # the target is full or gone: the other shards would fail too
            if isinstance(outcome.error, OSError):
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
        """Raise TooManyFailures if more images are bad than `max_bad`; exclusions do not count."""
        if self.max_bad is None:
            return
        limit = self.max_bad if self.max_bad >= 1 else self.max_bad * self.job.plan.planned
        counted = Counter({reason: n for reason, n in self.bad.items() if reason not in EXCLUDED})
        if (bad := counted.total()) > limit:
            now = open_job(self.job.target, self.job.plan)
            first = [sample for sample in now.bad if sample.reason not in EXCLUDED][:1000]
            raise TooManyFailures(
                f"{bad} images are bad, more than max_bad (--max-bad) allows ({limit:g}):"
                f" {format_reasons(counted)}"
                + "".join(f"\n  {sample}" for sample in first[:5])
                + "\nfinished shards are kept; run again with a larger limit, or repair these"
                " files and retry them",
                first,
            )

    def log(self, workers: int | None, pieces: int) -> None:
        """Log this run for `stats`; errors are ignored, as their cause is being raised already."""
        with suppress(OSError):
            log_run(
                self.job.target,
                self.reporter.seconds,
                self.images,
                self.stages,
                pieces - self.remaining,
                workers=workers,
                bytes_in=self.bytes_in,
                bytes_out=self.bytes_out,
            )

    def report_progress(self, phase: str = "shards") -> None:
        """Report the shards and images that are done."""
        self.reporter.tell(
            Progress(
                phase,
                len(self.part_shards) - self.remaining,
                len(self.part_shards),
                self.shards_before,
                self.images_before + self.images + sum(self.in_progress.values()),
                sum(shard.last - shard.first for shard in self.part_shards),
                self.images_before,
                self.bytes_in,
                self.bytes_out,
                Counter({reason: n for reason, n in self.bad.items() if reason != DROPPED}),
                self.reporter.seconds,
                self.bad[DROPPED],
            )
        )
