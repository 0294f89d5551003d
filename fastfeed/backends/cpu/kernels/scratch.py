"""Memory that color ops use on the way: one piece per thread, because fresh memory costs more than the ops do."""

from __future__ import annotations

import threading

import cv2
import numpy as np

from fastfeed.runtime.buffers import aligned

__all__ = ["planes", "split"]

_MINE = threading.local()


def planes(count: int, height: int, width: int) -> np.ndarray:
    """uint8 (count, height, width), contiguous, of any content: this thread's until it asks again."""
    need = count * height * width
    held: np.ndarray | None = getattr(_MINE, "held", None)
    if held is None or len(held) < need:
        held = _MINE.held = aligned((need,), "uint8")
    return held[:need].reshape(count, height, width)


def split(image: np.ndarray) -> list[np.ndarray]:
    """Each channel as a plane (height, width) in this thread's memory; may be overwritten."""
    held = list(planes(image.shape[2], *image.shape[:2]))
    return list(cv2.split(image, held))
