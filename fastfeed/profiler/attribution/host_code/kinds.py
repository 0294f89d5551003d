"""Kinds of code that runs without a launch for a millisecond or more: input, logging, and so on.

No list of loaders decides this. Evidence is the protocol of iterators, a call that blocks at the
innermost frame, a copy of the batch to the device right afterwards, and the place in the step: once
per step, before its first launch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.attribution.classify import INPUT_ACTIVITIES, Activity
from fastfeed.profiler.attribution.host_code.frames import Frames, nest, self_time
from fastfeed.profiler.attribution.host_code.names import Sign, parse, signs
from fastfeed.profiler.model.columns import factorize, unique_values
from fastfeed.profiler.model.intervals import (
    by_start,
    complement,
    intersect,
    overlap,
    spans,
    spans_at,
    subtract,
    union,
)
from fastfeed.profiler.model.trace import Kind, RangeKind, Trace, concatenated

# without a launch: shorter pauses are launching, unless they are input beyond doubt
LONG_NS = 1_000_000
_SHORT_NS = 100_000
_MOST = 0.5  # of a stretch of code, or of the steps
_MIN_BATCH = 65_536  # bytes of a copy to the device: less is an index or a loss weight
_FRAMES = (RangeKind.NVTX, RangeKind.OP, RangeKind.PYTHON, RangeKind.FEED)
PINS = re.compile("hostalloc|mallochost|hostregister", re.IGNORECASE)
_KNOWN = (  # by the names of ranges
    Activity.INPUT,
    Activity.CHECKPOINT,
    Activity.COMPILE,
    Activity.SYNC,
    Activity.HOST_COMM,
    Activity.GC,
    Activity.GIL,
)


# kinds of functions
_USUAL = (
    Activity.INPUT,
    Activity.INPUT_IN_THREAD,
    Activity.CHECKPOINT,
    Activity.ENVIRONMENT,
)


@dataclass(frozen=True, slots=True)
class CodeSpans:
    """Stretches of code with their kind. Columns of length n."""

    start: np.ndarray  # int64
    end: np.ndarray  # int64
    name: np.ndarray  # int32, index into Trace.names: the function
    thread: np.ndarray  # int32
    activity: np.ndarray  # uint8, an Activity
    assumed: np.ndarray  # bool: only the place in the step says that it is input

    @classmethod
    def none(cls) -> CodeSpans:
        """An empty set of stretches."""
        time = np.empty(0, np.int64)
        index = np.empty(0, np.int32)
        return cls(time, time, index, index, np.empty(0, np.uint8), np.empty(0, bool))


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches of one process, as sets and times."""

    work: np.ndarray  # int64 (n,), when work other than copies to the device was launched, sorted
    thread: np.ndarray  # int32 (n,), by which thread
    batches: np.ndarray  # int64, when copies to the device of a batch's size were launched, sorted
    still: np.ndarray  # set of spans without a launch of work, 100 us or longer
    has_copies: bool


def process_launches(trace: Trace, process: int, launch: np.ndarray) -> Launches:
    """The launches of one process; `launch` is from `launch_calls`."""
    ops = trace.ops
    calls = trace.calls
    rows = np.flatnonzero((ops.process == process) & (launch >= 0))
    is_copy = ops.kind[rows] == Kind.H2D
    work = unique_values(launch[rows[~is_copy]])
    work = by_start(calls, work)
    copies = rows[is_copy & ((ops.bytes[rows] < 0) | (ops.bytes[rows] >= _MIN_BATCH))]
    edges = [
        column
        for table in (trace.ranges, calls)
        for column in (table.start, table.end)
        if len(column)
    ]
    first = min((int(column.min()) for column in edges), default=0)
    last = max((int(column.max()) for column in edges), default=0)
    still = complement(union(spans_at(calls, work)), first, last)
    still = still[still[:, 1] - still[:, 0] >= _SHORT_NS]
    batches = np.sort(calls.start[launch[copies]])
    return Launches(calls.start[work], calls.thread[work], batches, still, bool(is_copy.any()))


