"""Training steps of a trace, marked or guessed, and which of them are whole and steady."""

from __future__ import annotations

import re

import numpy as np

from fastfeed.printable import printable
from fastfeed.profiler.attribution.launches import launch_times
from fastfeed.profiler.model.columns import factorize
from fastfeed.profiler.model.intervals import by_start, spans
from fastfeed.profiler.model.result import Steps
from fastfeed.profiler.model.trace import Kind, RangeKind, Trace
from fastfeed.profiler.steps.marks import (
    MIN_STEPS,
    TOLERANCE,
    Rounds,
    in_process,
    is_open_ended,
    marked_steps,
    missing_after,
    optimizer_steps,
    wait_steps,
)

# of a step: it is whole if the recording of the device misses less; its beginning, unlike its end,
# waits for input
_NEGLIGIBLE_BEGINNING = 0.001
_NEGLIGIBLE_END = 0.005
# of a step: an operation that began before the recording ends in it, and nothing waits
_BUSY_BEGINNING = 0.05
_MOST_LAUNCHES = 0.95  # of the launches are recorded, once the first one is
# steps that numbers skip: with more, the recording was paused, and nothing is missing
_MAX_HOLE = 10
# candidates that are tried
_MAX_SIZES = 8
_MAX_KERNELS = 32
_MOST = 0.8
_REGULAR = 0.7  # of the rounds are within half of the median length
# blocks.7, DecoderLayer_7, h.7
_LAYER = re.compile(r"((?<![a-z])h|layers?|blocks?)[._ \[]?(?P<number>\d+)", re.I)
# holds many steps, by its name
_CONTAINER = re.compile(r"epoch|train|fit\b|loop|main\b|bench|profil", re.I)


def find_steps(
    trace: Trace,
    device: int,
    process: int,
    edges: np.ndarray,
    launch: np.ndarray,
    waits: np.ndarray | None = None,
) -> Steps:
    """The steps of one process, from the best evidence available.

    In this order: ranges of whole steps, optimizer steps, waits for input (`waits`: a set of spans
    of the main thread), and then a guess, operations that recur on the device. `edges` is from
    `recorded_edges`; a step that reaches outside is cut and never steady.
    `launch` is from `launch_calls`: if the host runs ahead of the device by more than a step, steps
    are measured on the device.
    """
    launched = launch_times(trace, launch)
    rounds = _marked_rounds(trace, device, process, waits, launched)
    is_guess = rounds is None
    if rounds is None:
        rounds = _recurring_rounds(trace, device, process, edges, launched)
    if rounds is None:
        return Steps(np.empty((0, 2), np.int64), (), "", np.empty(0, bool))
    unrecorded = 0 if is_guess else int((rounds.spans[:, 0] >= edges[1]).sum())
    if not is_guess:
        rounds = _on_device(trace, device, launch, rounds)
    step_spans = rounds.spans
    beginning = _BUSY_BEGINNING if _begins_at_work(trace, device, launch) else _NEGLIGIBLE_BEGINNING
    whole = _covered_steps(
        step_spans, edges, beginning, rounds.has_end and not is_open_ended(trace, step_spans)
    )
    if rounds.is_open is not None:
        whole &= ~rounds.is_open
    missing = missing_after(rounds.labels)
    pauses = np.array(trace.metadata.get("pauses", ()), np.int64)
    before = np.maximum(np.searchsorted(step_spans[:, 0], pauses) - 1, 0)
    missing[before] = 0  # a pause of the recording is why successors are missing
    clipped = np.where(whole[:, None], np.clip(step_spans, *edges), step_spans)
    steady = _steady(clipped, whole)
    lost = int(missing[missing <= _MAX_HOLE].sum())
    return Steps(clipped, rounds.labels, rounds.source, steady, is_guess, whole, lost, unrecorded)


def _marked_rounds(
    trace: Trace, device: int, process: int, waits: np.ndarray | None, launched: np.ndarray
) -> Rounds | None:
    """The best marks that are enough to be steps, else one range of a whole step."""
    marked = marked_steps(trace, process, waits)
    if marked is not None and len(marked.labels) > 1:
        return marked
    optimizer = optimizer_steps(trace, process, waits)
    if optimizer is not None:
        return optimizer
    between = wait_steps(trace, process, waits, launched[trace.ops.device == device])
    if marked is None or between is None:
        return between or marked
    inside = (between.spans[:, 0] >= marked.spans[0, 0]) & (
        between.spans[:, 0] < marked.spans[0, 1]
    )
    return marked if 2 * inside.sum() >= len(inside) else between


