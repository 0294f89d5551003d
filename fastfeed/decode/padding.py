"""Windows beyond the image: any engine decodes the inside, and the border is added around it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastfeed.decode.base import DecodeEngine, DecodeFailure, Header, Request, Stop, dct_denominator
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.ops.base import FILTERS, Border, shade
from fastfeed.ops.program.window import Windows

_NEAR = 1e-6  # of a pixel: sums of fractions


def decode_with_border(
    engine: DecodeEngine, request: Request, border: Border | None, out: np.ndarray, stop: Stop
) -> list[DecodeFailure | None]:
    """Like `engine.decode`; where a window extends beyond its limit, the border is drawn.

    The edge of the image falls on the nearest whole pixels of the result. Modes other than
    "constant" continue all pixels within the limit, visible in the window or not: padding, then
    cropping, is a crop of the padded image.
    """
    windows = request.windows
    size = out.shape[1:3]
    if windows.filters is not None:
        return _by_filters(engine, request, windows.filters, border, out, stop)
    if border is None or windows.limits is None:
        return engine.decode(request, out, stop)
    beyond = _beyond(windows.boxes, windows.limits)
    if not beyond.any():
        return engine.decode(request, out, stop)
    part = _part(windows, beyond, border.mode, size)
    results: list[DecodeFailure | None] = [None] * len(request)
    fill = shade(border.fill, out.shape[3], out.dtype)
    for (height, width), rows in _rows_by_shape(part.high - part.low):
        if stop.is_set():
            break
        if height == 0 or width == 0:
            out[rows] = fill
            continue
        sizes = np.broadcast_to(np.array([height, width], np.int64), (len(rows), 2))
        inner = replace(
            request[rows], windows=Windows(part.boxes[rows], windows.flips[rows], sizes)
        )
        pixels = np.empty((len(rows), height, width, out.shape[3]), out.dtype)
        for row, image, bad in zip(rows, pixels, engine.decode(inner, pixels, stop), strict=True):
            results[row] = bad
            if bad is not None:
                out[row] = 0
            elif (height, width) == size and not (part.first[row] + part.low[row]).any():
                out[row] = image
            else:
                _write_with_border(
                    image, part, row, windows.flips[row], border.mode, fill, out[row]
                )
    return results


def _by_filters(
    engine: DecodeEngine,
    request: Request,
    filters: np.ndarray,
    border: Border | None,
    out: np.ndarray,
    stop: Stop,
) -> list[DecodeFailure | None]:
    """`decode_with_border` of the images of each filter in turn."""
    results: list[DecodeFailure | None] = [None] * len(request)
    for code in np.unique(filters).tolist():
        rows = np.flatnonzero(filters == code).tolist()
        own = request[rows]
        windows = replace(own.windows, filters=None)
        pixels = np.empty((len(rows), *out.shape[1:]), out.dtype)
        own = replace(own, windows=windows, filter=FILTERS[code])
        made = decode_with_border(engine, own, border, pixels, stop)
        for row, image, bad in zip(rows, pixels, made, strict=True):
            results[row] = bad
            out[row] = image
    return results


def place_windows(
    windows: Windows, mode: str, size: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places of n windows in results of one size, as `decode_with_border` fills them.

    Returns (source boxes, their sizes there, their corners there): float64 (n, 4), int64 (n, 2),
    int64 (n, 2); corners are those of the mirrored part, and may be negative.
    """
    if windows.limits is None:
        return windows.boxes, windows.sizes, np.zeros_like(windows.sizes)
    part = _part(windows, _beyond(windows.boxes, windows.limits), mode, size)
    low = part.low
    high = part.high
    boxes = part.boxes
    if mode in ("reflect", "symmetric"):
        # up to the edge that is the mirror, whether it is seen or not
        low = np.where(part.first > 0, 0, low)
        high = np.where(part.first + part.length < np.array(size), part.length, high)
        moved = (low != part.low) | (high != part.high)
        unit = windows.limits[:, 2:] / part.length
        corner = np.where(moved, windows.limits[:, :2] + low * unit, boxes[:, :2])
        boxes = np.concatenate([corner, np.where(moved, (high - low) * unit, boxes[:, 2:])], axis=1)
    sizes = high - low
    corners = part.first + low
    return boxes, sizes, np.where(windows.flips, np.array(size) - corners - sizes, corners)


