"""Memory that color ops use on the way: one piece per thread, because fresh memory costs more than
the ops do.
"""

from __future__ import annotations

import threading

import cv2
import numpy as np

from fastfeed.runtime.buffers import aligned

__all__ = ["planes", "split"]

_LOCAL = threading.local()


def planes(count: int, height: int, width: int) -> np.ndarray:
    """uint8 (count, height, width), contiguous, of any content: this thread's until it asks
    again.
    """
    need = count * height * width
    buffer: np.ndarray | None = getattr(_LOCAL, "buffer", None)
    if buffer is None or len(buffer) < need:
        buffer = _LOCAL.buffer = aligned((need,), "uint8")
    return buffer[:need].reshape(count, height, width)


def split(image: np.ndarray) -> list[np.ndarray]:
    """Each channel as a plane (height, width) in this thread's memory; may be overwritten."""
    buffer = list(planes(image.shape[2], *image.shape[:2]))
    return list(cv2.split(image, buffer))
