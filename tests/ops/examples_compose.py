"""Examples of ops made of others, for the laws of every op."""

from __future__ import annotations

import numpy as np

from fastfeed.ops.compose import Maybe, OneOf, Sequential
from fastfeed.ops.geometry import CenterCrop, RandomFlip, Resize


def darker(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """By up to a half."""
    return (image * (1 - numbers[0] / 2)).astype(np.uint8)


EXAMPLES = {
    Maybe: [Maybe(RandomFlip(0.5)), Maybe(darker, 0.25), Maybe(OneOf([Sequential([RandomFlip(1.0), darker]), darker]))],
    OneOf: [
        OneOf([RandomFlip(1.0), RandomFlip(1.0, "vertical")]),
        OneOf([darker, RandomFlip(1.0), Sequential([RandomFlip(), darker])], weights=[1, 2, 0.5]),
    ],
    Sequential: [
        Sequential([Resize((24, 20)), RandomFlip(), CenterCrop(16)]),
        Sequential([RandomFlip(0.5, "both"), Maybe(darker, 0.75)]),
    ],
}
MEANING = {}
