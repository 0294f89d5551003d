"""Helper expressions shared by the lowerings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastfeed.backends.dali.imports import fn, math, types


@dataclass(frozen=True, slots=True)
class OpContext:
    """The context in which an op is lowered."""

    size: tuple[int, int]  # height, width of the input
    channels: int
    gpu: bool


def gray(image: Any, context: OpContext) -> Any:
    """One channel of bytes, (height, width, 1)."""
    if context.channels == 1:
        return image
    return fn.color_space_conversion(image, image_type=types.RGB, output_type=types.GRAY)


def truncated(values: Any) -> Any:
    """Convert numbers to bytes: clipped and truncated."""
    return fn.cast(math.floor(math.clamp(values, 0.0, 255.0)), dtype=types.UINT8)


def rounded(values: Any) -> Any:
    """Convert numbers to bytes: clipped and rounded."""
    return fn.cast(math.clamp(values, 0.0, 255.0), dtype=types.UINT8)


def renamed(name: str) -> Any:
    """An operator that was experimental in the first versions of DALI 2."""
    return getattr(fn, name, None) or getattr(fn.experimental, name)
