"""Warps in NumPy, to the byte as OpenCV 5 and the native kernel compute them: for OpenCV 4, which
does not.
"""

from __future__ import annotations

import numpy as np

_GROUP = 16  # columns that OpenCV computes at once; it adds in another order in those that remain
_REACH = np.float32(1 << 21)  # of coordinates before a border
_PIXELS = 1 << 16  # that are computed at a time


def warp_pixels(
    image: np.ndarray,
    move: np.ndarray,
    nearest: bool,
    fill: tuple[int, ...],
    out: np.ndarray,
    border: str = "constant",
) -> None:
    """Every pixel of `out` is looked up in `image`; what lies outside is `fill`, or by `border`.

    image, out  uint8 (height, width) or (height, width, channels); not the same memory
    move        float64 (2, 3) or, with perspective, (3, 3): from output to input, pixel centers at
    whole numbers fill        as many numbers as channels
    """
    height, width = image.shape[:2]
    # a frame of one pixel, into which the edges fade
    framed = np.empty((height + 2, width + 2, image[0, 0].size), np.uint8)
    framed[:] = fill[: framed.shape[2]]
    framed[1:-1, 1:-1] = image.reshape(height, width, -1)
    tall, wide = out.shape[:2]
    rows_at_once = max(1, _PIXELS // wide)
    for first in range(0, tall, rows_at_once):
        rows = np.arange(first, min(first + rows_at_once, tall))
        x, y, *depth = (_coordinates(line, rows, wide) for line in move.astype(np.float32))
        if depth:
            with np.errstate(divide="ignore", invalid="ignore"):
                x, y = x / depth[0], y / depth[0]
        if border != "constant":
            x, y = (np.where(at > -_REACH, np.minimum(at, _REACH), -_REACH) for at in (x, y))
        take = _nearest if nearest else _bilinear
        out[first : rows[-1] + 1] = take(framed, x, y, border).reshape(len(rows), *out.shape[1:])


def _fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c of float32, rounded once (but for ties that only exist after the rounding to
    float64: 1 in 2**29).
    """
    return (a.astype(np.float64) * b + c).astype(np.float32)


def _coordinates(line: np.ndarray, rows: np.ndarray, width: int) -> np.ndarray:
    """float32 (rows, width): slope * column + its value at column 0."""
    columns, whole = np.arange(width, dtype=np.float32), width // _GROUP * _GROUP
    part = (rows.astype(np.float32) * line[1])[:, None]
    grouped = _fused(line[:1], columns[:whole], part + line[2])
    return np.concatenate([grouped, _fused(line[:1], columns[whole:], part) + line[2]], axis=1)


def _nearest(framed: np.ndarray, x: np.ndarray, y: np.ndarray, border: str) -> np.ndarray:
    left, top = np.rint(x), np.rint(y)
    height, width = framed.shape[0] - 2, framed.shape[1] - 2
    inside = (left >= 0) & (left < width) & (top >= 0) & (top < height)
    return framed[_places(top, inside, height, border), _places(left, inside, width, border)]


def _bilinear(framed: np.ndarray, x: np.ndarray, y: np.ndarray, border: str) -> np.ndarray:
    left, top = np.floor(x), np.floor(y)
    height, width = framed.shape[0] - 2, framed.shape[1] - 2
    touched = (left >= -1) & (left < width) & (top >= -1) & (top < height)
    touched |= border != "constant"
    across, down = (
        np.where(touched, at - least, np.float32(0))[..., None]
        for at, least in ((x, left), (y, top))
    )
    columns = [_places(left + k, touched, width, border) for k in (0, 1)]
    rows = [_places(top + k, touched, height, border) for k in (0, 1)]
    a, b, c, d = (framed[row, column].astype(np.float32) for row in rows for column in columns)
    above, below = _fused(across, b - a, a), _fused(across, d - c, c)
    return np.rint(_fused(down, below - above, above)).astype(np.uint8)


def _places(at: np.ndarray, seen: np.ndarray, length: int, border: str) -> np.ndarray:
    """int64: places in the frame; its corner where the image is not seen."""
    if border == "constant":
        return np.where(seen, at, -1).astype(np.int64) + 1
    places = at.astype(np.int64)
    if border == "edge":
        return np.clip(places, 0, length - 1) + 1
    turn = border == "symmetric"
    period = max(2 * (length - 1 + turn), 1)
    places %= period
    return np.minimum(places, period - turn - places) + 1
