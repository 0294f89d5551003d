"""AugMix: chains of its own, and a blend of what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from fastfeed.ops.augmix import AugMix


def mix(
    op: AugMix, values: dict[str, Any], row: int, image: np.ndarray, run: Callable[..., Any]
) -> np.ndarray:
    """The weighted sum of the image and its versions, each after its own chain; in float32, rounded
    once.
    """
    versions, chain = [image], op.chain
    for choices in values["chains"]:
        versions.append(run(chain, choices, row, image.copy()))
    flat = [version.reshape(len(image), -1) for version in versions]
    shares = values["shares"][row].tolist()
    if len(flat) % 2:
        flat, shares = [*flat, image.reshape(len(image), -1)], [*shares, 0.0]
    total, pair = np.empty((2, *flat[0].shape), np.float32)
    for k in range(0, len(flat), 2):  # two at a time: half as many passes
        target = pair if k else total
        cv2.addWeighted(
            flat[k], shares[k], flat[k + 1], shares[k + 1], 0, dst=target, dtype=cv2.CV_32F
        )
        if k:
            cv2.add(total, pair, dst=total)
    return cv2.convertScaleAbs(total, dst=flat[0]).reshape(image.shape)


NESTED = {AugMix: mix}
