"""Outlines of objects: polygons of several rings, and runs of pixels, those of all images as one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

from fastfeed.decode.orientation import displayed, displayed_boxes
from fastfeed.errors import ConfigError
from fastfeed.runtime.extension import extension

_NO_STAGES = (np.empty((0, 3, 3)), np.empty((0, 2), np.int64), np.empty((0, 4)))
_MUST = (
    'a list of rings, each x, y, x, y ... of three points or more or an array (k, 2); {"size":'
    ' [height, width], "counts": runs}; or uint8 or bool pixels (height, width)'
)
_CUTS = 8  # corners of an image that clipping may add to a ring
# of a digit of compressed runs, and digits of a number
_BITS = 5
_MOST_DIGITS = 12


class Rings(NamedTuple):
    """Closed rings whose areas together are the object, each by the even-odd rule."""

    points: np.ndarray  # float32 (p, 2): x, y, pixels or shares of the image's sides
    ends: np.ndarray  # int64 (r,): ring i has the points [ends[i - 1], ends[i])

    def scaled(self, sides: np.ndarray) -> Rings:
        """Rings in pixels, of shares of the width and height `sides`."""
        return self._replace(points=(self.points * sides).astype(np.float32))

    def displayed(self, turn: int, size: np.ndarray) -> Rings:
        """Rings of a stored image in displayed pixels; size: its height and width as displayed."""
        n = len(self.points)
        places = np.tile(self.points.astype(np.float64), 2)  # boxes without an area
        moved = displayed_boxes(np.full(n, turn), places, np.tile(size, (n, 1)))[:, :2]
        return self._replace(points=moved.astype(np.float32))

    @property
    def bounds(self) -> np.ndarray:
        """Left, top, right, bottom; 0 without rings."""
        if not len(self.points):
            return np.zeros(4)
        return np.concatenate([self.points.min(axis=0), self.points.max(axis=0)])

    def pixels(self, size: tuple[int, int]) -> np.ndarray:
        """uint8 (height, width) of an image of this size: 1 where a pixel's center is inside."""
        pixels = np.zeros(size, np.uint8)
        self.draw(pixels, *_NO_STAGES)
        return pixels

    def draw(
        self,
        out: np.ndarray,
        forward: np.ndarray,
        sizes: np.ndarray,
        limits: np.ndarray,
    ) -> None:
        """Set pixels to 1 whose centers are inside after moves of the image.

        out: uint8 (height, width); forward, sizes, limits: as of `Stage`, of one image.
        """
        extension().draw_rings(self.points, self.ends, forward, sizes, limits, out)


