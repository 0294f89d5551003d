"""Memory for results of OpenCV."""

from __future__ import annotations

import cv2
import numpy as np


def planes(count: int, height: int, width: int) -> np.ndarray:
    """Contiguous uint8 (count, height, width) of any content."""
    return np.empty((count, height, width), np.uint8)


def split(image: np.ndarray) -> list[np.ndarray]:
    """Each channel as a plane (height, width) in memory that may be overwritten."""
    return [np.ascontiguousarray(plane) for plane in cv2.split(image)]
