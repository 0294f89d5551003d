"""Activities of every host thread as sets of nanoseconds, and each process's main thread."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np

from fastfeed.profiler.attribution.classify import (
    INPUT_ACTIVITIES,
    Activity,
    call_activities,
    range_activities,
)
from fastfeed.profiler.attribution.host_code.frames import Frames
from fastfeed.profiler.attribution.host_code.kinds import (
    PINS,
    CodeSpans,
    ThreadCode,
    classify_code,
    process_launches,
)
from fastfeed.profiler.attribution.launches import (
    LOADS_NS,
    calls_by_id,
    is_first_use,
    is_long_call,
    launch_calls,
)
from fastfeed.profiler.model.columns import pick, unique_values
from fastfeed.profiler.model.intervals import overlap, spans, spans_at, union
from fastfeed.profiler.model.trace import RangeKind, Trace, concatenated

_TF_DATA_OPS = re.compile("^(IteratorGetNext|OptionalGetValue|MultiDeviceIteratorGetNextFromShard)")
# what a runtime's own thread is inside of when it brings data and work to a device
_FEEDING = re.compile(
    r"BufferSequencingEvent|Pj[Rr]t|PJRT|Xla|Thunk|Execut|Dispatch|CopyTo|TransferTo|BufferFromHost|Linearize|H2D|^aten::"
)
_QUERY_NS = 100_000
_CONTENTION = len(Activity)  # an extra code after the last Activity

Value = TypeVar("Value")


def _kept(method: Callable[..., Value]) -> Callable[..., Value]:
    """A method of Host that computes once; a cache of bound methods would keep Host from its end."""

    @wraps(method)
    def compute(host: Host, *arguments: int) -> Value:
        key = (method.__name__, *arguments)
        if key not in host.kept:
            host.kept[key] = method(host, *arguments)
        return host.kept[key]

    return compute


class Host:
    """Host activity of one trace. Sets are computed on first use and cached."""

    def __init__(self, trace: Trace, input_range: str = "") -> None:
        self.trace = trace
        self.kept: dict[tuple[Any, ...], Any] = {}  # results of methods by name and arguments
        ranges = trace.ranges
        calls = trace.calls
        sched = trace.sched
        self.range_activity = range_activities(trace, input_range)
        self.launch = launch_calls(trace)
        self.is_long_call = is_long_call(trace)
        self.is_first_use = is_first_use(trace)
        self.call_activity = self._classify_calls()
        self.frames: dict[int, Frames] = {}  # of the threads that launch, and of main threads
        self.working: list[int] = []  # threads that launch more than copies to the device
        self.code = self._classify_code()
        self._pinning_is_input()
        unready = np.full(len(sched.start), _CONTENTION, np.uint8)
        nameless = np.full(len(sched.start), -1, np.int32)
        code = self.code
        self.start = np.concatenate([ranges.start, calls.start, sched.start, code.start])
        self.end = np.concatenate([ranges.end, calls.end, sched.end, code.end])
        self.name = np.concatenate([ranges.name, calls.name, nameless, code.name])
        self.thread = np.concatenate([ranges.thread, calls.thread, sched.thread, code.thread])
        self.activity = np.concatenate(
            [self.range_activity, self.call_activity, unready, code.activity]
        )
        order = np.lexsort((self.start, self.activity, self.thread))
        self._order = order
        self._key = self.thread[order].astype(np.int64) * (_CONTENTION + 1) + self.activity[order]

    def _classify_calls(self) -> np.ndarray:
        """Classifies calls by name. A long first launch loads its kernel."""
        activity = call_activities(self.trace)
        calls = self.trace.calls
        first = self.launch[self.is_first_use & (self.launch >= 0)]
        loading = first[
            (calls.end[first] - calls.start[first] > LOADS_NS)
            & (activity[first] == Activity.LAUNCH)
        ]
        activity[loading] = Activity.LOAD
        # attribute and occupancy queries load a kernel once; after that they are part of launching
        activity[(activity == Activity.LOAD) & (calls.end - calls.start < _QUERY_NS)] = (
            Activity.LAUNCH
        )
        return activity

    def _classify_code(self) -> CodeSpans:
        """Long stretches of code without a launch, on the threads that could have launched."""
        parts = [CodeSpans.none()]
        for process in unique_values(self.trace.ops.process).tolist():
            launches = process_launches(self.trace, process, self.launch)
            main_thread = self.main_thread(process)
            working = unique_values(launches.thread).tolist()
            self.working += working
            for thread in sorted({*working, main_thread} - {-1}):
                code = ThreadCode.of(self.trace, thread, launches, self.range_activity)
                self.frames[thread] = code.frames
                parts.append(classify_code(code))
        return concatenated(*parts)

    def _pinning_is_input(self) -> None:
        """Classify pinning of host memory during batch preparation as input, not allocation."""
        calls = self.trace.calls
        code = self.code
        rows = np.flatnonzero(self.call_activity == Activity.ALLOC)
        rows = rows[self.trace.matches(calls.name[rows], PINS)]
        for thread in unique_values(calls.thread[rows]).tolist():
            own = rows[calls.thread[rows] == thread]
            prepares = np.flatnonzero(
                (code.thread == thread) & np.isin(code.activity, INPUT_ACTIVITIES)
            )
            at_work = union(spans_at(code, prepares))
            is_input = overlap(spans(calls.start[own], calls.start[own] + 1), at_work) > 0
            self.call_activity[own[is_input]] = Activity.NOTHING

    def rows(self, thread: int, activity: int) -> np.ndarray:
        """Indexes into `start`, `end`, `name` of one thread's spans of this activity, by start."""
        key = thread * (_CONTENTION + 1) + activity
        first, last = np.searchsorted(self._key, [key, key + 1])
        return self._order[first:last]

    @_kept
    def activity_spans(self, thread: int, activity: int) -> np.ndarray:
        """The set of nanoseconds in which a thread had this activity."""
        rows = self.rows(thread, activity)
        if activity == Activity.COMPILE and len(self.trace.processes) == 1:
            # compilation whose thread is not recorded
            rows = np.concatenate([rows, self.rows(-1, activity)])
        return union(spans_at(self, rows))

    def input_spans(self, thread: int) -> np.ndarray:
        """Spans in which a thread waited for input, or prepared it itself."""
        return union(*(self.activity_spans(thread, activity) for activity in INPUT_ACTIVITIES))

    @cached_property
    def wait_calls(self) -> tuple[np.ndarray, np.ndarray]:
        """Indexes into Trace.calls of each wait and of its event's recording; -1 unknown."""
        trace = self.trace
        waits = self.trace.waits
        waiting = calls_by_id(trace, waits.process, waits.corr)
        return waiting, calls_by_id(trace, waits.process, waits.on_corr)

    @_kept
    def device_work(self, process: int) -> np.ndarray:
        """When any device of this process did anything."""
        ops = self.trace.ops
        return union(spans_at(ops, ops.process == process))

    def feeding_threads(self, thread: int) -> list[int]:
        """The other threads of the same process, those that launch most first."""
        threads = self.trace.threads
        calls = self.trace.calls
        launches = np.bincount(calls.thread[self.launch[self.launch >= 0]], minlength=len(threads))
        others = [
            index
            for index, other in enumerate(threads)
            if other.process == threads[thread].process and index != thread
        ]
        return sorted(others, key=lambda other: -int(launches[other]))

    def feeding_spans(self, thread: int, activity: Activity) -> np.ndarray:
        """Like `activity_spans`; inside a framework, only what brings data and work to devices."""
        if activity != Activity.FRAMEWORK:
            return self.activity_spans(thread, activity)
        rows = self.rows(thread, activity)
        rows = rows[self.trace.matches(self.name[rows], _FEEDING)]
        return union(spans_at(self, rows))

    def contention(self, thread: int) -> np.ndarray:
        """When the thread was ready to run but had no core."""
        return self.activity_spans(thread, _CONTENTION)

    def innermost_name(self, thread: int, activity: int, at: np.ndarray) -> np.ndarray:
        """Name of the innermost range of an activity around each instant: int32, or -1."""
        return pick(self.name, self.innermost_row(self.rows(thread, activity), at), -1)

    def innermost_row(self, rows: np.ndarray, at: np.ndarray) -> np.ndarray:
        """The innermost of these rows, ordered by start, around each instant: int64, or -1."""
        result = np.full(len(at), -1, np.int64)
        if not len(rows):
            return result
        candidate = np.searchsorted(self.start[rows], at, side="right") - 1
        remaining = np.flatnonzero(candidate >= 0)
        for _ in range(
            16
        ):  # skips ranges that have already ended; deeper nesting is not worth the search
            if not len(remaining):
                break
            row = rows[candidate[remaining]]
            covers = self.end[row] > at[remaining]
            result[remaining[covers]] = row[covers]
            remaining = remaining[~covers]
            candidate[remaining] -= 1
            remaining = remaining[candidate[remaining] >= 0]
        return result

    def tf_data_waits(self, thread: int) -> np.ndarray:
        """When any thread of the same process was in the op that fetches a batch from tf.data."""
        return self._process_waits(self.trace.threads[thread].process if thread >= 0 else -1)

    @_kept
    def _process_waits(self, process: int) -> np.ndarray:
        trace = self.trace
        ranges = self.trace.ranges
        in_process = trace.thread_processes(ranges.thread) == process
        return union(spans_at(ranges, in_process & trace.matches(ranges.name, _TF_DATA_OPS)))

    @_kept
    def main_thread(self, process: int) -> int:
        """The thread with the steps, else most input waits, else most Python; -1 none."""
        trace = self.trace
        threads = np.array(
            [index for index, thread in enumerate(trace.threads) if thread.process == process],
            np.int32,
        )
        if not len(threads):
            return -1
        ranges = trace.ranges
        in_process = np.isin(ranges.thread, threads)
        launching = unique_values(trace.calls.thread[self.launch[self.launch >= 0]])
        for evidence in (
            ranges.kind == RangeKind.STEP,
            self.range_activity == Activity.INPUT,
            (ranges.kind == RangeKind.PYTHON) & np.isin(ranges.thread, launching),
            np.isin(
                self.range_activity, (Activity.PYTHON, Activity.FRAMEWORK, Activity.CHECKPOINT)
            ),
        ):
            rows = np.flatnonzero(in_process & evidence)
            if len(rows):
                return int(np.argmax(np.bincount(ranges.thread[rows])))
        pid = trace.processes[process].pid
        return next((int(index) for index in threads if trace.threads[index].tid == pid), -1)
