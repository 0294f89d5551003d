"""Steps that a recording marks, and the beginning and end of a recording by them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.attribution.gaps import op_edges
from fastfeed.profiler.attribution.lost_work import lost_launches
from fastfeed.profiler.model.columns import pick
from fastfeed.profiler.model.intervals import overlap, spans
from fastfeed.profiler.model.trace import RangeKind, Trace

MIN_STEPS = 3  # marks; fewer do not establish a period
TOLERANCE = 0.2  # of the median: the deviation allowed for a usual step

_STEP = r"ProfilerStep|(run[\W_]?)?train(ing)?[\W_]?(step|batch|iteration|iter)|(global|one)[\W_]?step|step|iteration|iter"
_NUMBERED = re.compile(  # step_12, Iteration: 3, epoch 1 batch 7/500
    rf"^[\W_]*(epoch[\W_]*\d+[\W_]+)?({_STEP}|batch)[\W_]*\d+([\W_]+(of[\W_]+)?\d+)?[\W_]*$", re.I
)
_NAMED = re.compile(rf"^[\W_]*(\[\w+\])*({_STEP})[\W_]*$", re.I)
# PyTorch's own; Lightning's, users'
_OPTIMIZER = re.compile(r"^Optimizer\.step#|(^|[\W_])optimizer[._ ]?step$", re.I)
# times the usual period: a longer pause between steps may be a break in the recording, which is of
# neither
_PAUSE = 10
# of the pauses, or one: more are part of the training, such as batches that come in bursts
_BREAKS = 0.05
_WAITING = 0.5  # of a pause: it is a wait for the batch
_BETWEEN = 0.05  # of a period between steps: with more, the annotation covers only part of a step
# periods from one step to the next, if numbers are missing in between: the mark of a step was lost
_DOUBLE = 1.5
# of a period, or ns: with more between steps, the last may end after its mark
_EXACT = 0.001
_EXACT_NS = 120_000
# one begins where the other ends: only the profiler works in between
_CONTIGUOUS = re.compile(r"^ProfilerStep#")
_SHORT = 0.95  # of the shortest usual step
_NUMBER = re.compile(r"\d+")
_MIN_LABELS = 3
_LARGEST = 1 << 60
# of the usual launches per step: a step with fewer is not recorded from its beginning
_SIMILAR = 0.95


@dataclass(frozen=True, slots=True)
class Rounds:
    """Candidates for steps, as the host or the device marks them."""

    spans: np.ndarray  # int64 (n, 2), in order, disjoint
    labels: tuple[str, ...]
    source: str
    has_end: bool = True  # the end of the last one is known
    # bool (n,): what follows is not the next one, and where it ends is not known
    is_open: np.ndarray | None = None


def in_process(trace: Trace, process: int) -> np.ndarray:
    """Mask of the ranges of a process; those without a thread belong to every process."""
    return trace.thread_processes(trace.ranges.thread, process) == process


def marked_steps(trace: Trace, process: int, waits: np.ndarray | None = None) -> Rounds | None:
    """Ranges of whole steps: ProfilerStep#N, else annotations with such names.

    `waits`: a set of spans, which belong to the steps that they precede or follow however long they
    are.
    """
    ranges = trace.ranges
    is_nvtx = in_process(trace, process) & (ranges.kind == RangeKind.NVTX)
    is_step = in_process(trace, process) & (ranges.kind == RangeKind.STEP)
    witnesses = [
        (rows, source)
        for rows, source in (
            (np.flatnonzero(is_step), "steps that the trace marks"),
            (_matching(trace, is_nvtx, _NUMBERED), "numbered annotations"),
            (_matching(trace, is_nvtx, _NAMED), "annotations"),
        )
        if len(rows)
    ]
    # a single "batch 1" is not a step
    sufficient = [(rows, source) for rows, source in witnesses if len(rows) >= MIN_STEPS]
    return _in_order(trace, *(sufficient or witnesses)[0], waits) if witnesses else None


def _matching(trace: Trace, rows: np.ndarray, pattern: re.Pattern[str]) -> np.ndarray:
    """Indexes of those of these ranges (bool) whose names match."""
    rows = np.flatnonzero(rows)
    return rows[trace.matches(trace.ranges.name[rows], pattern)]


def _outermost(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Outermost ranges by start, of the thread with the most of them."""
    ranges = trace.ranges
    _, inverse, count = np.unique(ranges.thread[rows], return_inverse=True, return_counts=True)
    rows = rows[inverse == np.argmax(count)]
    rows = rows[np.lexsort((-ranges.end[rows], ranges.start[rows]))]
    reach = np.maximum.accumulate(ranges.end[rows])
    return rows[np.concatenate([[True], ranges.end[rows][1:] > reach[:-1]])]


