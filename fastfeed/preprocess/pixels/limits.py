"""Checks photographs against the recipe's limits, from their headers."""

from __future__ import annotations

from fastfeed.decode.base import Bad
from fastfeed.preprocess.model.recipe import Limits

__all__ = ["limit_error"]


def limit_error(limits: Limits, format: str, height: int, width: int) -> Bad | None:
    """Bad if a photograph of `format` ("JPEG", ...) and height x width pixels, as displayed, is
    outside the limits.

    Checked in this order: format, number of pixels, short side, aspect ratio.
    """
    if limits.formats and format not in limits.formats:
        return Bad("policy", f"{format}; allowed are {', '.join(limits.formats)}")
    if height * width > limits.max_pixels:
        return Bad("bomb", f"{width}x{height} pixels, the limit is {limits.max_pixels}")
    short, long = min(height, width), max(height, width)
    if short < limits.min_side:
        return Bad(
            "too_small", f"{width}x{height} pixels, the short side must be >= {limits.min_side}"
        )
    if limits.max_aspect and long > limits.max_aspect * short:
        return Bad(
            "aspect",
            f"{width}x{height} pixels, {long / short:.2f}:1; at most {limits.max_aspect:g}:1",
        )
    return None
