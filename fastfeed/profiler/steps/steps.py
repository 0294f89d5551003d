"""Where one training step ends and the next begins, and which of them tell how training goes on."""

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
_FEWEST = 3  # steps that make a rhythm
_REGULAR = 0.2  # of the median: what a step may be off and still belong to the steady ones
_PAUSE = 10  # times the usual period: what is longer between two steps belongs to none, as an hour without recording
_BETWEEN = 0.05  # of a period between one step's end and the next one's start: the annotation covers part of a step


def find_steps(
    trace: Trace, device: int, process: int, edges: np.ndarray, launch: np.ndarray, waits: np.ndarray | None = None
) -> Steps:
    """The steps of one process, by the best witness there is.

    Steps that the dialect or an annotation names come first, then waits for input (`waits`: a set of spans of the
    thread that drives the process), then what recurs on the device.
    `edges` is the device's first start and last end; a step that reaches outside is incomplete and never steady.
    `launch` is what `launches` gives: where the host runs ahead of the device by more than a step, steps are what the
    device did of them.
    """
    for found, of_host in (
        (_from_ranges(trace, process), True),
        (_from_waits(trace, process, waits, edges), True),
        (_from_device(trace, device, edges), False),
    ):
        if found is not None:
            at, labels, by = found
            if of_host:
                at = _on_device(trace, device, launch, at)
            return Steps(at, labels, by, _steady(at, edges))
    return no_steps()


def no_steps() -> Steps:
    """None could be told."""
    return Steps(np.empty((0, 2), np.int64), (), "", np.empty(0, bool))


def _mine(trace: Trace, process: int) -> np.ndarray:
    """Which ranges are of this process; those without a thread are anybody's."""
    thread = trace.ranges.thread
    of = np.array([thread.process for thread in trace.threads] + [process])
    return of[thread] == process


def _from_ranges(trace: Trace, process: int) -> tuple[np.ndarray, tuple[str, ...], str] | None:
    ranges = trace.ranges
    mine = _mine(trace, process)
    names = [trace.name(int(name)) for name in np.unique(ranges.name[mine & (ranges.kind == RangeKind.NVTX)])]
    index = {name: place for place, name in enumerate(trace.names)}
    numbered = np.isin(ranges.name, [index[name] for name in names if _NUMBERED.match(name)])
    named = np.isin(ranges.name, [index[name] for name in names if _NAMED.match(name)])
    nvtx = mine & (ranges.kind == RangeKind.NVTX)
    witnesses = [
        (rows, by)
        for rows, by in (
            (np.flatnonzero(mine & (ranges.kind == RangeKind.STEP)), "steps that the trace marks"),
            (np.flatnonzero(nvtx & numbered), "numbered annotations"),
            (np.flatnonzero(nvtx & named), "annotations"),
        )
        if len(rows)
    ]
    enough = [(rows, by) for rows, by in witnesses if len(rows) >= _FEWEST]  # one "batch 1" is no step of 100
    return _in_order(trace, *(enough or witnesses)[0]) if witnesses else None


