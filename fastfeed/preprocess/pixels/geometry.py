"""Crop box and output size of an image, in integers wherever sizes are decided.

A side that follows from the other is rounded to the nearest pixel, halves up, and is at least 1. A
crop box may start between pixels, except where nothing is scaled, so that pixels are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from fastfeed.decode.base import DecodeFailure
from fastfeed.preprocess.model.image_recipe import Scaling, Size
from fastfeed.preprocess.model.recipe import Limits

MAX_SIDES = {"jpeg": 65_500, "webp": 16_383}  # pixels of a side that libjpeg and libwebp write


class OutputGeometry(NamedTuple):
    """Crop box, scaled size and canvas of one image."""

    # top, left, height, width of the crop, pixels as displayed
    box: tuple[float, float, float, float]
    size: Size  # what the box is scaled to
    canvas: Size  # the output; larger than `size` if borders are filled
    at: tuple[int, int]  # top, left of the scaled pixels in the canvas
    enlarged: bool  # some axis has more pixels than the box

    @property
    def padded(self) -> bool:
        """True if there are borders to fill."""
        return self.canvas != self.size


def output_geometry(scaling: Scaling, height: int, width: int) -> OutputGeometry:
    """The output geometry of an image of height x width pixels, as displayed.

    With `enlarge=False` no axis gets more pixels than it has: "short" and "long" keep the size;
    "cover" and "buckets" crop the largest part of the target's aspect ratio; "contain" centers the
    image on the canvas; "exact" keeps the axis that is too short and shrinks the other.
    """
    if scaling.mode == "none":
        return _full_image((height, width), (height, width))
    if scaling.mode in ("short", "long"):
        assert isinstance(scaling.size, int)
        side = min(height, width) if scaling.mode == "short" else max(height, width)
        if scaling.size > side and not scaling.enlarge:
            return _full_image((height, width), (height, width))
        size = _scaled(height, scaling.size, side), _scaled(width, scaling.size, side)
        return _full_image((height, width), size)
    if scaling.mode == "buckets":
        bucket = scaling.buckets[nearest_bucket(scaling.buckets, height, width)]
        return _cover((height, width), bucket, scaling.enlarge)
    assert scaling.size is not None
    target = (scaling.size, scaling.size) if isinstance(scaling.size, int) else scaling.size
    if scaling.mode == "cover":
        return _cover((height, width), target, scaling.enlarge)
    if scaling.mode == "contain":
        return _contain((height, width), target, scaling.enlarge)
    assert scaling.mode == "exact", scaling.mode
    if not scaling.enlarge:
        target = min(target[0], height), min(target[1], width)
    return _full_image((height, width), target)


def nearest_bucket(buckets: Sequence[Size], height: int, width: int) -> int:
    """Index of the bucket with the nearest aspect ratio, the first on ties, in exact fractions."""

    def distance(bucket: Size) -> Fraction:
        left = height * bucket[1]
        right = width * bucket[0]
        return Fraction(max(left, right), min(left, right))

    return min(range(len(buckets)), key=lambda i: distance(buckets[i]))


def output_error(geometry: OutputGeometry, image: str, max_pixels: int) -> DecodeFailure | None:
    """A failure if an output of this size exceeds `max_pixels`, or the limits of the format."""
    height, width = geometry.canvas
    max_side = MAX_SIDES.get(image, 0)
    size = f"would become {width}x{height} pixels"
    if max_side and max(height, width) > max_side:
        return DecodeFailure("bomb", f"{size}; {image} allows at most {max_side} per side")
    if height * width > max_pixels:
        return DecodeFailure("bomb", f"{size}, the limit is {max_pixels}")
    return None


def _full_image(shape: Size, size: Size) -> OutputGeometry:
    enlarged = size[0] > shape[0] or size[1] > shape[1]
    box = (0.0, 0.0, float(shape[0]), float(shape[1]))
    return OutputGeometry(box, size, size, (0, 0), enlarged)


def _scaled(length: int, numerator: int, denominator: int) -> int:
    """length * numerator / denominator, to the nearest pixel, halves up, at least 1."""
    return max(1, (2 * length * numerator + denominator) // (2 * denominator))


def _cover(shape: Size, target: Size, enlarge: bool) -> OutputGeometry:
    height, width = shape
    is_wide = height * target[1] <= width * target[0]  # full height
    enlarged = target[0] > height or target[1] > width
    if enlarged and not enlarge:
        if is_wide:
            size = height, min(width, _scaled(target[1], height, target[0]))
        else:
            size = min(height, _scaled(target[0], width, target[1])), width
        top = (height - size[0]) // 2
        left = (width - size[1]) // 2
        box = (float(top), float(left), float(size[0]), float(size[1]))
        return OutputGeometry(box, size, size, (0, 0), False)
    box_height = float(height)
    box_width = float(width)
    if is_wide:
        box_width = target[1] * height / target[0]
    else:
        box_height = target[0] * width / target[1]
    box = ((height - box_height) / 2, (width - box_width) / 2, box_height, box_width)
    return OutputGeometry(box, target, target, (0, 0), enlarged)


def _contain(shape: Size, target: Size, enlarge: bool) -> OutputGeometry:
    height, width = shape
    if not enlarge and height <= target[0] and width <= target[1]:
        size = shape
    elif target[0] * width <= target[1] * height:  # the height decides
        size = target[0], min(target[1], _scaled(width, target[0], height))
    else:
        size = min(target[0], _scaled(height, target[1], width)), target[1]
    at = (target[0] - size[0]) // 2, (target[1] - size[1]) // 2
    return _full_image(shape, size)._replace(canvas=target, at=at)


def limit_error(limits: Limits, format: str, height: int, width: int) -> DecodeFailure | None:
    """A failure if format, pixels, short side or aspect ratio, in this order, is refused."""
    short = min(height, width)
    long = max(height, width)
    size = f"{width}x{height} pixels"
    if limits.formats and format not in limits.formats:
        return DecodeFailure("policy", f"{format}; allowed are {', '.join(limits.formats)}")
    if height * width > limits.max_pixels:
        return DecodeFailure("bomb", f"{size}, the limit is {limits.max_pixels}")
    if short < limits.min_side:
        detail = f"{size}, the short side must be >= {limits.min_side}"
        return DecodeFailure("too_small", detail)
    if limits.max_aspect and long > limits.max_aspect * short:
        ratio = f"{long / short:.2f}:1; at most {limits.max_aspect:g}:1"
        return DecodeFailure("aspect", f"{size}, {ratio}")
    return None
