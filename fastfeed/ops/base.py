"""What an op is: a frozen value that says what should happen, and knows nothing of how."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.spec import Spec

__all__ = ["FILTERS", "Geometry", "Op", "check_filter", "check_size", "freeze", "need_pixels"]

FILTERS = ("bilinear", "bicubic", "lanczos", "box")  # all antialiased: the support grows with the reduction


class Op(Protocol):
    """One entry of a user's list."""

    draws: ClassVar[int]  # uniform numbers it needs per sample

    def out(self, spec: Spec) -> Spec:
        """The spec after this op; SpecError when it cannot follow `spec`."""
        ...

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """What it will do to each sample, from its draws (float64 (n, draws)) and (height, width) (int64 (n, 2))."""
        ...


class Geometry(Op, Protocol):
    """An op that only moves pixels. Its parameters are always these three, so any run of them folds into one window.

    box   float64 (n, 4): top, left, height, width of what is kept, in pixels of the image that arrives
    size  int64 (n, 2): height, width of what leaves
    flip  bool (n, 2): mirrored top to bottom, left to right
    """


def need_pixels(op: Any, spec: Spec) -> None:
    """Refuse anything but HWC pixels."""
    name = type(op).__name__
    if spec.encoded:
        raise SpecError(f"{name} needs HWC pixels, got {spec}; put Decode() before it")
    if spec.layout != "HWC":
        raise SpecError(f"{name} needs HWC pixels, got {spec}; put ToLayout after it")


def check_size(name: str, size: Any) -> tuple[int, int]:
    """(height, width) in pixels from an int (square) or a pair."""
    pair: Any = (size, size) if isinstance(size, (int, np.integer)) and not isinstance(size, bool) else size
    try:
        height, width = (int(n) for n in pair)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} size must be an int or (height, width), got {size!r}") from None
    if not (1 <= height <= 65_535 and 1 <= width <= 65_535):
        raise ConfigError(f"{name} size must be in [1, 65535] pixels, got {size!r}")
    return height, width


def freeze(op: Any, *names: str) -> None:
    """Lists and arrays in these fields become tuples: an op compares, hashes and prints as a value."""
    for name in names:
        value = getattr(op, name)
        if isinstance(value, (list, np.ndarray)):
            object.__setattr__(op, name, tuple(value.tolist() if isinstance(value, np.ndarray) else value))


def check_filter(name: str, filter: str) -> None:
    """Refuse an unknown resampling filter."""
    if filter not in FILTERS:
        raise ConfigError(f"{name} filter must be one of {', '.join(FILTERS)}, got {filter!r}")
