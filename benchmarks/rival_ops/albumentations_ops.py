"""Albumentations: its transforms, with draws of their own in the same ranges."""

from __future__ import annotations

from functools import cache
from typing import Any

import albumentations
import cv2
import numpy as np


@cache
def transform(name: str, *named: tuple[str, Any]) -> Any:
    return getattr(albumentations, name)(p=1.0, **dict(named))


def rotate(image: np.ndarray, op: Any, v: dict[str, Any]) -> Any:
    if op.expand:
        return None
    border = cv2.BORDER_REFLECT_101 if op.border == "reflect" else cv2.BORDER_CONSTANT
    made = transform("Rotate", ("limit", op.degrees), ("border_mode", border))
    return made(image=image)["image"]


def median(image: np.ndarray, op: Any, v: dict[str, Any]) -> Any:
    return transform("MedianBlur", ("blur_limit", (op.kernel, op.kernel)))(image=image)["image"]


def plain(name: str, **named: Any) -> Any:
    return lambda image, op, v: transform(name, *named.items())(image=image)["image"]


OPS = {
    "ChannelShuffle": plain("ChannelShuffle"),
    "ChannelDropout": plain("ChannelDropout", channel_drop_range=(1, 2)),
    "MotionBlur": plain("MotionBlur", blur_limit=(3, 15)),
    "MedianBlur": median,
    "ElasticTransform": plain("ElasticTransform", alpha=25.0, sigma=5.0),
    "GridDistortion": plain("GridDistortion"),
    "Standardize": plain("Normalize", normalization="image"),
    "Rotate": rotate,
}
