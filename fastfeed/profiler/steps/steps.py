"""Training steps of a trace, and which of them are whole and steady."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastfeed.profiler.model.intervals import by_start, spans
from fastfeed.profiler.model.result import Steps
from fastfeed.profiler.model.trace import Kind, Trace
from fastfeed.profiler.steps.marks import (
    TOLERANCE,
    Rounds,
    is_open_ended,
    marked_steps,
    optimizer_steps,
    wait_steps,
)
from fastfeed.profiler.steps.numbers import missing_after
from fastfeed.profiler.steps.recurrences import recurring_rounds

__all__ = ["find_steps", "no_steps"]

# of a step: it is whole if the recording of the device misses less; its beginning, unlike its end,
# waits for input
_NEGLIGIBLE_BEGINNING, _NEGLIGIBLE_END = 0.001, 0.005
# of a step: an operation that began before the recording ends in it, and nothing waits
_BUSY_BEGINNING = 0.05
_MOST_LAUNCHES = 0.95  # of the launches are recorded, once the first one is
# steps that numbers skip: with more, the recording was paused, and nothing is missing
_MAX_HOLE = 10


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
    launched = _launch_times(trace, launch)
    rounds = _marked_rounds(trace, device, process, waits, launched)
    is_guess = rounds is None
    if rounds is None:
        rounds = recurring_rounds(trace, device, process, edges, launched)
    if rounds is None:
        return no_steps()
    unrecorded = 0 if is_guess else int((rounds.spans[:, 0] >= edges[1]).sum())
    if not is_guess:
        rounds = _on_device(trace, device, launch, rounds)
    step_spans = rounds.spans
    beginning = _BUSY_BEGINNING if _begins_at_work(trace, device, launch) else _NEGLIGIBLE_BEGINNING
    whole = _whole(
        step_spans, edges, beginning, rounds.has_end and not is_open_ended(trace, step_spans)
    )
    if rounds.is_open is not None:
        whole &= ~rounds.is_open
    missing = missing_after(rounds.labels)
    missing[_before_pauses(step_spans, trace.metadata.get("pauses", ()))] = 0
    clipped = np.where(whole[:, None], np.clip(step_spans, *edges), step_spans)
    steady, lost = _steady(clipped, whole), int(missing[missing <= _MAX_HOLE].sum())
    return Steps(clipped, rounds.labels, rounds.source, steady, is_guess, whole, lost, unrecorded)


def _before_pauses(step_spans: np.ndarray, pauses: Sequence[int]) -> np.ndarray:
    """The last step before each pause of the recording: int64; its successors are missing."""
    return np.unique(
        np.maximum(np.searchsorted(step_spans[:, 0], np.array(pauses, np.int64)) - 1, 0)
    )


def no_steps() -> Steps:
    """The result without any steps."""
    return Steps(np.empty((0, 2), np.int64), (), "", np.empty(0, bool))


def _launch_times(trace: Trace, launch: np.ndarray) -> np.ndarray:
    """Launch of each op, else its start: int64, shape (len(ops),)."""
    times = trace.ops.start.copy()
    times[launch >= 0] = trace.calls.start[launch[launch >= 0]]
    return times


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

    Copies do not count: on a stream of their own they run ahead with the host. Steps whose work is
    not recorded, at either end of the recording, are left out.
    """
    ops, step_spans = trace.ops, rounds.spans
    is_kernel = np.isin(ops.kind, (Kind.COMPUTE, Kind.GRAPH))
    rows = np.flatnonzero((ops.device == device) & (launch >= 0) & is_kernel)
    call_start = trace.calls.start[launch[rows]]
    step = np.searchsorted(step_spans[:, 0], call_start, side="right") - 1
    is_inside = (step >= 0) & (call_start < step_spans[step, 1])
    rows, step = rows[is_inside], step[is_inside]
    if not len(rows):
        return rounds
    worked = np.arange(step.min(), step.max() + 1)
    first_start = np.full(len(step_spans), np.iinfo(np.int64).max)
    np.minimum.at(first_start, step, ops.start[rows])
    last_end = np.full(len(step_spans), np.iinfo(np.int64).min)
    np.maximum.at(last_end, step, ops.end[rows])
    first_start, last_end, host_spans = first_start[worked], last_end[worked], step_spans[worked]
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


def _whole(
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


def _steady(step_spans: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Whole steps from the first run of three of usual length, if that is most of them."""
    steady = whole.copy()
    if not whole.any():
        return steady
    length = step_spans[:, 1] - step_spans[:, 0]
    typical = np.median(length[whole])
    is_near = whole & (np.abs(length - typical) <= TOLERANCE * typical)
    runs = is_near[:-2] & is_near[1:-1] & is_near[2:] if len(is_near) >= 3 else np.zeros(0, bool)
    first = int(np.argmax(runs)) if runs.any() else 0
    if (
        2 * whole[first:].sum() >= whole.sum()
    ):  # otherwise steps are irregular, and three alike are chance
        steady[:first] = False
    return steady
