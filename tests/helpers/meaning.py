"""How the meaning of an op is checked: against another library, or against its formula written down plainly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Meaning(NamedTuple):
    """What an op does to one image by somebody else's word, and how near the cpu backend has to come."""

    oracle: Callable[[Any, dict[str, Any], int, np.ndarray], np.ndarray]  # (op, values, row, uint8 HWC image) -> image
    within: float = 1  # levels of 255
    share: float = 1.0  # of all pixels' channels that have to be that near; the rest may lie on an edge
    source: str = ""  # what it is: "Pillow ImageEnhance.Brightness", "torchvision adjust_hue", "formula"
