"""Host threads: what each was doing, as sets of nanoseconds per meaning; and who drives the run."""

from __future__ import annotations

import numpy as np

from fastfeed.profiler.attribution.classify import Doing, call_meanings, range_meanings
from fastfeed.profiler.attribution.launches import LOADS_NS, calls_of, first_use, launches, long_calls
from fastfeed.profiler.model.intervals import empty, spans, union
from fastfeed.profiler.model.trace import RangeKind, Trace

__all__ = ["Host"]

_TAKES_BATCH = ("IteratorGetNext", "OptionalGetValue", "MultiDeviceIteratorGetNextFromShard")
_QUERY_NS = 100_000
_CONTENTION = len(Doing)  # in the same tables as Doing, behind it


class Host:
    """Looks up `what(thread, doing)`; sets are made once, when asked for."""

    def __init__(self, trace: Trace, input_range: str = "") -> None:
        self.trace = trace
        ranges, calls, sched = trace.ranges, trace.calls, trace.sched
        self.range_doing = range_meanings(trace, input_range)
        self.launch = launches(trace)
        self.long = long_calls(trace)
        self.first_use = first_use(trace)
        self.call_doing = self._calls()
        self.start = np.concatenate([ranges.start, calls.start, sched.start])
        self.end = np.concatenate([ranges.end, calls.end, sched.end])
        self.name = np.concatenate([ranges.name, calls.name, np.full(len(sched.start), -1, np.int32)])
        self.thread = np.concatenate([ranges.thread, calls.thread, sched.thread])
        self.doing = np.concatenate(
            [self.range_doing, self.call_doing, np.full(len(sched.start), _CONTENTION, np.uint8)]
        )
        order = np.lexsort((self.start, self.doing, self.thread))
        self._rows = order
        self._key = self.thread[order].astype(np.int64) * (_CONTENTION + 1) + self.doing[order]
        self._sets: dict[tuple[int, int], np.ndarray] = {}
        self._drivers: dict[int, int] = {}
        self._iterators: dict[int, np.ndarray] = {}
        self._wait_calls: tuple[np.ndarray, np.ndarray] | None = None

    def _calls(self) -> np.ndarray:
        """What calls mean by their names; a first launch that takes long loads its kernel."""
        doing, calls = call_meanings(self.trace), self.trace.calls
        first = self.launch[self.first_use & (self.launch >= 0)]
        loading = first[(calls.end[first] - calls.start[first] > LOADS_NS) & (doing[first] == Doing.LAUNCH)]
        doing[loading] = Doing.LOAD
        # queries of attributes and occupancy load a kernel once, and are part of launching ever after
        doing[(doing == Doing.LOAD) & (calls.end - calls.start < _QUERY_NS)] = Doing.LAUNCH
        return doing

    def rows(self, thread: int, doing: int) -> np.ndarray:
        """Indexes into `start`, `end`, `name` of one thread doing one thing, by start."""
        key = thread * (_CONTENTION + 1) + doing
        first, last = np.searchsorted(self._key, [key, key + 1])
        return self._rows[first:last]

    def what(self, thread: int, doing: int) -> np.ndarray:
        """The set of nanoseconds in which this thread did that."""
        found = self._sets.get((thread, doing))
        if found is None:
            rows = self.rows(thread, doing)
            if doing == Doing.COMPILE and len(self.trace.processes) == 1:  # the driver's, of no thread that is known
                rows = np.concatenate([rows, self.rows(-1, doing)])
            found = self._sets[thread, doing] = union(spans(self.start[rows], self.end[rows])) if len(rows) else empty()
        return found

    def wait_calls(self) -> tuple[np.ndarray, np.ndarray]:
        """Per row of Trace.waits, indexes into Trace.calls: of the wait, of the recording of its event; -1 unknown."""
        if self._wait_calls is None:
            waits = self.trace.waits
            waiting, recording = (calls_of(self.trace, waits.process, corr) for corr in (waits.corr, waits.on_corr))
            self._wait_calls = waiting, recording
        return self._wait_calls

    def contention(self, thread: int) -> np.ndarray:
        """When it was ready to run and had no core."""
        return self.what(thread, _CONTENTION)

    def inside(self, thread: int, doing: int, at: np.ndarray) -> np.ndarray:
        """The name of the innermost range of this kind that covers each instant: int32, -1 none found."""
        rows = self.rows(thread, doing)
        names = np.full(len(at), -1, np.int32)
        if not len(rows):
            return names
        candidate = np.searchsorted(self.start[rows], at, side="right") - 1
        open_ = np.flatnonzero(candidate >= 0)
        for _ in range(16):  # ranges that ended before stand between; deeper ones are not worth the search
            if not len(open_):
                break
            row = rows[candidate[open_]]
            hit = self.end[row] > at[open_]
            names[open_[hit]] = self.name[row[hit]]
            open_ = open_[~hit]
            candidate[open_] -= 1
            open_ = open_[candidate[open_] >= 0]
        return names

    def iterators(self, thread: int) -> np.ndarray:
        """When any thread of the same process was inside the operator that takes a batch from tf.data."""
        trace = self.trace
        process = trace.threads[thread].process if thread >= 0 else -1
        if process not in self._iterators:
            taking = [index for index, name in enumerate(trace.names) if name.startswith(_TAKES_BATCH)]
            of = np.array([*(one.process for one in trace.threads), -2])[trace.ranges.thread]
            rows = np.flatnonzero(np.isin(trace.ranges.name, taking) & (of == process))
            self._iterators[process] = union(spans(trace.ranges.start[rows], trace.ranges.end[rows]))
        return self._iterators[process]

    def driver(self, process: int) -> int:
        """The thread that drives a process: it owns the steps, else most waits for input and most Python; -1 none."""
        if process not in self._drivers:
            self._drivers[process] = self._find_driver(process)
        return self._drivers[process]

    def _find_driver(self, process: int) -> int:
        trace = self.trace
        mine = np.array([index for index, thread in enumerate(trace.threads) if thread.process == process], np.int32)
        if not len(mine):
            return -1
        ranges = trace.ranges
        of_mine = np.isin(ranges.thread, mine)
        for told in (
            ranges.kind == RangeKind.STEP,
            self.range_doing == Doing.INPUT,
            np.isin(self.range_doing, (Doing.PYTHON, Doing.FRAMEWORK, Doing.CHECKPOINT)),
        ):
            rows = np.flatnonzero(of_mine & told)
            if len(rows):
                return int(np.argmax(np.bincount(ranges.thread[rows])))
        pid = trace.processes[process].pid
        return next((int(index) for index in mine if trace.threads[index].tid == pid), -1)
