"""A job from end to end: plan it, or go on with it, or see that it is done."""

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

Told = Callable[[Progress], None]


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
    on_progress: Told | None = None,
) -> Report:
    """Make the shards of `source` in `dst`, or those that are missing there.

    >>> report = run("photos/", "shards/", Recipe(Scaling(512)))

    source: a place (a folder, shards, a table), a Source, or a function that opens one when it is needed. dst: an empty
    folder or URL, or one with the same job. workers: processes, one photograph at a time each; default, one per core.
    memory: bytes, or a text such as "2GB", of all processes of the local engine together; default, three fifths of the
    machine's. engine: "local", "ray", "ray:ADDRESS", an executor, or an Engine of your own. max_bad: bad photographs,
    or below 1 a share of the planned ones, beyond which the run stops. part: (i, n), the i-th of n, from 0: only every
    n-th shard. retry: reasons; shards with such bad photographs are made anew. storage, target_storage: options for
    fsspec.

    What is there already is not done again; broken off at any moment, the same call goes on. ConfigError where dst
    holds another job; TargetError where it cannot be written (finished shards stay); TooManyFailures.
    """
    begun = monotonic()
    recipe = recipe or Recipe()
    _limits(max_bad, part)
    if isinstance(source, (str, os.PathLike)):
        check_overlap(source, dst)
    target = open_target(dst, target_storage)
    does = engine_for(engine, workers, memory, timeout_s)
    plan = existing_plan(target)
    input: Input | None = None
    if plan is None:
        input = resolve_input(source, target, storage)
        told = _survey_teller(on_progress, begun), _room_teller(on_progress, begun)
        plan = create_plan(target, input, recipe, does, *told)
    else:
        check_plan(target, plan, recipe)
    target.sweep()
    job = open_job(target, plan)
    mine = [job.shards[k] for k in select_part(range(len(job.shards)), part or (0, 1))]
    _forget(job, mine, retry)
    pieces = [shard.index for shard in mine if shard.index not in job.records]
    going = _Going(job, mine, len(pieces), begun, max_bad, on_progress)
    going.tell()
    going.check_limit()
    if pieces:
        if input is None:
            input = resolve_input(source, target, storage)
            check_source(target, plan, input)
        try:
            with run_pieces(does, ShardTask(input, target, plan), pieces) as outcomes:
                for outcome in outcomes:
                    going.take(outcome)
        finally:
            going.log(getattr(does, "workers", None), len(pieces))
            with suppress(OSError):  # the next run sweeps, too
                target.sweep()
    after = open_job(target, plan)
    if not after.todo:
        finalize(after)
    if going.errors:
        raise going.errors[0]
    return _report(after, going, input.remarks if input else (), monotonic() - begun)


def _forget(job: Job, mine: Sequence[Shard], retry: Collection[str]) -> None:
    """Shards with bad photographs of these reasons are not done any more. Records that do not count go, too, or whoever
    is to make their shards would take these for done; first of all the manifest, which speaks of all of them."""
    again = [k for k, record in job.records.items() if any(bad.reason in retry for bad in record.bad)]
    again = [shard for shard in mine if shard.index in job.stale or shard.index in again]
    if again:
        job.target.remove(MANIFEST)
    for shard in again:
        job.target.remove(shard.name + ".json")
        job.records.pop(shard.index, None)