class Runs(NamedTuple):
    """Lengths of runs outside and inside of the object by turns, down column by column."""

    height: int
    counts: np.ndarray  # uint32 (r,)
    turn: int = 1  # EXIF orientation that is to be done

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image as annotated."""
        return self.height, int(self.counts.sum(dtype=np.int64)) // self.height

    def displayed(self, turn: int, size: np.ndarray) -> Runs:
        """Runs of a stored image for its displayed pixels."""
        return self._replace(turn=turn)

    @property
    def bounds(self) -> np.ndarray:
        """Left, top, right, bottom; 0 without pixels."""
        ends = np.cumsum(self.counts, dtype=np.int64)
        first = ends[:-1:2]
        last = ends[1::2] - 1
        kept = first <= last
        if not kept.any():
            return np.zeros(4)
        left, top = np.divmod(first[kept], self.height)
        right, bottom = np.divmod(last[kept], self.height)
        whole = left < right  # columns that such a run crosses
        top = np.where(whole, 0, top)
        bottom = np.where(whole, self.height - 1, bottom)
        return np.array([left.min(), top.min(), right.max() + 1, bottom.max() + 1], np.float64)

    def pixels(self, size: tuple[int, int]) -> np.ndarray:
        """uint8 (height, width): 1 inside; size: the same as `self.size`."""
        values = np.arange(len(self.counts), dtype=np.uint8) & 1
        columns = np.repeat(values, self.counts).reshape(-1, self.height)
        return np.ascontiguousarray(displayed(self.turn, columns.T))


Shape = Rings | Runs


def parse_shape(value: Any) -> Shape:
    """The outline of one object, as COCO or a user has it. ValueError says what is wrong."""
    if value is None:
        value = ()
    if isinstance(value, Mapping):
        return _runs(value)
    if isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype in (bool, np.uint8):
        return _runs_of_pixels(value)
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"must be {_MUST}, got {type(value).__name__}")
    rings = [_ring(ring) for ring in value]
    ends = np.cumsum([len(ring) for ring in rings], dtype=np.int64)
    return Rings(np.concatenate([np.empty((0, 2), np.float32), *rings]), ends)


def _ring(ring: Any) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):
            points = np.asarray(ring, np.float64).astype(np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"must be {_MUST}, got a ring that is not of numbers") from None
    numbers = points.size
    is_pairs = points.ndim == 2 and points.shape[1] == 2
    if numbers < 6 or numbers % 2 or not (points.ndim == 1 or is_pairs):
        raise ValueError(
            f"must have rings of x, y of three points or more, got one of shape {points.shape}"
        )
    if not np.isfinite(points).all():
        raise ValueError("must have finite x and y, got others")
    return points.reshape(-1, 2)


def _runs(value: Mapping[str, Any]) -> Runs:
    try:
        height, width = map(index, value["size"])
        given = value["counts"]
        if isinstance(given, str):
            given = given.encode("ascii")
        counts = _decompressed(given) if isinstance(given, bytes) else np.asarray(given)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            'must have runs {"size": [height, width], "counts": integers or text}, got others:'
            f" {type(error).__name__} {error}"
        ) from None
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or min(height, width) < 1:
        raise ValueError(f'must have integers as "counts" of sides >= 1, got size {value["size"]}')
    most = min(height * width, np.iinfo(np.uint32).max)
    may_wrap = (counts > most).any()  # their sum as int64
    total = sum(counts.tolist()) if may_wrap else int(counts.sum(dtype=np.int64))
    if (counts < 0).any() or total != height * width or total > most:
        raise ValueError(
            f"must have runs >= 0 of {height}x{width} = {height * width} pixels, got runs of"
            f" {total}"
        )
    return Runs(height, counts.astype(np.uint32))


def _decompressed(text: bytes) -> np.ndarray:
    """Runs of COCO's text: digits of 5 bits, the sign in the last, differences of every second."""
    digits = np.frombuffer(text, np.uint8).astype(np.int64) - ord("0")
    ends = np.flatnonzero((digits & 32) == 0)
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64)
    lengths = ends + 1 - starts if len(ends) else np.empty(0, np.int64)
    if (
        not len(ends)
        or ends[-1] != len(digits) - 1
        or ((digits < 0) | (digits > 63)).any()
        or lengths.max() > _MOST_DIGITS
    ):
        raise ValueError("the text is not one of compressed runs")
    places = np.arange(len(digits)) - np.repeat(starts, lengths)
    counts = np.add.reduceat((digits & 31) << (_BITS * places), starts)
    counts -= np.where(digits[ends] & 16, 1 << (_BITS * lengths), 0)
    for first in (1, 2):
        counts[first::2] = np.cumsum(counts[first::2])
    return counts


def _runs_of_pixels(pixels: np.ndarray) -> Runs:
    if not pixels.size or pixels.size > np.iinfo(np.uint32).max:
        raise ValueError(f"must have pixels, got an array of shape {pixels.shape}")
    flat = (pixels != 0).T.reshape(-1)
    changes = np.flatnonzero(np.diff(flat, prepend=False))
    counts = np.diff(changes, prepend=0, append=flat.size)
    return Runs(pixels.shape[0], counts.astype(np.uint32))