def _in_order(trace: Trace, rows: np.ndarray, source: str, waits: np.ndarray | None) -> Rounds:
    """Ranges as steps, each until the next one starts.

    Many programs annotate the computation and wait for the batch outside it. A step ends with its
    range if the recording pauses or marks are missing after it.
    """
    ranges = trace.ranges
    rows = _outermost(trace, rows)
    start = ranges.start[rows]
    end = ranges.end[rows].copy()
    labels = tuple(trace.name(int(name)) for name in ranges.name[rows])
    is_exact = True
    is_apart = np.zeros(len(rows), bool)
    if len(rows) > 1:
        distance = np.diff(start)
        pause = start[1:] - end[:-1]
        period = np.median(distance)
        is_contiguous = bool(_CONTIGUOUS.search(labels[0]))
        is_exact = is_contiguous or bool(np.median(pause) <= max(_EXACT * period, _EXACT_NS))
        is_apart[:-1] = _is_break(start[1:] - pause, start[1:], period, waits)
        is_apart[:-1] |= (missing_after(labels)[:-1] > 0) & (distance > _DOUBLE * period)
        end[:-1] = np.where(is_apart[:-1], np.minimum(end[:-1], start[1:]), start[1:])
        if len(rows) > MIN_STEPS and np.median(pause) > _BETWEEN * period and not is_contiguous:
            rows = rows[:-1]
            start = start[:-1]
            end = end[:-1]
            labels = labels[:-1]
            is_apart = is_apart[:-1]
            return Rounds(spans(start, end), labels, _source(source, labels), is_open=is_apart)
    is_open = is_apart & (not is_exact)
    return Rounds(spans(start, end), labels, _source(source, labels), is_exact, is_open)


def _source(source: str, labels: Sequence[str]) -> str:
    return f"{source} ({_numberless(labels[0])})"


def _is_break(
    start: np.ndarray, end: np.ndarray, period: float, waits: np.ndarray | None
) -> np.ndarray:
    """Mask of the pauses between steps that are not part of the training: shape (n,)."""
    pause = end - start
    is_long = pause > _PAUSE * period
    if waits is not None and is_long.any():
        is_long[is_long] = (
            overlap(spans(start[is_long], end[is_long]), waits) < _WAITING * pause[is_long]
        )
    return is_long if is_long.sum() <= max(1, _BREAKS * len(pause)) else np.zeros(len(pause), bool)


def is_open_ended(trace: Trace, step_spans: np.ndarray) -> bool:
    """True if the recording may have ended inside the last step.

    Readers close open ranges with the last event. A step that is about as long as the shortest of
    the usual ones counts as whole.
    """
    length = step_spans[:, 1] - step_spans[:, 0]
    end = step_spans[-1, 1]
    ends = np.concatenate([trace.ranges.end, trace.calls.end, trace.ops.end])
    closed_together = ends.max(initial=0) <= end and (ends == end).sum() > 1
    if not closed_together or len(length) < 2:
        return False
    others = length[:-1]
    typical = np.median(length[:-1])
    usual = others[np.abs(others - typical) <= TOLERANCE * typical]
    return bool(length[-1] < _SHORT * (usual if len(usual) else others).min())


def optimizer_steps(trace: Trace, process: int, waits: np.ndarray | None) -> Rounds | None:
    """Steps from the end of one optimizer step to the end of the next.

    `waits`: a set of spans. If several optimizers step for the same batch, the last one ends the
    step.
    """
    is_mark = in_process(trace, process) & np.isin(
        trace.ranges.kind, (RangeKind.NVTX, RangeKind.OP)
    )
    rows = _matching(trace, is_mark, _OPTIMIZER)
    if not len(rows):
        return None
    rows = _outermost(trace, rows)
    if waits is not None and len(waits) > MIN_STEPS:
        batch = np.searchsorted(waits[:, 0], trace.ranges.start[rows], side="right")
        rows = rows[np.concatenate([batch[1:] != batch[:-1], [True]])]
    if len(rows) < MIN_STEPS:
        return None
    name = _numberless(trace.name(int(trace.ranges.name[rows[0]])))
    return _between(trace.ranges.end[rows], "step", f"optimizer steps ({name})")


