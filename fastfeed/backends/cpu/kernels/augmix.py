"""AugMix: chains of its own, and a blend of what they give."""

from __future__ import annotations

import threading
from typing import Any

import cv2
import numpy as np

from fastfeed.ops.augmix import AugMix

__all__ = ["KERNELS"]

_MINE = threading.local()  # fresh memory would cost as much as the blend


def mix(op: AugMix, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Every version after its chain, in its share; in float32, rounded once."""
    from fastfeed.backends.cpu.chain import run  # the chain needs this module's table

    found, chain = [image], op.chain
    for taken in values["chains"]:
        found.append(run(chain, taken, row, image.copy(), leave=False)[0])
    flat = [one.reshape(len(image), -1) for one in found]
    shares = values["shares"][row].tolist()
    if len(flat) % 2:
        flat, shares = [*flat, image.reshape(len(image), -1)], [*shares, 0.0]
    total, pair = _sums(flat[0].shape)
    for k in range(0, len(flat), 2):  # two at a time: half as many passes
        target = pair if k else total
        cv2.addWeighted(flat[k], shares[k], flat[k + 1], shares[k + 1], 0, dst=target, dtype=cv2.CV_32F)
        if k:
            cv2.add(total, pair, dst=total)
    return cv2.convertScaleAbs(total, dst=flat[0]).reshape(image.shape)


def _sums(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Two float32 arrays of this thread's own, of any content."""
    need = shape[0] * shape[1]
    held: np.ndarray | None = getattr(_MINE, "held", None)
    if held is None or held.shape[1] < need:
        held = _MINE.held = np.empty((2, need), np.float32)
    return held[0, :need].reshape(shape), held[1, :need].reshape(shape)


KERNELS = {AugMix: mix}