@dataclass(slots=True)
class _Going:
    """What a run has done so far, and is told of."""

    job: Job
    mine: Sequence[Shard]  # of this part
    left: int  # of them, to be done by this run
    begun: float
    max_bad: float | None
    on_progress: Told | None
    bytes_in: int = 0
    bytes_out: int = 0
    images: int = 0  # in shards that are complete
    bad: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    under_way: dict[int, int] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)
    before: int = 0  # photographs in shards that were there
    shards_before: int = 0

    def __post_init__(self) -> None:
        self.bad = Counter(bad.reason for bad in self.job.bad)
        self.shards_before = len(self.mine) - self.left
        self.before = sum(shard.last - shard.first for shard in self.mine if shard.index in self.job.records)

    @property
    def seconds(self) -> float:
        return monotonic() - self.begun

    def take(self, outcome: Outcome) -> None:
        """What came from the engine. Raises what ends the run."""
        if not outcome.summary and not outcome.error:
            self.under_way[outcome.piece] = outcome.samples
            self.tell()
            return
        self.under_way.pop(outcome.piece, None)
        if outcome.error is not None:
            if isinstance(outcome.error, OSError):  # the target is full or gone: the other shards will fare the same
                raise outcome.error
            self.errors.append(outcome.error)
            return
        found = outcome.summary
        self.left -= 1
        self.images += found["samples"]
        self.bytes_in += found["bytes_in"]
        self.bytes_out += found["bytes_out"]
        self.bad.update(found["bad"])
        self.stages.update(found["seconds"])
        self.tell()
        self.check_limit()

    def check_limit(self) -> None:
        """TooManyFailures, also where it was earlier runs that met them."""
        if self.max_bad is None:
            return
        most = self.max_bad if self.max_bad >= 1 else self.max_bad * len(self.job.plan)
        if (bad := self.bad.total()) > most:
            listed = _some(open_job(self.job.target, self.job.plan).bad)
            raise TooManyFailures(
                f"{bad} photographs are bad, more than max_bad allows ({most:g}): "
                + ", ".join(f"{n} {why}" for why, n in self.bad.most_common())
                + "".join(f"\n  {one}" for one in listed[:5])
                + "\nfinished shards are kept; run again with a larger max_bad, or mend these and retry their reasons",
                listed,
            )

    def log(self, workers: int | None, pieces: int) -> None:
        """Leave for `stats` what this run did. Where that cannot be written, something worse is being said."""
        with suppress(OSError):
            log_run(
                self.job.target, self.seconds, self.images, self.stages, pieces - self.left, workers=workers,
                bytes_in=self.bytes_in, bytes_out=self.bytes_out,
            )  # fmt: skip

    def tell(self) -> None:
        """How far it is."""
        if self.on_progress is None:
            return
        images = sum(shard.last - shard.first for shard in self.mine)
        done = self.before + self.images + sum(self.under_way.values())
        self.on_progress(
            Progress(
                "shards", len(self.mine) - self.left, len(self.mine), self.shards_before, done, images, self.before,
                self.bytes_in, self.bytes_out, Counter(self.bad), self.seconds,
            )
        )  # fmt: skip


def _some(bad: Sequence[BadSample]) -> list[BadSample]:
    return list(bad[:1000])


def _survey_teller(on_progress: Told | None, begun: float) -> Callable[[int, int, int, int], None]:
    """Tells of a survey: (pieces done, pieces, photographs done, photographs)."""

    def tell(done: int, pieces: int, images: int, of: int) -> None:
        if on_progress is not None:
            on_progress(Progress("survey", done, pieces, 0, images, of, 0, seconds=monotonic() - begun))

    return tell


def _room_teller(on_progress: Told | None, begun: float) -> Callable[[int, int], None]:
    """Tells of a sample that is made to see whether there is room: (photographs done, photographs)."""

    def tell(images: int, of: int) -> None:
        if on_progress is not None:
            on_progress(Progress("room", 0, 1, 0, images, of, 0, seconds=monotonic() - begun))

    return tell


def _limits(max_bad: float | None, part: tuple[int, int] | None) -> None:
    if max_bad is not None and (isinstance(max_bad, bool) or not max_bad >= 0):
        raise ConfigError(f"max_bad must be a number of photographs, or a share below 1, got {max_bad!r}")
    if part is not None and not 0 <= part[0] < part[1]:
        raise ConfigError(f"part must be (i, n) with 0 <= i < n, got {part!r}")


def _report(job: Job, going: _Going, notes: tuple[str, ...], seconds: float) -> Report:
    records = [job.records[index] for index in sorted(job.records)]
    return Report(
        target=job.target.text,
        shards=len(job.shards),
        shards_done=len(records),
        shards_now=len(going.mine) - going.shards_before - going.left,
        tally=Counts.sum(record.tally for record in records),
        bad=tuple(job.bad),
        left_out=job.plan.left_out,
        bytes=sum(record.bytes for record in records),
        seconds=seconds,
        stages=dict(going.stages),
        classes=job.plan.classes,
        notes=notes,
    )