def wait_steps(
    trace: Trace, process: int, waits: np.ndarray | None, launched: np.ndarray
) -> Rounds | None:
    """Steps from one wait for a batch to the next: fastfeed's waits, else any loader's.

    `launched`: when each operation of the device was launched. Waits without work between them are
    for the same step, and waits that most of the work is not between are something else.
    """
    ranges = trace.ranges
    names = [index for index, name in enumerate(trace.names) if name == "fastfeed:wait"]
    rows = np.flatnonzero(
        in_process(trace, process) & (ranges.kind == RangeKind.FEED) & np.isin(ranges.name, names)
    )
    if len(rows) >= MIN_STEPS:
        return _between(np.sort(ranges.start[rows]), "batch", "the feed's waits for batches")
    if waits is None or len(waits) < MIN_STEPS:
        return None
    before = np.searchsorted(np.sort(launched), waits[:, 0])
    edges, before = (
        column[np.concatenate([[True], np.diff(before) > 0])] for column in (waits[:, 0], before)
    )
    if len(edges) < MIN_STEPS or 2 * (before[-1] - before[0]) < len(launched):
        return None
    return _between(edges, "batch", "waits for batches")


def _between(edges: np.ndarray, label: str, source: str) -> Rounds:
    count = len(edges) - 1
    return Rounds(spans(edges[:-1], edges[1:]), tuple(f"{label} {n}" for n in range(count)), source)


def _numberless(name: str) -> str:
    return re.sub(r"\d+", "N", name)


def missing_after(labels: Sequence[str]) -> np.ndarray:
    """Steps that the last changing number of the labels skips after each: int64, shape (n,)."""
    missing = np.zeros(len(labels), np.int64)
    texts = [_NUMBER.findall(label) for label in labels]
    if len(labels) < _MIN_LABELS or len({len(text) for text in texts}) > 1:
        return missing
    columns = [
        [int(number[:30]) % _LARGEST for number in column] for column in zip(*texts, strict=True)
    ]
    distances = [np.diff(np.array(column, np.int64)) for column in reversed(columns)]
    apart = next((each for each in distances if each.any()), np.zeros(1, np.int64))
    if (apart > 0).all():
        missing[:-1] = apart // np.gcd.reduce(apart) - 1
    return missing


def recorded_edges(
    trace: Trace, device: int, process: int, launch: np.ndarray, waits: np.ndarray | None = None
) -> np.ndarray:
    """Beginning and end of the recorded time of a device: int64 nanoseconds, shape (2,).

    These are its first start and last end. A step that the host marks is known from its mark on:
    the device was idle until the first operation, provided that the recording has the launch of
    that operation, inside the step, and as many launches in this step as in the others. The last
    step is known up to the end of its mark in the same way.
    """
    edges = op_edges(trace, device)
    marked = marked_steps(trace, process, waits)
    rows = np.flatnonzero((trace.ops.device == device) & (trace.ops.process == process))
    if marked is None or not len(rows):
        return edges
    step = _step_of_launch(trace, marked, launch[rows])
    first = int(step[np.argmin(trace.ops.start[rows])])
    last = int(step[np.argmax(trace.ops.end[rows])])
    count = np.bincount(step[step >= 0], minlength=len(marked.labels))
    begin = int(marked.spans[first, 0])
    end = int(marked.spans[-1, 1])
    if (
        first >= 0
        and _has_usual_count(count, first)
        and _is_known(trace, launch, process, begin, edges[0])
    ):
        edges[0] = min(edges[0], begin)
    is_last_mark = (
        last == len(marked.labels) - 1 and marked.has_end and not is_open_ended(trace, marked.spans)
    )
    if is_last_mark and _is_known(trace, launch, process, edges[1], end):
        edges[1] = max(edges[1], end)
    return edges


def _step_of_launch(trace: Trace, marked: Rounds, launch: np.ndarray) -> np.ndarray:
    """The marked step in which each of these calls began: int64, -1 for none."""
    at = pick(trace.calls.start, launch, -1)
    step = np.searchsorted(marked.spans[:, 0], at, side="right") - 1
    is_inside = (launch >= 0) & (step >= 0) & (at < marked.spans[step, 1])
    return np.where(is_inside, step, -1)


def _has_usual_count(count: np.ndarray, step: int) -> bool:
    others = np.delete(count, step)
    others = others[others > 0]
    return not len(others) or count[step] >= _SIMILAR * np.median(others)


def _is_known(trace: Trace, launch: np.ndarray, process: int, start: int, end: int) -> bool:
    """True if the operation of every launch in this time is in the recording."""
    lost, _ = lost_launches(
        trace, launch, np.array([process]), spans(np.array([start]), np.array([end]))
    )
    return not lost
