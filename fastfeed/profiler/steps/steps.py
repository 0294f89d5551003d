"""Finds the training steps of a trace, and which of them are steady."""

from __future__ import annotations

import re

import numpy as np

from fastfeed.profiler.model.intervals import spans
from fastfeed.profiler.model.result import Steps
from fastfeed.profiler.model.trace import Kind, RangeKind, Trace

__all__ = ["find_steps", "no_steps"]

_STEP = (
    r"ProfilerStep|(run[\W_]?)?train(ing)?[\W_]?(step|batch|iteration|iter)|(global|one)[\W_]?step|step|iteration|iter"
)
_NUMBERED = re.compile(  # step_12, Iteration: 3, epoch 1 batch 7/500
    rf"^[\W_]*(epoch[\W_]*\d+[\W_]+)?({_STEP}|batch)[\W_]*\d+([\W_]+(of[\W_]+)?\d+)?[\W_]*$", re.I
)
_NAMED = re.compile(rf"^[\W_]*(\[\w+\])*({_STEP})[\W_]*$", re.I)
_MIN_STEPS = 3  # fewer do not establish a period
_STEADY_TOLERANCE = 0.2  # of the median: the deviation allowed for a steady step
_PAUSE = 10  # times the usual period: a longer pause between steps belongs to neither, e.g. a break in the recording
_BETWEEN = 0.05  # of a period between steps: with more, the annotation covers only part of a step


def find_steps(
    trace: Trace, device: int, process: int, edges: np.ndarray, launch: np.ndarray, waits: np.ndarray | None = None
) -> Steps:
    """The steps of one process, from the best evidence available.

    Steps named by the format or an annotation come first, then waits for input (`waits`: a set of spans of the main
    thread), then operations that recur on the device.
    `edges` is the device's first start and last end; a step that reaches outside is incomplete and never steady.
    `launch` is from `launch_calls`: if the host runs ahead of the device by more than a step, steps are measured on
    the device.
    """
    for result, is_host_side in (
        (_from_ranges(trace, process), True),
        (_from_waits(trace, process, waits, edges), True),
        (_from_device(trace, device, edges), False),
    ):
        if result is not None:
            step_spans, labels, source = result
            if is_host_side:
                step_spans = _on_device(trace, device, launch, step_spans)
            return Steps(step_spans, labels, source, _steady(step_spans, edges))
    return no_steps()


def no_steps() -> Steps:
    """No steps were found."""
    return Steps(np.empty((0, 2), np.int64), (), "", np.empty(0, bool))


def _in_process(trace: Trace, process: int) -> np.ndarray:
    """Which ranges belong to this process; those without a thread belong to every process."""
    thread = trace.ranges.thread
    process_of = np.array([thread.process for thread in trace.threads] + [process])
    return process_of[thread] == process


def _from_ranges(trace: Trace, process: int) -> tuple[np.ndarray, tuple[str, ...], str] | None:
    ranges = trace.ranges
    in_process = _in_process(trace, process)
    names = [trace.name(int(name)) for name in np.unique(ranges.name[in_process & (ranges.kind == RangeKind.NVTX)])]
    index = {name: number for number, name in enumerate(trace.names)}
    numbered = np.isin(ranges.name, [index[name] for name in names if _NUMBERED.match(name)])
    named = np.isin(ranges.name, [index[name] for name in names if _NAMED.match(name)])
    is_nvtx = in_process & (ranges.kind == RangeKind.NVTX)
    witnesses = [
        (rows, source)
        for rows, source in (
            (np.flatnonzero(in_process & (ranges.kind == RangeKind.STEP)), "steps that the trace marks"),
            (np.flatnonzero(is_nvtx & numbered), "numbered annotations"),
            (np.flatnonzero(is_nvtx & named), "annotations"),
        )
        if len(rows)
    ]
    # a single "batch 1" is not a step
    sufficient = [(rows, source) for rows, source in witnesses if len(rows) >= _MIN_STEPS]
    return _in_order(trace, *(sufficient or witnesses)[0]) if witnesses else None


def _in_order(trace: Trace, rows: np.ndarray, source: str) -> tuple[np.ndarray, tuple[str, ...], str]:
    """Ranges as steps: from the thread with the most; nested or repeated ranges count once.

    A step lasts until the next one starts: many programs annotate the computation and wait for the batch outside it.
    """
    ranges = trace.ranges
    _, inverse, count = np.unique(ranges.thread[rows], return_inverse=True, return_counts=True)
    rows = rows[inverse == np.argmax(count)]
    rows = rows[np.lexsort((-ranges.end[rows], ranges.start[rows]))]
    reach = np.maximum.accumulate(ranges.end[rows])
    rows = rows[np.concatenate([[True], ranges.end[rows][1:] > reach[:-1]])]
    start, end = ranges.start[rows], ranges.end[rows].copy()
    if len(rows) > 1:
        period, pause = np.median(np.diff(start)), start[1:] - end[:-1]
        end[:-1] = np.where(pause <= _PAUSE * period, start[1:], end[:-1])
        if len(rows) > _MIN_STEPS and np.median(pause) > _BETWEEN * period:  # the end of the last one is not known
            rows, start, end = rows[:-1], start[:-1], end[:-1]
    labels = tuple(trace.name(int(name)) for name in ranges.name[rows])
    pattern = re.sub(r"\d+", "N", labels[0])
    return spans(start, end), labels, f"{source} ({pattern})"