@dataclass(frozen=True, slots=True)
class ThreadCode:
    """Code of one thread of a recording, classified by names."""

    trace: Trace
    thread: int  # index into Trace.threads
    launches: Launches  # of its process
    range_activity: np.ndarray  # uint8, an Activity per row of Trace.ranges
    frames: Frames

    @classmethod
    def of(
        cls, trace: Trace, thread: int, launches: Launches, range_activity: np.ndarray
    ) -> ThreadCode:
        """The thread with its frames; marks of steps are none."""
        ranges = trace.ranges
        rows = np.flatnonzero((ranges.thread == thread) & np.isin(ranges.kind, _FRAMES))
        rows = rows[range_activity[rows] != Activity.NOTHING]
        own = launches.work[launches.thread == thread]
        long = launches.still[launches.still[:, 1] - launches.still[:, 0] >= LONG_NS]
        frames = nest(
            ranges.start[rows], ranges.end[rows], ranges.name[rows], own, launches.work, long
        )
        return cls(trace, thread, launches, range_activity, frames)

    def activity_spans(self, *activities: Activity) -> np.ndarray:
        """Spans in which the thread was in ranges of these activities, by their names."""
        ranges = self.trace.ranges
        rows = np.flatnonzero(ranges.thread == self.thread)
        rows = rows[np.isin(self.range_activity[rows], activities)]
        return union(spans_at(ranges, rows))


def classify_code(code: ThreadCode) -> CodeSpans:
    """The stretches of a thread's code without a launch, with the kind of each."""
    known = _known(code)
    start, end, name = _stretches(code, known)
    pieces = subtract(spans(start, end), known)
    length = overlap(spans(start, end), pieces)
    chosen = length >= _SHORT_NS
    if not chosen.any():
        return CodeSpans.none()
    start, end, name, length = (column[chosen] for column in (start, end, name, length))
    span = spans(start, end)
    activity, assumed = _kinds(code, span, name, pieces, length)
    pieces = intersect(pieces, span)
    at = np.searchsorted(start, pieces[:, 0], side="right") - 1
    thread = np.full(len(pieces), code.thread, np.int32)
    result = CodeSpans(pieces[:, 0], pieces[:, 1], name[at], thread, activity[at], assumed[at])
    return _with_blocked(result, code)


def _known(code: ThreadCode) -> np.ndarray:
    """Time of a thread in API calls, or in ranges whose names are conclusive."""
    calls = code.trace.calls
    called = np.flatnonzero(calls.thread == code.thread)
    called = called[~code.trace.matches(calls.name[called], PINS)]
    return union(code.activity_spans(*_KNOWN), spans_at(calls, called))