class ShapeLists(NamedTuple):
    """Outlines of m objects; a million of them as objects would take a gigabyte."""

    numbers: np.ndarray  # uint32: x and y as bits of float32, or runs
    part_ends: np.ndarray  # int64: part i, a ring or all runs, has numbers [ends[i], ends[i + 1])
    ends: np.ndarray  # int64 (m + 1,): object k has the parts [ends[k], ends[k + 1])
    heights: np.ndarray  # int64 (m,): of runs; 0 for rings

    @classmethod
    def of(cls, shapes: Iterable[Shape]) -> ShapeLists:
        """Concatenate the outlines into one array."""
        numbers = bytearray()
        part_ends = array("q", [0])
        ends = array("q", [0])
        heights = array("q")
        for shape in shapes:
            used = len(numbers) // 4
            if isinstance(shape, Runs):
                numbers += shape.counts.tobytes()
                part_ends.append(used + len(shape.counts))
                heights.append(shape.height)
            else:
                numbers += shape.points.tobytes()
                part_ends.extend((used + 2 * shape.ends).tolist())
                heights.append(0)
            ends.append(len(part_ends) - 1)
        parts = [np.array(part, np.int64) for part in (part_ends, ends, heights)]
        return cls(np.frombuffer(bytes(numbers), np.uint32), *parts)

    def shape(self, k: int) -> Shape:
        """The outline of object k."""
        ends = self.part_ends[self.ends[k] : self.ends[k + 1] + 1]
        numbers = self.numbers[ends[0] : ends[-1]]
        if self.heights[k]:
            return Runs(int(self.heights[k]), numbers)
        return Rings(numbers.view(np.float32).reshape(-1, 2), (ends[1:] - ends[0]) // 2)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Outlines of these objects, an array of objects (len(rows),)."""
        shapes = np.empty(len(rows), object)
        for place, k in enumerate(rows.tolist()):
            shapes[place] = self.shape(k)
        return shapes

    def polygon_room(self, ends: np.ndarray) -> tuple[int, int]:
        """Room for rings and for points of polygons in an image, those of runs left out.

        Each edge of a ring has at most two ends where it is cut, so clipping may double points.

        ends: int64 (n + 1,): image i has the outlines [ends[i], ends[i + 1]).
        """
        is_polygon = self.heights == 0
        rings = np.diff(self.ends) * is_polygon
        points = np.diff(self.part_ends[self.ends]) * is_polygon + _CUTS * rings  # x and y: twice
        of_images = (np.diff(np.append(0, np.cumsum(each))[ends]) for each in (rings, points))
        most_rings, most_points = (int(each.max(initial=1)) for each in of_images)
        return most_rings, most_points

    def bounds(self, normalized: bool) -> np.ndarray:
        """Left, top, right, bottom of each object, float64 (m, 4), as its rings are normalized."""
        found = np.zeros((len(self.heights), 4))
        for k in range(len(found)):
            shape = self.shape(k)
            found[k] = shape.bounds
            if normalized and isinstance(shape, Runs):
                found[k] /= np.tile(shape.size[::-1], 2)
        return found

    def content(self, first: int, last: int) -> Iterator[Any]:
        """Buffers that say all of objects [first, last)."""
        ends = self.part_ends[self.ends[first] : self.ends[last] + 1]
        yield np.diff(self.ends[first : last + 1]).data
        yield np.diff(ends).data
        yield self.heights[first:last].data
        yield self.numbers[ends[0] : ends[-1]].data


def wrong_sizes(shapes: Iterable[Any], sizes: np.ndarray) -> np.ndarray:
    """Objects whose runs or pixels are not of this size: bool (m,).

    sizes: height, width, float64 (m, 2), NaN if not known.
    """
    pairs = zip(shapes, sizes.tolist(), strict=True)
    wrong = [not isinstance(shape, Rings) and _size(shape) != tuple(size) for shape, size in pairs]
    return np.array(wrong, bool) & ~np.isnan(sizes).any(axis=1)


def _size(shape: Any) -> tuple[int, ...]:
    return shape.size if isinstance(shape, Runs) else np.shape(shape)


def shape_lists(values: Sequence[Any], where: Callable[[int], str]) -> tuple[list[int], ShapeLists]:
    """Numbers of objects in images, and their outlines. ConfigError names the image."""
    counts = []
    for i, image in enumerate(values):
        if isinstance(image, (str, bytes, Mapping)) or not hasattr(image, "__len__"):
            raise ConfigError.of(
                f"Objects: instance_masks of {where(i)}", "a list, one entry per object", image
            )
        counts.append(len(image))

    def shapes() -> Iterator[Shape]:
        for i, image in enumerate(values):
            for k, value in enumerate(image):
                try:
                    yield parse_shape(value)
                except ValueError as error:
                    raise ConfigError(
                        f"Objects: instance mask {k} of {where(i)} {error}", field="instance_masks"
                    ) from None

    return counts, ShapeLists.of(shapes())