def _on_device(trace: Trace, device: int, launch: np.ndarray, rounds: Rounds) -> Rounds:
    """Steps from kernel to kernel on the device, if the host is far ahead.

    Copies do not count: on a separate stream they run ahead with the host. Steps whose work is
    not recorded, at either end of the recording, are left out.
    """
    ops = trace.ops
    step_spans = rounds.spans
    is_kernel = np.isin(ops.kind, (Kind.COMPUTE, Kind.GRAPH))
    rows = np.flatnonzero((ops.device == device) & (launch >= 0) & is_kernel)
    call_start = trace.calls.start[launch[rows]]
    step = np.searchsorted(step_spans[:, 0], call_start, side="right") - 1
    is_inside = (step >= 0) & (call_start < step_spans[step, 1])
    rows = rows[is_inside]
    step = step[is_inside]
    if not len(rows):
        return rounds
    worked = np.arange(step.min(), step.max() + 1)
    first_start = np.full(len(step_spans), np.iinfo(np.int64).max)
    np.minimum.at(first_start, step, ops.start[rows])
    last_end = np.full(len(step_spans), np.iinfo(np.int64).min)
    np.maximum.at(last_end, step, ops.end[rows])
    first_start = first_start[worked]
    last_end = last_end[worked]
    host_spans = step_spans[worked]
    if (last_end < first_start).any() or (
        np.diff(first_start) <= 0
    ).any():  # without work, or out of order
        return rounds
    if np.median(first_start - host_spans[:, 0]) <= np.median(host_spans[:, 1] - host_spans[:, 0]):
        return rounds
    end = np.concatenate([first_start[1:], [max(last_end[-1], first_start[-1] + 1)]])
    # a pause, or lost marks, follow
    is_apart = np.concatenate([host_spans[1:, 0] > host_spans[:-1, 1], [False]])
    end[is_apart] = np.clip(last_end[is_apart], first_start[is_apart] + 1, end[is_apart])
    labels = tuple(rounds.labels[index] for index in worked)
    # a wait may follow the last op
    return Rounds(spans(first_start, end), labels, rounds.source, has_end=False, is_open=is_apart)


def _begins_at_work(trace: Trace, device: int, launch: np.ndarray) -> bool:
    """True if the first operation was launched before the recording began."""
    rows = np.flatnonzero(trace.ops.device == device)
    is_known = launch[by_start(trace.ops, rows)] >= 0
    first = int(np.argmax(is_known))
    return first > 0 and bool(is_known[first:].mean() >= _MOST_LAUNCHES)


def _covered_steps(
    step_spans: np.ndarray, edges: np.ndarray, beginning: float, has_end: bool
) -> np.ndarray:
    """Mask of steps that the recording of the device covers: shape (n,).

    Waits before the recording begins are lost, and the rest of the step would pass for a step that
    waits less: it may lack the fraction `beginning`.
    """
    length = step_spans[:, 1] - step_spans[:, 0]
    whole = step_spans[:, 0] >= edges[0] - beginning * length
    whole &= step_spans[:, 1] <= edges[1] + _NEGLIGIBLE_END * length
    whole[-1] &= has_end
    return whole


def _steady(step_spans: np.ndarray, covered: np.ndarray) -> np.ndarray:
    """Whole steps from the first run of three of usual length, if that is most of them."""
    steady = covered.copy()
    if not covered.any():
        return steady
    length = step_spans[:, 1] - step_spans[:, 0]
    typical = np.median(length[covered])
    is_near = covered & (np.abs(length - typical) <= TOLERANCE * typical)
    runs = is_near[:-2] & is_near[1:-1] & is_near[2:] if len(is_near) >= 3 else np.zeros(0, bool)
    first = int(np.argmax(runs)) if runs.any() else 0
    if (
        2 * covered[first:].sum() >= covered.sum()
    ):  # otherwise steps are irregular, and three alike are chance
        steady[:first] = False
    return steady


