"""One batch: read, decode, augment, replace what is bad, mix, convert. Its rows are made by many threads."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastfeed.backends.base import Backend
from fastfeed.backends.cpu.mixing import mix_labels
from fastfeed.decode.base import Engine
from fastfeed.faults import FaultPolicy
from fastfeed.feed.annotations import Annotations, annotator, clear
from fastfeed.feed.loader import LoadedSamples, Loader, Read
from fastfeed.feed.mix_groups import BatchRows
from fastfeed.feed.quarantine import Quarantine
from fastfeed.feed.readahead import ReadAhead, Ticket
from fastfeed.feed.substitutes import substitutes
from fastfeed.ops.mix_plan import Mixed
from fastfeed.ops.program.program import Program
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.buffers import BufferPool
from fastfeed.runtime.thread_pool import CancelToken, ParallelJob
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling.plan import Plan
from fastfeed.sampling.rng import uniform
from fastfeed.sources.base import Annotated, Fetching, Source

__all__ = ["BatchBuilder", "Branch"]

_READ_BYTES = 32 << 20  # encoded bytes that one task holds before it decodes them
_READ_WHOLE = 512 << 20  # where one task makes a whole batch, for a GPU that wants many images at once


class Branch:
    """One program and where its images go; a second one only for views of a second size."""

    def __init__(self, program: Program, backend: Backend, batch: int, keep: int) -> None:
        self.program, self.backend = program, backend
        self.buffers = BufferPool((batch, *program.shape), program.spec.dtype, keep, backend.empty)

    def black(self) -> Any:
        """A black pixel as `render` leaves it, shaped to fill any image."""
        program = self.backend.rendered
        level = self.backend.xp.asarray(np.array(program.convert.offset, program.spec.dtype))
        return level[:, None, None] if program.convert.layout == "CHW" else level


@dataclass(slots=True)
class _PendingBatch:
    """One batch under way. Arrays have an entry per row made, of which some may lie around the batch."""

    epoch: int
    step: int
    number: int  # of the batch, for the timeline
    stop: CancelToken
    ahead: ReadAhead | None
    rows: BatchRows
    ids: np.ndarray  # changed where samples are replaced
    keys: np.ndarray  # whose random numbers
    weights: np.ndarray  # 0 where samples are masked
    outs: list[np.ndarray] = field(default_factory=list)  # the batch's images, per branch
    draws: list[list[np.ndarray]] = field(default_factory=list)  # per branch
    mixed: Mixed | None = None  # of the batch's own rows
    marks: Annotations = field(default_factory=Annotations)  # boxes and masks of the batch's own rows


class BatchBuilder:
    """Makes the jobs that make batches."""

    def __init__(
        self,
        source: Source,
        branches: Sequence[Branch],
        plan: Plan,
        engine: Engine,
        quarantine: Quarantine,
        timeline: Timeline,
        chunk: int,
        weigh: bool = True,  # by the source's weights, where it has any
    ) -> None:
        self.source, self.plan = source, plan
        self._said, self._weigh = source if isinstance(source, Annotated) else None, weigh
        self.branches = list(branches)
        self.quarantine, self.timeline = quarantine, timeline
        whole = self.backend.whole_batches
        self._loader = Loader(source, engine, quarantine, _READ_WHOLE if whole else _READ_BYTES)
        self._policy: FaultPolicy = quarantine.policy
        self._annotator = annotator(source, self.program)
        mix = self.program.mix
        self._group = mix.op.group if mix is not None else 1
        self._chunk = plan.batch + 2 * self._group if whole else chunk

    @property
    def program(self) -> Program:
        """Of the first branch: what belongs to samples, not to images, is there."""
        return self.branches[0].program

    @property
    def backend(self) -> Backend:
        """Of the first branch; the others' are of the same kind."""
        return self.branches[0].backend

    def sibling(self, branches: Sequence[Branch]) -> BatchBuilder:
        """One that makes the same batches through other programs."""
        other = copy.copy(self)
        other.branches = list(branches)
        return other

    def ahead(self) -> ReadAhead | None:
        """What begins the reads of one walk early, where that is worth it."""
        return ReadAhead(self.source) if isinstance(self.source, Fetching) and self.source.remote else None

    def job(
        self, epoch: int, step: int, number: int, stop: CancelToken, ahead: ReadAhead | None = None
    ) -> ParallelJob[Batch]:
        """The batch of one step; `number` counts batches for the timeline."""
        plan = self.plan
        rows = BatchRows.around(plan.first(step), plan.batch, self._group)
        visits = plan.at(epoch, rows.positions)
        weights = np.ones(rows.count, np.float32)
        weights[rows.own] = plan.weights(step)
        this = _PendingBatch(epoch, step, number, stop, ahead, rows, visits.ids, visits.keys, weights)
        tickets = self._begin(this.ids, ahead)
        wanted = this.ids.copy()  # rows of `ids` change as samples are replaced
        beginning = threading.Lock()

        def read(some: list[int]) -> list[Any]:
            if ahead is None:
                return self.source.read(wanted[some].tolist())
            return [ahead.take(tickets.pop(row), stop.is_set) for row in some]

        def part(first: int, last: int) -> Callable[[], None]:
            def fill() -> None:
                with self.backend.device_context():
                    with beginning:  # queued jobs hold no memory
                        if not this.outs:
                            self._start(this)
                    self._make(this, first, last, read)

            return fill

        def finish() -> Batch:
            self.backend.synchronize()
            if ahead is not None:
                ahead.drop(tickets.values())  # found to be bad since they were begun
            return self._batch(this)

        return ParallelJob(stop, [part(first, last) for first, last in rows.chunks(self._chunk)], finish)

    def _batch(self, this: _PendingBatch) -> Batch:
        own = this.rows.own
        ids, weights = this.ids[own], this.weights[own]
        said = self._said.weights(ids) if self._said is not None and self._weigh else None
        if said is not None:
            weights *= said
        columns = self._said.columns(ids) if self._said is not None else {}
        views = tuple(this.outs) if self.program.views else ()
        objects, masks = this.marks.objects, this.marks.masks
        labels = self._labels(this)
        return Batch(this.outs[0], labels, weights, ids, this.epoch, this.step, columns, views, objects, masks)

    def _labels(self, this: _PendingBatch) -> np.ndarray:
        """int64 (batch,), or what the program makes of them: float32 (batch, classes)."""
        labels, targets = self.source.label(this.ids), self.program.targets
        if targets is None:
            return labels[this.rows.own]
        soft = targets.of(labels)
        return soft[this.rows.own] if this.mixed is None else mix_labels(soft, this.rows.members, this.mixed)

    def _begin(self, ids: np.ndarray, ahead: ReadAhead | None) -> dict[int, Ticket]:
        """Begin to read the rows of a batch that are not known to be bad."""
        if ahead is None:
            return {}
        fresh = np.flatnonzero(~self.quarantine.known(ids)).tolist()
        return dict(zip(fresh, ahead.begin(ids[fresh].tolist()), strict=True))

    def _start(self, this: _PendingBatch) -> None:
        """Take memory, and draw all random numbers."""
        this.draws = [self._draws(branch, this.epoch, this.keys) for branch in self.branches]
        mix = self.program.mix
        if mix is not None:
            u = uniform(self.plan.seed, this.epoch, this.keys[this.rows.own], mix.slot, mix.op.draws)
            this.mixed = mix.op.mixed(u, self.program.done.size)
        this.marks = self._annotator.none(self.plan.batch, mixed=mix is not None)
        this.outs = [branch.buffers.take() for branch in self.branches]

    def _draws(self, branch: Branch, epoch: int, keys: np.ndarray) -> list[np.ndarray]:
        return branch.program.draw(lambda slot, n: uniform(self.plan.seed, epoch, keys, slot, n))

    def _make(self, this: _PendingBatch, first: int, last: int, read: Read) -> None:
        """Rows [first, last) of those made."""
        if this.mixed is None:
            self._fill(this, first, last, [out[first:last] for out in this.outs], this.marks[first:last], read)
            return
        rendered = self.backend.rendered
        made = self.backend.empty((last - first, *rendered.shape), rendered.spec.dtype)
        marks = self._annotator.none(last - first)
        masked = self._fill(this, first, last, [made], marks, read)
        begin, end = this.rows.within(first, last)
        if this.stop.is_set() or begin >= end:
            return
        members, mixed = this.rows.members[begin:end] - first, this.mixed[begin:end]
        if masked:  # black, and no label to mix in
            alone = np.isin(members, masked).any(axis=1)
            mixed.how[alone], mixed.shares[alone] = 0, 0
            mixed.shares[alone, 0] = 1
        with self.timeline.span("mix", this.number):
            self.backend.mix(made, members, mixed, this.outs[0][begin:end])
            self._annotator.mix(marks, members, mixed, this.marks[begin:end])

    def _fill(
        self, this: _PendingBatch, first: int, last: int, outs: list[np.ndarray], marks: Annotations, read: Read
    ) -> list[int]:
        """Make these rows; `ids` and `weights` are changed where samples are replaced or masked: the latter's rows."""
        at, masked = first, []
        while at < last and not this.stop.is_set():

            def read_on(rows: list[int], at: int = at) -> list[Any]:
                return read([at + row for row in rows])

            with self.timeline.span("read", this.number):
                rows = self._loader.load(this.ids[at:last], this.stop, read_on)  # as many as fit into memory
            here = slice(at - first, at - first + len(rows.ids))
            draws = [[u[at:] for u in draws] for draws in this.draws]
            self._render(rows, draws, [out[here] for out in outs], marks[here], this)
            if this.stop.is_set():
                break
            self._note(rows, this)
            for row in sorted(at + row for row in rows.bad):
                if self._policy.action == "mask":
                    this.weights[row] = 0
                    masked.append(row - first)
                else:
                    one = slice(row - first, row - first + 1)
                    this.ids[row] = self._substitute(row, [out[one] for out in outs], marks[one], this)
            at += len(rows.ids)
        return masked

    def _substitute(self, row: int, outs: list[np.ndarray], marks: Annotations, this: _PendingBatch) -> int:
        """Put the first good one of the substitutes into a row; its id."""
        plan, id = self.plan, int(this.ids[row])
        places = substitutes(plan.seed, this.epoch, int(this.keys[row]), self._policy.attempts, plan.length)
        for other in plan.at(this.epoch, places).ids:
            one = np.array([other])
            with self.timeline.span("read", this.number):
                rows = self._loader.load(one, this.stop, lambda _, one=one: self._read_now(one, this))
            self._render(rows, [self._draws(branch, this.epoch, one) for branch in self.branches], outs, marks, this)
            if this.stop.is_set():
                return id
            self._note(rows, this, turn=False)
            if not rows.bad:
                return int(other)
        self.quarantine.exhausted(id)
        return id

    def _read_now(self, ids: np.ndarray, this: _PendingBatch) -> list[Any]:
        """Samples that nobody began to read."""
        if this.ahead is None:
            return self.source.read(ids.tolist())
        return [this.ahead.take(ticket, this.stop.is_set) for ticket in this.ahead.begin(ids.tolist())]

    def _note(self, rows: LoadedSamples, this: _PendingBatch, turn: bool = True) -> None:
        self.quarantine.good(len(rows.ids) - len(rows.bad), turn)
        if rows.bad:
            fresh = [failure for failure in rows.bad.values() if failure is not None]
            known = [int(rows.ids[row]) for row, failure in rows.bad.items() if failure is None]
            self.quarantine.bad(fresh, this.epoch, this.step, known=known, turn=turn)

    def _render(
        self,
        rows: LoadedSamples,
        draws: list[list[np.ndarray]],
        outs: list[np.ndarray],
        marks: Annotations,
        this: _PendingBatch,
    ) -> None:
        """Decode and augment the rows that are good so far; the others become black."""
        for branch, some, out in zip(self.branches, draws, outs, strict=True):
            work = rows.work(branch.program, some)
            self._annotator.mark(rows.ids, rows.headers, work, rows.bad, marks)
            good = [row for row in range(len(rows.ids)) if row not in rows.bad]
            target = out
            if len(good) < len(out):
                target = branch.backend.empty((len(good), *out.shape[1:]), out.dtype.name)
            if good:
                blobs, headers = [rows.blobs[r] for r in good], [rows.headers[r] for r in good]
                done = branch.backend.render(blobs, headers, work[good], target, this.stop, this.number)
                for row, why in zip(good, done, strict=True):
                    if why is not None:
                        rows.bad[row] = self._loader.failure(rows.ids[row], why)
            if target is not out:
                out[good] = target
        if rows.bad:
            for branch, out in zip(self.branches, outs, strict=True):
                out[sorted(rows.bad)] = branch.black()
            clear(marks, sorted(rows.bad))
