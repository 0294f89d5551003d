"""What is cut from a photograph, and what size it becomes: arithmetic alone, in whole numbers wherever it decides.

Rounding: a side that follows from the other is rounded to the nearest pixel, halves up, and is at least 1. What is cut
may begin between pixels; where nothing is scaled it does not, so that pixels are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from fastfeed.decode.base import Bad
from fastfeed.preprocess.recipe import Scaling, Size

__all__ = ["MAX_SIDES", "OutputGeometry", "nearest_bucket", "output_error", "output_geometry"]

MAX_SIDES = {"jpeg": 65_500, "webp": 16_383}  # pixels of a side that libjpeg and libwebp write


class OutputGeometry(NamedTuple):
    """What becomes of one photograph."""

    box: tuple[float, float, float, float]  # top, left, height, width of what is cut out, pixels as displayed
    size: Size  # what the box is scaled to
    canvas: Size  # the result; more than `size` where borders are filled
    at: tuple[int, int]  # top, left of the scaled pixels in the canvas
    enlarged: bool  # some axis has more pixels than the box

    @property
    def padded(self) -> bool:
        """Whether there are borders to fill."""
        return self.canvas != self.size


def output_geometry(scaling: Scaling, height: int, width: int) -> OutputGeometry:
    """Where a photograph of height x width pixels, as displayed, goes.

    With `enlarge=False` no axis gets more pixels than it has, and nothing is scaled to prevent that: "short" and "long"
    keep the size; "cover" and "buckets" cut the largest part of the wanted shape; "contain" lays the photograph in the
    middle of the canvas; "exact" keeps the axis that is too short and shrinks the other.
    """
    if scaling.mode == "none":
        return _whole((height, width), (height, width))
    if scaling.mode in ("short", "long"):
        assert isinstance(scaling.size, int)
        side = min(height, width) if scaling.mode == "short" else max(height, width)
        if scaling.size > side and not scaling.enlarge:
            return _whole((height, width), (height, width))
        return _whole((height, width), (_scaled(height, scaling.size, side), _scaled(width, scaling.size, side)))
    if scaling.mode == "buckets":
        return _cover((height, width), scaling.buckets[nearest_bucket(scaling.buckets, height, width)], scaling.enlarge)
    assert scaling.size is not None
    wanted = (scaling.size, scaling.size) if isinstance(scaling.size, int) else scaling.size
    if scaling.mode == "cover":
        return _cover((height, width), wanted, scaling.enlarge)
    if scaling.mode == "contain":
        return _contain((height, width), wanted, scaling.enlarge)
    assert scaling.mode == "exact", scaling.mode
    if not scaling.enlarge:
        wanted = min(wanted[0], height), min(wanted[1], width)
    return _whole((height, width), wanted)


def nearest_bucket(buckets: Sequence[Size], height: int, width: int) -> int:
    """Which of these (height, width) has the shape nearest to a photograph's: |log of the ratio of the aspects|.

    Of several as near, the first. Fractions, since logarithms of a ratio and of its inverse need not be as large.
    """

    def distance(bucket: Size) -> Fraction:
        one, other = height * bucket[1], width * bucket[0]
        return Fraction(max(one, other), min(one, other))

    return min(range(len(buckets)), key=lambda i: distance(buckets[i]))


def output_error(placement: OutputGeometry, image: str, max_pixels: int) -> Bad | None:
    """Why a result of this size cannot be written as `image` (of recipe.IMAGES), or is more than `max_pixels`."""
    height, width = placement.canvas
    most = MAX_SIDES.get(image, 0)
    if most and max(height, width) > most:
        return Bad("bomb", f"would become {width}x{height} pixels; {image} has at most {most} a side")
    if height * width > max_pixels:
        return Bad("bomb", f"would become {width}x{height} pixels, the limit is {max_pixels}")
    return None


def _whole(shown: Size, size: Size) -> OutputGeometry:
    enlarged = size[0] > shown[0] or size[1] > shown[1]
    return OutputGeometry((0.0, 0.0, float(shown[0]), float(shown[1])), size, size, (0, 0), enlarged)


def _scaled(length: int, by: int, of: int) -> int:
    """length * by / of, to the nearest pixel, halves up, at least 1."""
    return max(1, (2 * length * by + of) // (2 * of))


def _cover(shown: Size, wanted: Size, enlarge: bool) -> OutputGeometry:
    height, width = shown
    if not enlarge and (wanted[0] > height or wanted[1] > width):
        if height * wanted[1] <= width * wanted[0]:  # as high as there is
            size = height, min(width, _scaled(wanted[1], height, wanted[0]))
        else:
            size = min(height, _scaled(wanted[0], width, wanted[1])), width
        box = float((height - size[0]) // 2), float((width - size[1]) // 2), float(size[0]), float(size[1])
        return OutputGeometry(box, size, size, (0, 0), False)
    high, wide = float(height), float(width)
    if height * wanted[1] <= width * wanted[0]:
        wide = wanted[1] * height / wanted[0]
    else:
        high = wanted[0] * width / wanted[1]
    enlarged = wanted[0] > height or wanted[1] > width
    return OutputGeometry(((height - high) / 2, (width - wide) / 2, high, wide), wanted, wanted, (0, 0), enlarged)


def _contain(shown: Size, wanted: Size, enlarge: bool) -> OutputGeometry:
    height, width = shown
    if not enlarge and height <= wanted[0] and width <= wanted[1]:
        size = shown
    elif wanted[0] * width <= wanted[1] * height:  # the height decides
        size = wanted[0], min(wanted[1], _scaled(width, wanted[0], height))
    else:
        size = min(wanted[0], _scaled(height, wanted[1], width)), wanted[1]
    at = (wanted[0] - size[0]) // 2, (wanted[1] - size[1]) // 2
    return _whole(shown, size)._replace(canvas=wanted, at=at)
