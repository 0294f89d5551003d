"""What a feed's batches are made with; pickles, so that a helper process can make the same ones."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from fastfeed.backends.base import BackendModule
from fastfeed.decode import engine_for
from fastfeed.feed.batch_builder import BatchBuilder, Branch
from fastfeed.feed.quarantine import Quarantine
from fastfeed.ops.program.compile import Program
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling.plan import Plan
from fastfeed.sources.base import Source

__all__ = ["FeedConfig"]

_CHUNK = 32  # samples per task: enough to vectorise over


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """Values alone; nothing is built, opened or started yet."""

    source: Source
    program: Program
    plan: Plan
    backend: str  # module
    decode: Any  # how it decodes
    threads: int
    buffers: int  # batches whose memory is used again
    weigh: bool  # by the source's weights, where it has any

    def builders(self, quarantine: Quarantine, timeline: Timeline) -> tuple[BatchBuilder, BatchBuilder]:
        """What makes batches, and what makes them raw."""
        plan, threads = self.plan, self.threads
        module = cast(BackendModule, importlib.import_module(self.backend))
        engine = engine_for(self.program, module.engine(self.decode))
        group = self.program.mix.op.group if self.program.mix is not None else 1
        backend = partial(
            module.compile,
            engine=engine,
            timeline=timeline,
            batch=plan.batch + 2 * (group - 1),  # a group that a batch cuts is made whole
            threads=threads,
            gpu=plan.world.gpu,
            decode=self.decode,
        )

        def branches(programs: list[Program]) -> list[Branch]:
            return [Branch(program, backend(program), plan.batch, self.buffers) for program in programs]

        programs = [self.program, *self.program.others]
        chunk = max(1, min(_CHUNK, -(-plan.batch // threads)))
        made = BatchBuilder(self.source, branches(programs), plan, engine, quarantine, timeline, chunk, self.weigh)
        return made, made.sibling(branches([program.raw() for program in programs]))
