"""Steps that nothing marks, guessed from what recurs on the device."""

from __future__ import annotations

import re

import numpy as np

from fastfeed.printable import printable
from fastfeed.profiler.model.columns import numbered
from fastfeed.profiler.model.intervals import by_start, spans
from fastfeed.profiler.model.trace import Kind, RangeKind, Trace
from fastfeed.profiler.steps.marks import MIN_STEPS, Rounds, in_process

__all__ = ["recurring_rounds"]

_MAX_SIZES, _MAX_KERNELS = 8, 32  # candidates that are tried
_MOST = 0.8
_REGULAR = 0.7  # of the rounds are within half of the median length
# blocks.7, DecoderLayer_7, h.7
_LAYER = re.compile(r"((?<![a-z])h|layers?|blocks?)[._ \[]?(?P<number>\d+)", re.I)
# holds many steps, by its name
_CONTAINER = re.compile(r"epoch|train|fit\b|loop|main\b|bench|profil", re.I)


def recurring_rounds(
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
    marks, layers = _marked_ranges(trace, process), _layer_starts(trace, process)
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
    names, number = numbered(ops.name[rows])
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
        start, end = ranges.start[rows][order], np.maximum.accumulate(ranges.end[rows][order])
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
    ranges, number_of = (
        trace.ranges,
        np.full(len(trace.names) + 1, -1, np.int64),
    )
    for index, name in enumerate(trace.names):
        if match := _LAYER.search(name):
            number_of[index] = int(match["number"][:9])
    rows = np.flatnonzero((number_of[ranges.name] >= 0) & in_process(trace, process))
    rows = by_start(ranges, rows)
    return ranges.start[rows], number_of[ranges.name[rows]]


def _among_layers(at: np.ndarray, layers: tuple[np.ndarray, np.ndarray]) -> bool:
    """True if most of these instants follow another layer than the instant before.

    A step runs all layers: what is launched once per step follows the same one each time.
    """
    start, number = layers
    place = np.searchsorted(start, np.sort(at), side="right") - 1
    number = number[place[place >= 0]]
    return len(number) >= _MOST * len(at) and bool(
        (np.diff(number) != 0).sum() >= _MOST * (len(at) - 1)
    )