def inner_windows(
    windows: Windows, border: Border | None, size: Any
) -> tuple[Windows, np.ndarray | None]:
    """The windows to cut, and their corners in the result, int64 (n, 2); None without a border."""
    if border is None:
        return windows, None
    boxes, sizes, corners = place_windows(windows, border.mode, size)
    # nothing is seen of it: one pixel, laid just outside
    empty = (sizes == 0).any(axis=1, keepdims=True)
    limits = windows.boxes if windows.limits is None else windows.limits
    boxes = np.where(empty, limits, boxes)
    sizes = np.where(empty, 1, sizes)
    corners = np.where(empty, size, corners)
    return Windows(boxes, windows.flips, sizes), corners


@dataclass(frozen=True, slots=True, eq=False)
class _PaddedWindows:
    """The parts to decode for n windows, and their places in unmirrored results of one size."""

    boxes: np.ndarray  # float64 (n, 4): of the source
    # int64 (n, 2): row and column of the result where the image begins; may be negative
    first: np.ndarray
    length: np.ndarray  # int64 (n, 2): its height and width there
    low: np.ndarray  # int64 (n, 2): start of the decoded part of it
    high: np.ndarray  # its end, not included


def _beyond(boxes: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Sides on which boxes extend beyond their limits: bool (n, 2), up or down, left or right."""
    ends = boxes[:, :2] + boxes[:, 2:]
    last = limits[:, :2] + limits[:, 2:]
    return (boxes[:, :2] < limits[:, :2] - _NEAR) | (ends > last + _NEAR)


def _part(windows: Windows, beyond: np.ndarray, mode: str, size: tuple[int, ...]) -> _PaddedWindows:
    boxes = windows.boxes
    limits = windows.limits
    assert limits is not None
    full = np.broadcast_to(np.array(size, np.int64), beyond.shape)
    unit = boxes[:, 2:] / full  # source pixels per pixel of the result
    start = np.where(beyond, np.rint((limits[:, :2] - boxes[:, :2]) / unit), 0)
    last = np.where(beyond, np.rint((limits[:, :2] + limits[:, 2:] - boxes[:, :2]) / unit), full)
    first = start.astype(np.int64)
    length = np.maximum((last - start).astype(np.int64), 1)
    low = np.clip(-first, 0, length)
    high = np.clip(full - first, low, length)
    if mode != "constant":
        for axis in (0, 1):
            visible = source_index(
                np.arange(size[axis]) - first[:, axis : axis + 1], length[:, axis : axis + 1], mode
            )
            low[:, axis], high[:, axis] = visible.min(axis=1), visible.max(axis=1) + 1
    unit = np.where(beyond, limits[:, 2:] / length, unit)
    corner = np.where(beyond, limits[:, :2] + low * unit, boxes[:, :2])
    extent = np.where(beyond, (high - low) * unit, boxes[:, 2:])
    return _PaddedWindows(np.concatenate([corner, extent], axis=1), first, length, low, high)


def source_index(at: np.ndarray, length: Any, mode: str) -> np.ndarray:
    """The index in [0, length) whose pixel is shown at an index outside of it."""
    if mode == "edge":
        return np.clip(at, 0, length - 1)
    turn = int(mode == "symmetric")
    period = np.maximum(2 * (length - 1 + turn), 1)
    place = at % period
    return np.minimum(np.minimum(place, period - turn - place), length - 1)


def add_border(
    image: np.ndarray, edges: list[int], mode: str, fill: tuple[int, ...], out: np.ndarray
) -> np.ndarray:
    """Pad an image (height, width, channels) by `edges` (top, bottom, left, right) into `out`.

    Edges are in pixels.
    """
    top, bottom, left, right = edges
    height, width = image.shape[:2]
    rows = out[top : top + height]
    rows[:, left : left + width] = image
    above = np.arange(-top, 0)
    below = np.arange(height, height + bottom)
    before = np.arange(-left, 0)
    behind = np.arange(width, width + right)
    if mode == "constant":
        out[:top], out[top + height :], rows[:, :left], rows[:, left + width :] = (fill,) * 4
    else:
        rows[:, :left] = image[:, source_index(before, width, mode)]
        rows[:, left + width :] = image[:, source_index(behind, width, mode)]
        out[:top] = rows[source_index(above, height, mode)]
        out[top + height :] = rows[source_index(below, height, mode)]
    return out


def _rows_by_shape(shapes: np.ndarray) -> list[tuple[tuple[int, int], list[int]]]:
    """Group rows by their (height, width)."""
    groups: dict[tuple[int, int], list[int]] = {}
    for row, (height, width) in enumerate(shapes.tolist()):
        groups.setdefault((height, width), []).append(row)
    return list(groups.items())


def _write_with_border(
    image: np.ndarray,
    part: _PaddedWindows,
    row: int,
    flip: np.ndarray,
    mode: str,
    fill: tuple[int, ...],
    out: np.ndarray,
) -> None:
    """The decoded part, mirrored already, with its border into one result."""
    edges = []
    inside = True
    for axis in (0, 1):
        first, low, high = (int(a[row, axis]) for a in (part.first, part.low, part.high))
        before = first + low
        after = out.shape[axis] - first - high
        inside &= before >= 0 and after >= 0
        edges.append((after, before) if flip[axis] else (before, after))
    if inside:
        add_border(image, [*edges[0], *edges[1]], mode, fill, out)
    else:  # reflected from beyond the window
        indices = []
        for axis in (0, 1):
            at = source_index(
                np.arange(out.shape[axis]) - part.first[row, axis], part.length[row, axis], mode
            )
            at = at - part.low[row, axis]
            indices.append(image.shape[axis] - 1 - at[::-1] if flip[axis] else at)
        out[:] = image[np.ix_(*indices)]


_PIXELS = PixelsEngine()


def decode_views(
    engine: DecodeEngine, request: Request, border: Border | None, out: np.ndarray, stop: Stop
) -> list[DecodeFailure | None]:
    """Decode several windows of each file; out: (n, views, height, width, channels).

    The request's windows are those of all views of the first file, then of the second, and so on.
    The border is drawn as by `decode_with_border`. The whole file is decoded once, shrunk as far as
    its finest window allows: DCT scaling makes that cheap for photographs.
    """
    views = out.shape[1]
    results = []
    for row, (blob, header) in enumerate(zip(request.blobs, request.headers, strict=True)):
        if stop.is_set():
            return [*results, *[None] * (len(request) - row)]
        windows = request.windows[slice(row * views, (row + 1) * views)]
        size = out.shape[2:4]
        lengths = windows.boxes[:, 2:].min(axis=0)
        by = dct_denominator((float(lengths[0]), float(lengths[1])), size, request.filter)
        height = -(-header.height // by)
        width = -(-header.width // by)
        decoded = np.empty((1, height, width, out.shape[4]), out.dtype)
        box = np.array([[0.0, 0.0, header.height, header.width]])
        no = np.zeros((1, 2), bool)
        full = Windows(box, no, np.array([[height, width]], np.int64))
        bad = engine.decode(Request([blob], [header], full, request.filter), decoded, stop)[0]
        results.append(bad)
        if bad is None:
            unit = np.tile([height / header.height, width / header.width], 2)
            limits = None if windows.limits is None else windows.limits * unit
            scaled = Windows(windows.boxes * unit, windows.flips, windows.sizes, limits)
            headers = [Header(height, width, "array")] * views
            crops = Request([decoded[0]] * views, headers, scaled, request.filter)
            decode_with_border(_PIXELS, crops, border, out[row], stop)
    return results