def _from_waits(
    trace: Trace, process: int, waits: np.ndarray | None, within: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...], str] | None:
    """From one wait for a batch to the next: fastfeed's waits, which are one per step, else any loader's."""
    ranges = trace.ranges
    name_ids = [index for index, name in enumerate(trace.names) if name == "fastfeed:wait"]
    rows = np.flatnonzero(
        _in_process(trace, process) & (ranges.kind == RangeKind.FEED) & np.isin(ranges.name, name_ids)
    )
    if len(rows) > _MIN_STEPS:
        edges, source = np.sort(ranges.start[rows]), "the feed's waits for batches"
    elif waits is not None and len(waits) > _MIN_STEPS:
        edges, source = waits[:, 0], "waits for batches"
        if _periodic(edges, within) is None:
            return None
    else:
        return None
    return spans(edges[:-1], edges[1:]), tuple(f"batch {n}" for n in range(len(edges) - 1)), source


def _from_device(trace: Trace, device: int, edges: np.ndarray) -> tuple[np.ndarray, tuple[str, ...], str] | None:
    """From what recurs on the device: a copy of the batch, else a kernel that runs once per round of the others."""
    ops = trace.ops
    rows = np.flatnonzero((ops.device == device) & (ops.end > ops.start))
    rows = rows[np.argsort(ops.start[rows], kind="stable")]
    copies = rows[(ops.kind[rows] == Kind.H2D) & (ops.bytes[rows] > 0)]
    sizes, count = np.unique(ops.bytes[copies], return_counts=True)
    for size in sizes[np.argsort(-sizes * (count > _MIN_STEPS))][:8] if len(sizes) else ():
        at = ops.start[copies[ops.bytes[copies] == size]]
        rhythm = _periodic(at, edges)
        computed = np.searchsorted(at, ops.start[rows[ops.kind[rows] == Kind.COMPUTE]], side="right")
        if rhythm is not None and len(np.unique(computed)) >= 0.8 * len(at):  # each round also computes something
            return *rhythm, f"recurring copies of {size:,} bytes to the GPU"
    names, count = np.unique(ops.name[rows], return_counts=True)
    candidates = names[count > _MIN_STEPS]
    for name in candidates[np.argsort(count[count > _MIN_STEPS], kind="stable")][:32]:
        at = np.flatnonzero(ops.name[rows] == name)
        distances = np.diff(at)
        if (
            len(rows) >= 10 * len(at)
            and np.mean(distances == np.median(distances)) >= 0.8
            and distances.sum() >= 0.8 * len(rows)
        ):
            rhythm = _periodic(ops.start[rows[at]], edges)
            if rhythm is not None:
                return *rhythm, f"the recurring kernel {trace.name(int(name))[:60]}"
    return None


def _periodic(start: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """Rounds from one start to the next, if regular enough to be steps and most of the recording."""
    if len(start) <= _MIN_STEPS or 2 * (start[-1] - start[0]) < edges[1] - edges[0]:
        return None
    length = np.diff(start)
    regular = np.mean(np.abs(length - np.median(length)) <= 0.5 * np.median(length))
    if regular < 0.7 or not np.median(length):
        return None
    return spans(start[:-1], start[1:]), tuple(f"round {n}" for n in range(len(length)))


def _on_device(trace: Trace, device: int, launch: np.ndarray, step_spans: np.ndarray) -> np.ndarray:
    """Steps as the device sees them if the host is far ahead: from the first op of one step to that of the next."""
    ops = trace.ops
    rows = np.flatnonzero((ops.device == device) & (launch >= 0))
    call_start = trace.calls.start[launch[rows]]
    step = np.searchsorted(step_spans[:, 0], call_start, side="right") - 1
    is_inside = (step >= 0) & (call_start < step_spans[step, 1])
    rows, step = rows[is_inside], step[is_inside]
    first_start = np.full(len(step_spans), np.iinfo(np.int64).max)
    np.minimum.at(first_start, step, ops.start[rows])
    last_end = np.full(len(step_spans), np.iinfo(np.int64).min)
    np.maximum.at(last_end, step, ops.end[rows])
    if (last_end < first_start).any() or (
        np.diff(first_start) <= 0
    ).any():  # steps without work, or out of order: cannot be separated
        return step_spans
    if np.median(first_start - step_spans[:, 0]) <= np.median(step_spans[:, 1] - step_spans[:, 0]):
        return step_spans
    return spans(first_start, np.concatenate([first_start[1:], [max(last_end[-1], first_start[-1] + 1)]]))


def _steady(step_spans: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Complete steps from the first run of three within a fifth of the median length, if that is most of them."""
    is_complete = (step_spans[:, 0] >= edges[0]) & (step_spans[:, 1] <= edges[1])
    # the first step may start before its first op, and the last may end after its last op
    length = step_spans[:, 1] - step_spans[:, 0]
    overlapping = np.flatnonzero((step_spans[:, 1] > edges[0]) & (step_spans[:, 0] < edges[1]))
    if not len(overlapping):
        return np.zeros(len(step_spans), bool)
    slack = 0.5 * np.median(length[overlapping])
    is_complete |= (step_spans[:, 0] >= edges[0] - slack) & (step_spans[:, 1] <= edges[1] + slack)
    steady = is_complete.copy()
    if not is_complete.any():
        return steady
    typical = np.median(length[is_complete])
    is_near = is_complete & (np.abs(length - typical) <= _STEADY_TOLERANCE * typical)
    runs = is_near[:-2] & is_near[1:-1] & is_near[2:] if len(is_near) >= 3 else np.zeros(0, bool)
    first = int(np.argmax(runs)) if runs.any() else 0
    if 2 * is_complete[first:].sum() >= is_complete.sum():  # otherwise steps are irregular, and three alike are chance
        steady[:first] = False
    return steady
