"""Sizes and values that several recipes share."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops import Normalize
from fastfeed.ops.base import check_size

TO_ONE = Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))  # from -1 to 1


def check_side(name: str, size: Any) -> int:
    """The side of a square that the recipe `name` was given, pixels. ConfigError."""
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
        raise ConfigError.of(f"{name} size", "an int, the side of a square in pixels", size)
    return check_size(name, size)[0]