def _kinds(
    code: ThreadCode, span: np.ndarray, name: np.ndarray, pieces: np.ndarray, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The activity of each stretch, and whether only its place shows that it is input."""
    trace = code.trace
    says = _signs(code, span, pieces, length)
    place = _places(code, name, span)
    is_op = np.isin(name, trace.ranges.name[trace.ranges.kind == RangeKind.OP])
    receives = says[Sign.BLOCKS] & (says[Sign.RECEIVES] | says[Sign.PREPARES]) & ~place.inside
    waits = says[Sign.BLOCKS] & ~place.inside & ~place.last
    prepares = says[Sign.ITERATES] | says[Sign.DECODES]
    evident = (waits & place.marked) | receives | (prepares & ~place.inside)
    certain = prepares | receives | place.feeds | (waits & place.marked)
    certain |= says[Sign.PREPARES] & ~place.inside & ~place.last
    is_input = (certain | waits | place.first | place.precedes) & ~says[Sign.SENDS]
    kinds = {
        Activity.PROFILER: says[Sign.PROFILES],
        Activity.GC: says[Sign.COLLECTS],
        Activity.CHECKPOINT: says[Sign.RECORDS] & ~says[Sign.ITERATES],
        Activity.ENVIRONMENT: says[Sign.SIMULATES],
        Activity.INPUT: is_input & says[Sign.BLOCKS],
        Activity.INPUT_IN_THREAD: is_input,
        Activity.IO: says[Sign.TRANSFERS],
        Activity.NOTHING: is_op,  # the ranges themselves say so
        Activity.FRAMEWORK: (
            place.inside & code.launches.has_copies
        ),  # a batch is copied afterwards, where anything is
    }
    activity = np.select(list(kinds.values()), list(kinds), Activity.HOST_CODE).astype(np.uint8)
    usual = _take_usual_kinds(code, span, name, length, activity)
    certain |= usual & np.isin(name, name[certain])
    activity[activity == Activity.FRAMEWORK] = Activity.NOTHING
    is_long = length >= LONG_NS
    is_input = np.isin(activity, INPUT_ACTIVITIES)
    often = np.isin(name, name[is_long & is_input])  # as long as that at other times
    activity[~is_long & ~(is_input & (evident | often))] = Activity.NOTHING
    return activity, is_input & ~certain


def _take_usual_kinds(
    code: ThreadCode, span: np.ndarray, name: np.ndarray, length: np.ndarray, activity: np.ndarray
) -> np.ndarray:
    """Write a function's usual kind into `activity` where nothing else decides; return where."""
    frames = code.frames
    usual = np.zeros(len(name), bool)
    calls = np.isin(name, frames.name[frames.quiet]) & ~np.isin(name, frames.name[~frames.quiet])
    untold = calls & np.isin(activity, (Activity.HOST_CODE, Activity.IO, Activity.FRAMEWORK))
    if not untold.any():
        return usual
    marks = _marks(code)
    step = np.searchsorted(marks[:, 0], (span[:, 0] + span[:, 1]) // 2, side="right")
    total = np.bincount(name, length)
    for kind in _USUAL:
        of_kind = calls & (activity == kind)
        is_usual = (np.bincount(name, length * of_kind) >= _MOST * total)[name]
        if len(marks):
            is_usual |= _recurs(code.trace, name, step, of_kind, len(marks))
        chosen = untold & ~usual & is_usual
        activity[chosen] = kind
        usual |= chosen
    return usual


def _stretches(code: ThreadCode, known: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, end and function of outermost quiet frames, and of the code between them."""
    frames = code.frames
    chosen = np.flatnonzero(
        (frames.outer == np.arange(len(frames.outer))) & (frames.end - frames.start >= _SHORT_NS)
    )
    in_calls = union(frames.span[chosen])
    inside, owner = self_time(frames)
    caller = frames.around(~frames.quiet, innermost=True)[owner]
    used, number = factorize(frames.name)
    is_python = np.array([bool(parse(code.trace.names[at]).file) for at in used], bool)[number]
    is_own = (caller >= 0) & is_python[caller]  # an operator that launches is the framework's
    inside = inside[is_own]
    caller = caller[is_own]
    own = subtract(intersect(code.launches.still, union(inside)), union(in_calls, known))
    own = own[own[:, 1] - own[:, 0] >= _SHORT_NS]
    callers = frames.name[caller[np.searchsorted(inside[:, 0], own[:, 0], side="right") - 1]]
    name = np.concatenate([frames.name[chosen], callers])
    start = np.concatenate([frames.start[chosen], own[:, 0]])
    end = np.concatenate([frames.end[chosen], own[:, 1]])
    order = np.argsort(start, kind="stable")
    return start[order], end[order], name[order]


def _signs(
    code: ThreadCode, span: np.ndarray, pieces: np.ndarray, length: np.ndarray
) -> Mapping[Sign, np.ndarray]:
    """Mask per sign of stretches that frames with this sign mostly cover: shape (n,)."""
    frames = code.frames
    quiet = np.flatnonzero(frames.quiet)
    used, number = factorize(frames.name[quiet])
    table = signs([code.trace.names[name] for name in used])
    result = {}
    for sign in Sign:
        covered = frames.span[quiet[table[number, sign]]]
        if sign is Sign.BLOCKS:
            covered = union(covered, code.activity_spans(Activity.WAITING))
        result[sign] = overlap(span, intersect(union(covered), pieces)) >= _MOST * length
    return result


@dataclass(frozen=True, slots=True)
class _Places:
    """Places of stretches within a step. Columns of bool, shape (n,)."""

    marked: np.ndarray  # steps are: the next three are False if they are not
    # before the first launch of a step, in most steps, which have no known loader
    first: np.ndarray
    inside: np.ndarray  # between two launches of one step
    last: np.ndarray  # after the last launch of a step
    # a batch is copied to the device during it, or in the same step before anything else happens
    feeds: np.ndarray
    precedes: np.ndarray  # a batch is copied next, but maybe the step before ended with it


def _places(code: ThreadCode, name: np.ndarray, span: np.ndarray) -> _Places:
    start = span[:, 0]
    end = span[:, 1]
    work = code.launches.work
    following = np.searchsorted(work, end)
    during, precedes = _copies(code, span)
    nothing = np.zeros(len(start), bool)
    marks = _marks(code)
    if not len(marks):
        return _Places(nothing, nothing, nothing, nothing, during, precedes)
    middle = (start + end) // 2
    step = np.searchsorted(marks[:, 0], middle, side="right") - 1
    in_mark = (step >= 0) & (middle < marks[np.maximum(step, 0), 1])
    bounds = np.searchsorted(work, marks)
    opened = bounds[np.maximum(step, 0), 0]
    closed = bounds[np.maximum(step, 0), 1]
    began = np.searchsorted(work, start) > opened
    continues = following < closed
    # none follows before the next launch
    is_final = np.concatenate([following[1:] != following[:-1], [True]])
    is_between = ~in_mark & is_final & (following < len(work))
    is_first = (in_mark & ~began & continues) | is_between
    of_step = np.where(in_mark, step, step + 1)
    busy_steps = int((bounds[:, 1] > bounds[:, 0]).sum())
    is_first &= _recurs(code.trace, name, of_step, is_first, busy_steps)
    is_first &= not _has_loader(code, marks)
    is_last = in_mark & began & ~continues
    feeds = during | (precedes & in_mark & ~is_last)
    return _Places(~nothing, is_first, in_mark & began & continues, is_last, feeds, precedes)


def _copies(code: ThreadCode, span: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masks of stretches during, or right after, which a batch is copied to the device."""
    launches = code.launches
    frames = code.frames
    never = np.iinfo(np.int64).max
    end = span[:, 1]
    copied = np.append(launches.batches, never)[np.searchsorted(launches.batches, span[:, 0])]
    launched = np.append(launches.work, never)[np.searchsorted(launches.work, end)]
    others = union(
        frames.span[frames.outer == np.arange(len(frames.outer))],
        code.activity_spans(Activity.INPUT),
    )
    is_long = others[:, 1] - others[:, 0] >= LONG_NS
    # a short function may be the one that copies
    until = np.where(is_long, others[:, 0], others[:, 1])
    following = np.searchsorted(others[:, 0], end)
    is_during = copied < end
    return is_during, ~is_during & (
        copied < np.minimum(launched, np.append(until, never)[following])
    )


def _marks(code: ThreadCode) -> np.ndarray:
    """The marked steps of a thread's process, in order: int64, shape (n, 2)."""
    trace = code.trace
    ranges = trace.ranges
    process = trace.threads[code.thread].process
    in_process = trace.thread_processes(ranges.thread, process) == process
    rows = np.flatnonzero((ranges.kind == RangeKind.STEP) & in_process)
    rows = by_start(ranges, rows)
    return spans_at(ranges, rows)


def _has_loader(code: ThreadCode, marks: np.ndarray) -> bool:
    """True if a known loader delivers the batches of most steps."""
    steps = np.unique(
        np.searchsorted(marks[:, 0], code.activity_spans(Activity.INPUT)[:, 1], side="right")
    )
    return len(steps) >= _MOST * len(marks)


def _recurs(
    trace: Trace, name: np.ndarray, step: np.ndarray, chosen: np.ndarray, steps: int
) -> np.ndarray:
    """Mask of stretches whose function is in most steps, of those chosen: shape (n,)."""
    used, number = factorize(name)
    labels: dict[tuple[str, str], int] = {}
    label = np.array([labels.setdefault(parse(trace.names[at])[:2], len(labels)) for at in used])[
        number
    ]
    pairs = np.unique(np.column_stack([label[chosen], step[chosen]]), axis=0)
    count = np.bincount(pairs[:, 0], minlength=len(labels))
    return count[label] >= _MOST * steps


def _with_blocked(stretches: CodeSpans, code: ThreadCode) -> CodeSpans:
    """Add the calls that block inside work on a batch: these parts wait for input."""
    at_work = stretches.activity == Activity.INPUT_IN_THREAD
    if not at_work.any():
        return stretches
    frames = code.frames
    rows = np.flatnonzero(frames.quiet)
    used, number = factorize(frames.name[rows])
    rows = rows[signs([code.trace.names[name] for name in used])[number, Sign.BLOCKS]]
    inside = intersect(union(frames.span[rows]), union(spans_at(stretches, at_work)))
    at = np.searchsorted(stretches.start, inside[:, 0], side="right") - 1
    more = CodeSpans(
        start=inside[:, 0],
        end=inside[:, 1],
        name=stretches.name[at],
        thread=stretches.thread[at],
        activity=np.full(len(inside), Activity.INPUT, np.uint8),
        assumed=stretches.assumed[at],
    )
    return concatenated(stretches, more)
