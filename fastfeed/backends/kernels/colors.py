"""Color ops that need all channels of a pixel at once."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from fastfeed.ops.color import Grayscale, Hue, Saturation

__all__ = ["KERNELS"]


def grayscale(op: Grayscale, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    if image.shape[2] == 1:
        return image
    return cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB, dst=image)


def saturation(op: Saturation, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    if image.shape[2] == 1:
        return image
    factor = float(values["factor"][row])
    gray = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    # Pillow cuts where OpenCV rounds: half a level less, but for whole numbers to stay what they are
    return cv2.addWeighted(image, factor, gray, 1 - factor, 2**-13 - 0.5, dst=image)


def hue(op: Hue, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    if image.shape[2] == 1:
        return image
    hsv = cv2.cvtColor(image.astype(np.float32), cv2.COLOR_RGB2HSV)  # degrees, share, level
    angle = hsv[:, :, 0] + np.float32(360 * values["shift"][row])
    angle[angle < 0] += 360
    angle[angle >= 360] -= 360
    hsv[:, :, 0] = angle
    back = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)
    return np.clip(np.rint(back), 0, 255).astype(np.uint8)


KERNELS = {Grayscale: grayscale, Saturation: saturation, Hue: hue}
