"""How the meaning of an op is checked: the cpu backend against a reference, the dali backend
against the cpu one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Meaning(NamedTuple):
    """What an op does to one image by somebody else's word, and how near the cpu backend has to
    come.
    """

    # (op, values, row, uint8 HWC image) -> image
    oracle: Callable[[Any, dict[str, Any], int, np.ndarray], np.ndarray]
    within: float = 1  # levels of 255
    # of all pixels' channels that have to be that near; the rest may lie on an edge
    share: float = 1.0
    # what it is: "Pillow ImageEnhance.Brightness", "torchvision adjust_hue", "formula"
    source: str = ""


class Within(NamedTuple):
    """How far the dali backend may be from the cpu backend, in levels of 255."""

    inside: float  # largest, but for the outermost rows and columns
    edge: float  # largest there
    mean: float
    # share of any one sample that is more than two levels off: another op would change nearly all
    far: float = 1.0


SAME = Within(0, 0, 0)
ROUNDED = Within(1, 1, 0.15)  # sums in another order, rounded or truncated
# rarely: a pixel's center falls on the line between two others
NEAREST = Within(255, 255, 0.3, 0.01)
BILINEAR = Within(4, 4, 0.05)  # OpenCV interpolates in steps of 1/32
# what came out one level off may fall on the other side of a later op's threshold, or be looked up
# next to it
AFTER_EACH_OTHER = Within(255, 255, 1.0, 0.3)
