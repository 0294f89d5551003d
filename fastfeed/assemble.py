"""One batch: read, decode, replace what is bad, convert. The rows of a batch are made by many threads."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.backends.base import Backend
from fastfeed.batch import Batch
from fastfeed.decode.base import Bad, Engine, Header
from fastfeed.draws import uniform
from fastfeed.faults import Failure, FaultPolicy, substitutes
from fastfeed.ops.boxes import parts
from fastfeed.ops.fuse import Program, Work
from fastfeed.plan import Plan
from fastfeed.prefetch import Cancel, Job
from fastfeed.quarantine import Quarantine
from fastfeed.readahead import ReadAhead, Ticket
from fastfeed.slots import Slots
from fastfeed.sources.base import Annotated, Fetching, Source
from fastfeed.timeline import Timeline

__all__ = ["Assembler"]

_BLACK = Header(1, 1, "array")
_READ_AT_ONCE = 4  # samples per call of source.read
_READ_BYTES = 32 << 20  # encoded bytes that one task holds before it decodes them
_READ_WHOLE = 512 << 20  # where one task makes a whole batch, for a GPU that wants many images at once

Read = Callable[[list[int]], list[Any]]  # rows of a batch -> bytes or Failure each


@dataclass(slots=True)
class _Rows:
    """Samples on their way to pixels, all of equal length; `bad` ones have no blob."""

    ids: np.ndarray
    blobs: list[Any]
    headers: list[Header]
    work: Work
    bad: dict[int, Failure | None]  # row -> why; None for a sample that was known to be bad


@dataclass(frozen=True, slots=True)
class _Step:
    """What is being made."""

    epoch: int
    step: int
    number: int  # of the batch, for the timeline
    stop: Cancel
    ahead: ReadAhead | None


class Assembler:
    """Makes the jobs that make batches."""

    def __init__(
        self,
        source: Source,
        program: Program,
        plan: Plan,
        engine: Engine,
        backend: Backend,
        quarantine: Quarantine,
        timeline: Timeline,
        chunk: int,
        slots: int,
        weigh: bool = True,  # by the source's weights, where it has any
    ) -> None:
        self.source, self.program, self.plan = source, program, plan
        self._said, self._weigh = source if isinstance(source, Annotated) else None, weigh
        self.engine, self.backend = engine, backend
        self.quarantine, self.timeline = quarantine, timeline
        self._chunk = plan.batch if backend.whole else chunk
        self._most = _READ_WHOLE if backend.whole else _READ_BYTES
        self._policy: FaultPolicy = quarantine.policy
        shape = (plan.batch, *(side or 0 for side in program.spec.shape))
        self.slots = Slots(shape, program.spec.dtype, slots, backend.empty)

    def sibling(self, program: Program, backend: Backend) -> Assembler:
        """One that makes the same batches through another program."""
        other = copy.copy(self)
        other.program, other.backend = program, backend
        other.slots = self.slots.like(
            (self.plan.batch, *(side or 0 for side in program.spec.shape)), program.spec.dtype
        )
        return other

    def ahead(self) -> ReadAhead | None:
        """What begins the reads of one walk early, where that is worth it."""
        return ReadAhead(self.source) if isinstance(self.source, Fetching) and self.source.remote else None

    def job(self, epoch: int, step: int, number: int, stop: Cancel, ahead: ReadAhead | None = None) -> Job[Batch]:
        """The batch of one step; `number` counts batches for the timeline."""
        plan = self.plan
        this = _Step(epoch, step, number, stop, ahead)
        visits, weights = plan.visits(epoch, step), plan.weights(step)
        ids, keys = visits.ids, visits.keys
        tickets = self._begin(ids, ahead)
        wanted = ids.copy()  # rows of `ids` change as samples are replaced
        begun: list[tuple[np.ndarray, list[np.ndarray]]] = []  # when work begins: queued jobs hold no memory
        beginning = threading.Lock()

        def begin() -> tuple[np.ndarray, list[np.ndarray]]:
            with beginning:
                if not begun:
                    begun.append((self.slots.take(), self._draws(epoch, keys)))
                return begun[0]

        def read(rows: list[int]) -> list[Any]:
            if ahead is None:
                return self.source.read(wanted[rows].tolist())
            return [ahead.take(tickets.pop(row), stop.is_set) for row in rows]

        def part(first: int) -> Callable[[], None]:
            rows = slice(first, min(first + self._chunk, plan.batch))

            def read_some(wanted: list[int]) -> list[Any]:
                return read([first + row for row in wanted])

            def fill() -> None:
                with self.backend.here():
                    out, draws = begin()
                    some = [u[rows] for u in draws]
                    self._fill(ids[rows], keys[rows], weights[rows], out[rows], some, this, read_some)

            return fill

        def finish() -> Batch:
            self.backend.settle()
            if ahead is not None:
                ahead.drop(tickets.values())  # found to be bad since they were begun
            own = self._said.weights(ids) if self._said is not None and self._weigh else None
            if own is not None:
                weights[:] *= own
            columns = self._said.columns(ids) if self._said is not None else {}
            return Batch(begin()[0], self.source.label(ids), weights, ids, epoch, step, columns)

        return Job(stop, [part(first) for first in range(0, plan.batch, self._chunk)], finish)

    def _begin(self, ids: np.ndarray, ahead: ReadAhead | None) -> dict[int, Ticket]:
        """Begin to read the rows of a batch that are not known to be bad."""
        if ahead is None:
            return {}
        fresh = np.flatnonzero(~self.quarantine.known(ids)).tolist()
        return dict(zip(fresh, ahead.begin(ids[fresh].tolist()), strict=True))

    def _draws(self, epoch: int, ids: np.ndarray) -> list[np.ndarray]:
        return self.program.draw(lambda slot, n: uniform(self.plan.seed, epoch, ids, slot, n))

    def _fill(
        self,
        ids: np.ndarray,
        keys: np.ndarray,
        weights: np.ndarray,
        out: np.ndarray,
        draws: list[np.ndarray],
        this: _Step,
        read: Read,
    ) -> None:
        """Make these rows; `ids` and `weights` are changed in place where samples are replaced or masked."""
        first = 0
        while first < len(ids) and not this.stop.is_set():

            def read_on(rows: list[int], first: int = first) -> list[Any]:
                return read([first + row for row in rows])

            some = [u[first:] for u in draws]
            rows = self._load(ids[first:], some, this, read_on)  # as many as fit into memory
            self._render(rows, out[first : first + len(rows.ids)], this)
            if this.stop.is_set():
                return
            self._note(rows, this)
            for row in sorted(rows.bad):
                at = first + row
                if self._policy.action == "mask":
                    weights[at] = 0
                else:
                    ids[at] = self._substitute(int(ids[at]), int(keys[at]), out[at : at + 1], this)
            first += len(rows.ids)

    def _substitute(self, id: int, key: int, out: np.ndarray, this: _Step) -> int:
        """Put the first good one of the substitutes into a row; its id."""
        plan = self.plan
        places = substitutes(plan.seed, this.epoch, key, self._policy.attempts, plan.length)
        for other in plan.at(this.epoch, places).ids:
            one = np.array([other])
            rows = self._load(one, self._draws(this.epoch, one), this, lambda _, one=one: self._read_now(one, this))
            self._render(rows, out, this)
            if this.stop.is_set():
                return id
            self._note(rows, this, turn=False)
            if not rows.bad:
                return int(other)
        self.quarantine.exhausted(id)
        return id

    def _read_now(self, ids: np.ndarray, this: _Step) -> list[Any]:
        """Samples that nobody began to read."""
        if this.ahead is None:
            return self.source.read(ids.tolist())
        return [this.ahead.take(ticket, this.stop.is_set) for ticket in this.ahead.begin(ids.tolist())]

    def _note(self, rows: _Rows, this: _Step, turn: bool = True) -> None:
        self.quarantine.good(len(rows.ids) - len(rows.bad), turn)
        if rows.bad:
            fresh = [failure for failure in rows.bad.values() if failure is not None]
            known = [int(rows.ids[row]) for row, failure in rows.bad.items() if failure is None]
            self.quarantine.bad(fresh, this.epoch, this.step, known=known, turn=turn)

    def _load(self, ids: np.ndarray, draws: list[np.ndarray], this: _Step, read: Read) -> _Rows:
        """Read, probe, and work out the windows; of the first of these ids, up to `_most` bytes."""
        bad: dict[int, Failure | None] = {}
        with self.timeline.span("read", this.number):
            blobs = self._read(ids, bad, this.stop, read)
        ids = ids[: len(blobs)]
        headers = [_BLACK] * len(ids)
        there = [row for row in range(len(ids)) if row not in bad]
        for row, header in zip(there, self.engine.probe([blobs[row] for row in there]), strict=True):
            if isinstance(header, Bad):
                bad[row] = self._failure(ids[row], header)
            else:
                headers[row] = header
        sizes = np.array([(h.height, h.width) for h in headers], np.int64).reshape(-1, 2)
        corners, sizes = self._parts(ids, sizes, bad)
        work = self.program.work([u[: len(ids)] for u in draws], sizes)
        work.windows.boxes[:, :2] += corners
        if work.windows.limits is not None:
            work.windows.limits[:, :2] += corners
        return _Rows(ids, blobs, headers, work, bad)

    def _parts(
        self, ids: np.ndarray, sizes: np.ndarray, bad: dict[int, Failure | None]
    ) -> tuple[np.ndarray | float, np.ndarray]:
        """The part of each image that counts, in whole pixels: its top left corners and (height, width)."""
        boxes = self._said.boxes(ids) if self._said is not None else None
        if boxes is None:
            return 0.0, sizes
        first, sizes, outside = parts(boxes, sizes)
        for row, why in outside.items():
            bad.setdefault(row, self._failure(ids[row], Bad("corrupt", why)))
        return first, sizes

    def _read(self, ids: np.ndarray, bad: dict[int, Failure | None], stop: Cancel, read: Read) -> list[Any]:
        """Blobs of the first samples; in `bad` those without one. A few at a time, so that a stop is seen soon."""
        known = self.quarantine.known(ids)
        blobs: list[Any] = []
        held = 0
        while len(blobs) < len(ids) and held < self._most and not (blobs and stop.is_set()):
            rows = range(len(blobs), min(len(blobs) + _READ_AT_ONCE, len(ids)))
            wanted = [row for row in rows if not known[row]]
            found = read(wanted) if wanted else []
            if len(found) != len(wanted):
                raise TypeError(f"{type(self.source).__name__}.read({len(wanted)} ids) gave {len(found)} entries")
            there = dict(zip(wanted, found, strict=True))
            for row in rows:
                blob = there.get(row)
                if blob is None or isinstance(blob, Failure):
                    bad[row], blob = blob, None
                else:
                    held += len(blob) if isinstance(blob, bytes) else 0
                blobs.append(blob)
        return blobs

    def _render(self, rows: _Rows, out: np.ndarray, this: _Step) -> None:
        """Decode and convert the rows that are good so far; the others become black."""
        good = [row for row in range(len(rows.ids)) if row not in rows.bad]
        target = out if len(good) == len(out) else self.backend.empty((len(good), *out.shape[1:]), out.dtype.name)
        if good:
            blobs, headers = [rows.blobs[r] for r in good], [rows.headers[r] for r in good]
            done = self.backend.render(blobs, headers, rows.work[good], target, this.stop, this.number)
            for row, why in zip(good, done, strict=True):
                if why is not None:
                    rows.bad[row] = self._failure(rows.ids[row], why)
        if target is not out:
            out[good] = target
            out[[row for row in range(len(out)) if row not in good]] = self._black()

    def _black(self) -> Any:
        """A black pixel after conversion, shaped to fill any sample."""
        convert = self.program.convert
        level = self.backend.xp.asarray(np.array(convert.offset, self.program.spec.dtype))
        return level[:, None, None] if convert.layout == "CHW" else level

    def _failure(self, id: Any, why: Bad) -> Failure:
        return Failure(int(id), self.source.uri(int(id)), "decode", why.reason, why.detail)
