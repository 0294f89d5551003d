"""A feed's configuration and its validation.

All values pickle, so that a helper process can make the same batches.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from fastfeed.backends.base import BackendModule
from fastfeed.decode import engine_for
from fastfeed.decode.executor import executor_for
from fastfeed.decode.memory_limit import limit_decoding
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError
from fastfeed.faults import Outage
from fastfeed.feed.batch.builder import BatchBuilder
from fastfeed.feed.batch.rows import Branch
from fastfeed.feed.batch.task_sizes import TaskSizes
from fastfeed.feed.faults.quarantine import Quarantine
from fastfeed.ops.program.compile import Program
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling import Repeated
from fastfeed.sampling.plan import Plan
from fastfeed.sampling.rng import PER_SLOT
from fastfeed.sources.base import BlockReader, Source

__all__ = ["FeedConfig", "check_fit", "timeline_path"]

_LABELS_AT_ONCE = 1 << 20  # checked in one call


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """All that batches depend on. Building, opening and starting come later."""

    source: Source
    program: Program
    plan: Plan
    backend: str  # name of its module
    decode: Any  # as `Feed` takes it
    threads: int
    buffers: int  # batches whose memory is reused
    outage: Outage
    memory: int | None  # bytes that decoding may hold at once in this process; None: as it is
    weigh: bool  # by the source's weights, where it has any

    def builders(
        self, quarantine: Quarantine, timeline: Timeline
    ) -> tuple[BatchBuilder, BatchBuilder]:
        """The builder of batches, and that of raw ones."""
        if self.memory is not None:
            limit_decoding(self.memory)
        plan, threads = self.plan, self.threads
        for source in getattr(self.source, "sources", [self.source]):  # of a mixture
            if isinstance(source, BlockReader):
                source.expect(plan.batch * self.buffers)
        module = cast(BackendModule, importlib.import_module(self.backend))
        decode = module.engine(self.decode)
        engine = engine_for(self.program, decode)
        executor = executor_for(self.program.decode, engine, threads)
        native = module.native_threads
        group = self.program.mix.op.group if self.program.mix is not None else 1
        backend = partial(
            module.compile,
            engine=engine,
            timeline=timeline,
            batch=plan.batch + 2 * (group - 1),  # groups at the batch's edges are made completely
            threads=threads,
            gpu=plan.world.gpu,
            decode=self.decode,
            executor=executor,
        )

        lanes = getattr(self.decode, "lanes", 2) if module.whole_batches else 0
        sizes = TaskSizes.of(plan.batch, group, threads, native, lanes)

        def branches(programs: list[Program]) -> list[Branch]:
            return [
                Branch(program, backend(program), plan.batch, self.buffers, sizes)
                for program in programs
            ]

        programs = [self.program, *self.program.others]
        builder = BatchBuilder(
            self.source,
            branches(programs),
            plan,
            engine,
            quarantine,
            timeline,
            sizes,
            self.outage,
            self.weigh,
            executor,
            native,
        )
        if module.whole_batches:  # a GPU converts where it decodes
            return builder, builder
        return builder, builder.with_branches(branches([program.raw() for program in programs]))


def check_fit(program: Program, plan: Plan, source: Source) -> None:
    """ConfigError for what would go wrong in the middle of a run, or train on nonsense."""
    for branch in (program, *program.others):
        _check_draws(branch)
    if program.mix is not None:
        _check_partners(type(program.mix.op).__name__, plan)
    if program.targets is not None:
        _check_labels(program, source)


def _check_draws(program: Program) -> None:
    """An op that draws more than its slot has would get the numbers of the next op."""
    for step in (*program.window, *(step for link in program.chain for step in link.steps)):
        if step.views * step.op.draws > PER_SLOT:
            each = f" for each of {step.views} views" if step.views > 1 else ""
            raise ConfigError(
                f"{type(step.op).__name__} may draw {PER_SLOT} random numbers per sample, got"
                f" {step.op.draws}{each}; give the functions in it fewer draws: one number can seed"
                " a generator"
            )


def _check_partners(name: str, plan: Plan) -> None:
    if plan.global_batch < 2 * plan.world.size:
        raise ConfigError(
            f"{name} mixes neighbors of a batch and needs batch >= 2, "
            f"got {plan.global_batch / plan.world.size:g} per rank; raise batch, or leave it out"
        )
    order = plan.shuffle
    if isinstance(order, Repeated) and order.together and plan.global_batch <= order.times:
        raise ConfigError(
            f"{name} would mix samples with themselves only: a global batch of {plan.global_batch}"
            f" under {order} is one sample; raise batch, or write together=False"
        )


def _check_labels(program: Program, source: Source) -> None:
    """Soft labels need classes: single samples may have none, not all of them."""
    assert program.targets is not None
    classes, largest = program.targets.classes, -1
    for first in range(0, len(source), _LABELS_AT_ONCE):
        labels = source.label(np.arange(first, min(first + _LABELS_AT_ONCE, len(source))))
        largest = max(largest, int(labels.max(initial=-1)))
        if labels.min(initial=-1) < -1:
            i = int(labels.argmin())
            raise ConfigError(
                f"labels must be in [0, {classes}) to become soft, or -1 where there is none, got"
                f" {labels[i]} for {source.uri(first + i)}; number the classes from 0"
            )
        if largest >= classes:
            i = first + int(labels.argmax())
            raise ConfigError(
                f"labels must be in [0, {classes}) to become soft, got {largest} for"
                f" {source.uri(i)}; write OneHot({largest + 1}), or the number of classes there are"
            )
    if largest < 0 and len(source):
        raise ConfigError(
            f"{source!r} has no labels, but the ops make soft labels; use a labeled source, or"
            " leave these ops out"
        )


def timeline_path(world: World) -> str | None:
    """The path in FASTFEED_TIMELINE, with `.rank1` inserted before its suffix if there are several
    ranks.
    """
    path = os.environ.get("FASTFEED_TIMELINE")
    if not path or world.size == 1:
        return path or None
    stem, suffix = os.path.splitext(path)
    return f"{stem}.rank{world.rank}{suffix}"
