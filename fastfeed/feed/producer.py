"""Makes batches ahead of the trainer with this process's threads."""

from __future__ import annotations

import functools
import importlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from fastfeed.backends.base import BackendModule
from fastfeed.decode.executor import Executor, open_executor
from fastfeed.decode.memory_limit import limit_decoding
from fastfeed.feed.batch.builder import BatchBuilder
from fastfeed.feed.batch.readahead import ReadAhead
from fastfeed.feed.batch.rows import Branch
from fastfeed.feed.batch.task_sizes import TaskSizes
from fastfeed.feed.batch_sizes import rows_by_size
from fastfeed.feed.config import BACKENDS, FeedConfig
from fastfeed.feed.faults.quarantine import Quarantine
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.base import Size
from fastfeed.ops.program.program import Program
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.buffers import Allocate, BufferPool
from fastfeed.runtime.placement import flatten
from fastfeed.runtime.thread_pool import CancelToken, ParallelJob, Prefetcher, ThreadPool
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling.plan import Plan
from fastfeed.sources.base import BlockReader

# called with each finished batch ahead of time, for example to copy it to a device; its result is
# yielded
PlaceFunction = Callable[[Batch], Any]

_SIZES_KEPT = 256  # builders


class BatchStream(Protocol):
    """Batches in order, prepared ahead; an error is raised at its batch's turn."""

    def __next__(self) -> Any: ...

    @property
    def ready(self) -> int:
        """Number of batches that can be taken without waiting."""
        ...

    @property
    def closed(self) -> bool:
        """True once no more batches will come."""
        ...

    def close(self) -> None: ...


class Producer(Protocol):
    """Starts streams of batches at any position."""

    def start(
        self,
        epoch: int,
        step: int,
        place: PlaceFunction | None = None,
        raw: bool = False,
        epochs: int | None = None,
    ) -> BatchStream:
        """Batches from a position. `raw`: images stay bytes, and the device converts them."""
        ...

    def use_memory(self, allocate: Allocate) -> None:
        """Allocate images in this memory from now on."""
        ...

    def use_plan(self, plan: Plan) -> None:
        """Make the batches of streams that start from now on in another order. FeedClosed."""
        ...

    @property
    def helper_pid(self) -> int:
        """Process id of a started helper; 0 for threads of this process."""
        ...

    def close(self) -> None: ...


def open_builders(
    config: FeedConfig, quarantine: Quarantine, timeline: Timeline
) -> tuple[BatchBuilder, BatchBuilder]:
    """Open the builder of batches, and that of raw ones."""
    if config.memory is not None:
        limit_decoding(config.memory)
    plan = config.plan
    threads = config.threads
    program = config.program
    for source in getattr(config.source, "sources", [config.source]):  # of a mixture
        if isinstance(source, BlockReader):
            source.expect(plan.batch * config.buffers)
    module = cast(BackendModule, importlib.import_module(BACKENDS[config.backend]))
    decode = module.engine(config.decode)
    programs = [program, *program.others]
    executors: dict[str, Executor] = {}
    for part in programs:
        if part.image not in executors:
            shared = next(iter(executors.values()), None)
            executors[part.image] = open_executor(part, decode, threads, shared)
    group = program.mix.op.group if program.mix is not None else 1
    lanes = getattr(config.decode, "lanes", 2) if module.whole_batches else 0
    sizes = TaskSizes.of(plan.batch, group, threads, module.native_threads, lanes)

    def branches(
        program: Program, raw: bool, shared: Sequence[Branch] | None = None
    ) -> list[Branch]:
        """Branches of a program; shared: other ones whose memory these use."""
        made = []
        parts = [part.raw() if raw else part for part in (program, *program.others)]
        for k, part in enumerate(parts):
            backend = module.compile(
                part,
                executors[part.image],
                timeline,
                batch=plan.batch + 2 * (group - 1),  # groups at the batch's edges are made whole
                gpu=plan.world.gpu,
                decode=config.decode,
            )
            buffers = None if shared is None else shared[k].buffers
            if shared is None and program.by_size is not None:
                rows = zip(rows_by_size(program, plan), program.sized, strict=True)
                shapes = [(n, *(each, *each.others)[k].shape) for n, each in rows]
                shape = max(shapes, key=math.prod)
                buffers = BufferPool(shape, part.spec.dtype, config.buffers, backend.empty)
            made.append(Branch(part, backend, plan.batch, config.buffers, sizes, buffers))
        return made

    def set_sizes(builder: BatchBuilder, raw: bool) -> None:
        """Let it make batches of several sizes, each by a builder of its sizes."""
        if program.by_size is None:
            return
        program_of = program.by_size.of_sizes

        @functools.lru_cache(_SIZES_KEPT)
        def of_sizes(sizes: tuple[Size, ...]) -> BatchBuilder:
            return builder.with_branches(branches(program_of(sizes), raw, builder.branches))

        builder.of_sizes = of_sizes

    own = branches(program, raw=False)
    builder = BatchBuilder(config, own, executors, quarantine, timeline, sizes)
    if module.whole_batches:  # a GPU converts where it decodes
        return builder, builder
    raw_builder = builder.with_branches(branches(program, raw=True))
    set_sizes(builder, raw=False)
    set_sizes(raw_builder, raw=True)
    return builder, raw_builder