def _in_order(trace: Trace, rows: np.ndarray, by: str) -> tuple[np.ndarray, tuple[str, ...], str]:
    """Ranges as steps: of several threads the one with most; nested or repeated ones count once.

    A step lasts until the next begins: many annotate what they compute and wait for the batch outside.
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
        if len(rows) > _FEWEST and np.median(pause) > _BETWEEN * period:  # where the last one ends is not known
            rows, start, end = rows[:-1], start[:-1], end[:-1]
    labels = tuple(trace.name(int(name)) for name in ranges.name[rows])
    shown = re.sub(r"\d+", "N", labels[0])
    return spans(start, end), labels, f"{by} ({shown})"


def _from_waits(
    trace: Trace, process: int, waits: np.ndarray | None, within: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...], str] | None:
    """From one wait for a batch to the next: the feed's, which are known to be one per step, else anybody's."""
    ranges = trace.ranges
    named = [index for index, name in enumerate(trace.names) if name == "fastfeed:wait"]
    rows = np.flatnonzero(_mine(trace, process) & (ranges.kind == RangeKind.FEED) & np.isin(ranges.name, named))
    if len(rows) > _FEWEST:
        edges, by = np.sort(ranges.start[rows]), "the feed's waits for batches"
    elif waits is not None and len(waits) > _FEWEST:
        edges, by = waits[:, 0], "waits for batches"
        if _rhythm(edges, within) is None:
            return None
    else:
        return None
    return spans(edges[:-1], edges[1:]), tuple(f"batch {n}" for n in range(len(edges) - 1)), by


def _from_device(trace: Trace, device: int, edges: np.ndarray) -> tuple[np.ndarray, tuple[str, ...], str] | None:
    """What recurs on the device: a copy of the batch, else a kernel that comes once in every round of the others."""
    ops = trace.ops
    mine = np.flatnonzero((ops.device == device) & (ops.end > ops.start))
    mine = mine[np.argsort(ops.start[mine], kind="stable")]
    copies = mine[(ops.kind[mine] == Kind.H2D) & (ops.bytes[mine] > 0)]
    sizes, count = np.unique(ops.bytes[copies], return_counts=True)
    for size in sizes[np.argsort(-sizes * (count > _FEWEST))][:8] if len(sizes) else ():
        at = ops.start[copies[ops.bytes[copies] == size]]
        rhythm = _rhythm(at, edges)
        computed = np.searchsorted(at, ops.start[mine[ops.kind[mine] == Kind.COMPUTE]], side="right")
        if rhythm is not None and len(np.unique(computed)) >= 0.8 * len(at):  # each round computes something, too
            return *rhythm, f"recurring copies of {size:,} bytes to the GPU"
    names, count = np.unique(ops.name[mine], return_counts=True)
    once = names[count > _FEWEST]
    for name in once[np.argsort(count[count > _FEWEST], kind="stable")][:32]:
        at = np.flatnonzero(ops.name[mine] == name)
        apart = np.diff(at)
        if len(mine) >= 10 * len(at) and np.mean(apart == np.median(apart)) >= 0.8 and apart.sum() >= 0.8 * len(mine):
            rhythm = _rhythm(ops.start[mine[at]], edges)
            if rhythm is not None:
                return *rhythm, f"the recurring kernel {trace.name(int(name))[:60]}"
    return None


def _rhythm(start: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """Rounds from one start to the next, if they are regular enough to be steps and make up most of the recording."""
    if len(start) <= _FEWEST or 2 * (start[-1] - start[0]) < edges[1] - edges[0]:
        return None
    length = np.diff(start)
    regular = np.mean(np.abs(length - np.median(length)) <= 0.5 * np.median(length))
    if regular < 0.7 or not np.median(length):
        return None
    return spans(start[:-1], start[1:]), tuple(f"round {n}" for n in range(len(length)))


def _on_device(trace: Trace, device: int, launch: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Steps of a host that is far ahead, as the device sees them: from the first op launched in one to the next."""
    ops = trace.ops
    mine = np.flatnonzero((ops.device == device) & (launch >= 0))
    begun = trace.calls.start[launch[mine]]
    step = np.searchsorted(at[:, 0], begun, side="right") - 1
    inside = (step >= 0) & (begun < at[step, 1])
    mine, step = mine[inside], step[inside]
    first = np.full(len(at), np.iinfo(np.int64).max)
    np.minimum.at(first, step, ops.start[mine])
    done = np.full(len(at), np.iinfo(np.int64).min)
    np.maximum.at(done, step, ops.end[mine])
    if (done < first).any() or (np.diff(first) <= 0).any():  # steps without work, or out of order: not to be told apart
        return at
    if np.median(first - at[:, 0]) <= np.median(at[:, 1] - at[:, 0]):
        return at
    return spans(first, np.concatenate([first[1:], [max(done[-1], first[-1] + 1)]]))


def _steady(at: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Complete steps from the first run of three whose lengths are within a fifth of the median, if that is most."""
    whole = (at[:, 0] >= edges[0]) & (at[:, 1] <= edges[1])
    # the first step may begin before its first op, and the last may end after its last: that much belongs to a step
    length = at[:, 1] - at[:, 0]
    inner = np.flatnonzero((at[:, 1] > edges[0]) & (at[:, 0] < edges[1]))
    if not len(inner):
        return np.zeros(len(at), bool)
    slack = 0.5 * np.median(length[inner])
    whole |= (at[:, 0] >= edges[0] - slack) & (at[:, 1] <= edges[1] + slack)
    steady = whole.copy()
    if not whole.any():
        return steady
    usual = np.median(length[whole])
    near = whole & (np.abs(length - usual) <= _REGULAR * usual)
    runs = near[:-2] & near[1:-1] & near[2:] if len(near) >= 3 else np.zeros(0, bool)
    first = int(np.argmax(runs)) if runs.any() else 0
    if 2 * whole[first:].sum() >= whole.sum():  # else the run is irregular, and three alike are chance
        steady[:first] = False
    return steady