def _recurring_rounds(
    trace: Trace, device: int, process: int, edges: np.ndarray, launched: np.ndarray
) -> Rounds | None:
    """Rounds of a recurring copy of the batch, else of a kernel that runs once per round.

    What recurs inside one marked range, such as the layers of a forward pass, is not a step, and
    neither is what follows another layer each time. `edges` is the device's first start and last
    end; `launched` is when each op of the trace was launched.
    """
    ops = trace.ops
    rows = np.flatnonzero((ops.device == device) & (ops.end > ops.start))
    rows = by_start(ops, rows)
    marks = _marked_ranges(trace, process)
    layers = _layer_starts(trace, process)
    copies = rows[(ops.kind[rows] == Kind.H2D) & (ops.bytes[rows] > 0)]
    sizes, count = np.unique(ops.bytes[copies], return_counts=True)
    for size in sizes[np.argsort(-sizes * (count > MIN_STEPS))][:_MAX_SIZES] if len(sizes) else ():
        recurring = copies[ops.bytes[copies] == size]
        at = ops.start[recurring]
        computed = np.searchsorted(
            at, ops.start[rows[ops.kind[rows] == Kind.COMPUTE]], side="right"
        )
        if (
            _is_periodic(at, edges)
            and len(np.unique(computed)) >= _MOST * len(at)  # each round also computes something
            and not _inside_marks(launched[recurring], marks)
            and not _among_layers(launched[recurring], layers)
        ):
            return _rounds(at, f"recurring copies of {size:,} bytes to the GPU")
    names, number = factorize(ops.name[rows])
    count = np.bincount(number, minlength=len(names))
    candidates = np.flatnonzero(count > MIN_STEPS)
    for candidate in candidates[np.argsort(count[candidates], kind="stable")][:_MAX_KERNELS]:
        if len(rows) < 10 * count[candidate]:
            continue
        at = np.flatnonzero(number == candidate)
        distances = np.diff(at)
        if (
            np.mean(distances == np.median(distances)) >= _MOST
            and distances.sum() >= _MOST * len(rows)
            and _is_periodic(ops.start[rows[at]], edges)
            and not _inside_marks(launched[rows[at]], marks)
            and not _among_layers(launched[rows[at]], layers)
        ):
            name = printable(trace.name(int(names[candidate])), 80)
            return _rounds(ops.start[rows[at]], f"the recurring kernel {name}")
    return None


def _rounds(start: np.ndarray, source: str) -> Rounds:
    labels = tuple(f"round {n}" for n in range(len(start) - 1))
    return Rounds(spans(start[:-1], start[1:]), labels, source)


def _is_periodic(start: np.ndarray, edges: np.ndarray) -> bool:
    """True if rounds are regular enough to be steps, and most of the recording."""
    if len(start) <= MIN_STEPS or 2 * (start[-1] - start[0]) < edges[1] - edges[0]:
        return False
    length = np.diff(start)
    regular = np.mean(np.abs(length - np.median(length)) <= 0.5 * np.median(length))
    return bool(regular >= _REGULAR and np.median(length))


def _marked_ranges(trace: Trace, process: int) -> list[np.ndarray]:
    """Annotations of a process as disjoint spans per numberless name, without containers."""
    ranges = trace.ranges
    is_mark = in_process(trace, process) & np.isin(ranges.kind, (RangeKind.NVTX, RangeKind.STEP))
    by_name: dict[str, list[int]] = {}
    for name in np.unique(ranges.name[is_mark]):
        text = re.sub(r"\d+", "N", trace.name(int(name)))
        if not _CONTAINER.search(text):
            by_name.setdefault(text, []).append(int(name))
    result = []
    for names in by_name.values():
        rows = np.flatnonzero(is_mark & np.isin(ranges.name, names))
        order = np.argsort(ranges.start[rows], kind="stable")
        start = ranges.start[rows][order]
        end = np.maximum.accumulate(ranges.end[rows][order])
        is_outer = np.concatenate([[True], start[1:] >= end[:-1]])
        last = np.concatenate([np.flatnonzero(is_outer)[1:] - 1, [len(end) - 1]])
        result.append(spans(start[is_outer], end[last]))
    return result


def _inside_marks(at: np.ndarray, marks: list[np.ndarray]) -> bool:
    """True if most of these instants share a range of one name with another of them."""
    for ranges in marks:
        index = np.searchsorted(ranges[:, 0], at, side="right") - 1
        inside = (index >= 0) & (at < ranges[index, 1])
        _, count = np.unique(index[inside], return_counts=True)
        if count[count > 1].sum() >= _MOST * len(at):
            return True
    return False


def _layer_starts(trace: Trace, process: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted starts of ranges named after a numbered layer, and its number: int64, (n,)."""
    # the last is for ranges without name
    ranges = trace.ranges
    number_of = np.full(len(trace.names) + 1, -1, np.int64)
    for index, name in enumerate(trace.names):
        if match := _LAYER.search(name):
            number_of[index] = int(match["number"][:9])
    rows = np.flatnonzero((number_of[ranges.name] >= 0) & in_process(trace, process))
    rows = by_start(ranges, rows)
    return ranges.start[rows], number_of[ranges.name[rows]]


def _among_layers(at: np.ndarray, layers: tuple[np.ndarray, np.ndarray]) -> bool:
    """True if most of these instants follow another layer, as a whole step does not."""
    start, number = layers
    place = np.searchsorted(start, np.sort(at), side="right") - 1
    number = number[place[place >= 0]]
    return len(number) >= _MOST * len(at) and bool(
        (np.diff(number) != 0).sum() >= _MOST * (len(at) - 1)
    )