class ThreadProducer:
    """Makes batches with the threads of this process."""

    helper_pid = 0

    def __init__(self, builder: BatchBuilder, raw: BatchBuilder, depth: int) -> None:
        self._builder = builder
        self._raw = raw
        self._depth = depth
        self._pool = ThreadPool(builder.sizes.threads)

    def close(self) -> None:
        """End all threads of this producer."""
        self._pool.close()
        self._builder.close()

    def use_memory(self, allocate: Allocate) -> None:
        for builder in (self._builder, self._raw):
            if builder.backend.xp is np:  # a GPU's batches are in its memory
                for branch in builder.branches:
                    branch.buffers.use_allocator(allocate)

    def use_plan(self, plan: Plan) -> None:
        self._pool.check_open()
        self._builder = self._builder.with_plan(plan)
        self._raw = self._raw.with_plan(plan)

    def start(
        self,
        epoch: int,
        step: int,
        place: PlaceFunction | None = None,
        raw: bool = False,
        epochs: int | None = None,
    ) -> BatchStream:
        builder = self._raw if raw else self._builder
        stop = CancelToken(self._pool)
        read_ahead = builder.read_ahead()
        jobs = _jobs(
            builder, stop, read_ahead, steps_from(builder.plan, epoch, step, epochs), place
        )
        waits = builder.timeline.progress.report_wait

        def close() -> None:
            for reads in read_ahead.values():
                reads.close()

        return Prefetcher(self._pool, jobs, self._depth, stop, waits, close)


def steps_from(plan: Plan, epoch: int, step: int, epochs: int | None) -> Iterator[tuple[int, int]]:
    """Epoch and step of each batch from a position on."""
    first = epoch * plan.steps + step
    last = None if epochs is None else max(0, epochs * plan.steps - step)
    return (
        divmod(position, plan.steps) for position in itertools.islice(itertools.count(first), last)
    )


def _jobs(
    builder: BatchBuilder,
    stop: CancelToken,
    read_ahead: Mapping[str, ReadAhead],
    steps: Iterable[tuple[int, int]],
    place: PlaceFunction | None,
) -> Iterator[ParallelJob[Any]]:
    if place is None and builder.backend.xp is not np:
        place = detached
    for number, (epoch, step) in enumerate(steps):
        job = builder.job(epoch, step, number, stop, read_ahead)
        yield job if place is None else job.then(_timed(builder, place, number))


@runs_on_gpu("dali")
def detached(batch: Batch) -> Batch:
    """The batch in memory of CuPy's default stream, for a loop that takes it as it is.

    Another stream would write to a reused slot as soon as the batch is dropped, though work that is
    queued on it may not have been done. Adapters copy batches, too.
    """
    arrays, rebuild = flatten(batch)
    return rebuild(map(_copied, arrays))


def _copied(array: Any) -> Any:
    """A GPU's array in other memory of that GPU; a host's as it is."""
    if not hasattr(array, "__cuda_array_interface__"):
        return array
    with array.device:
        copied = array.copy()  # on this thread's stream, the default one
        importlib.import_module(
            "cupy"
        ).cuda.get_current_stream().synchronize()  # the slot is free now
    return copied


def _timed(builder: BatchBuilder, place: PlaceFunction, number: int) -> PlaceFunction:
    def placed(batch: Batch) -> Any:
        progress = builder.timeline.progress
        progress.enter(number, "place")
        try:
            with builder.timeline.span("place", number):
                return place(batch)
        finally:
            progress.leave(number)

    return placed
