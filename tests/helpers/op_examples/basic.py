"""Examples of the ops that every list has, of several views, and of users' functions."""

import numpy as np

from fastfeed.ops import (
    Decode,
    FiveCrop,
    Function,
    Invert,
    Map,
    MultiCrop,
    Normalize,
    Standardize,
    TenCrop,
    ToFloat,
    ToLayout,
    View,
)
from helpers.meaning import Meaning


def darker(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """What a user may write."""
    image[...] = image * numbers[0]
    return image


def shares(label: np.ndarray) -> np.ndarray:
    """What a user may write for whole batches."""
    return label / np.float32(8)


def noisy(label: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """What a user may write with random numbers."""
    return label + numbers[:, 0]


EXAMPLES = {
    Decode: [Decode(), Decode(matte=(0, 0, 0), max_pixels=10_000)],
    ToFloat: [ToFloat(), ToFloat("float16"), ToFloat("bfloat16")],
    Normalize: [Normalize.imagenet(), Normalize([0.5, 0.5, 0.5], np.array([0.5, 0.25, 0.125]))],
    Standardize: [Standardize()],
    ToLayout: [ToLayout("CHW"), ToLayout("HWC")],
    Function: [Function(darker), Function(darker, draws=1)],
    Map: [
        Map(shares, "label", out="share"),
        Map(shares, "label", out="label", dtype="float32"),
        Map(noisy, "label", out="label", draws=1),
    ],
    FiveCrop: [FiveCrop(16), FiveCrop([12, 20])],
    TenCrop: [TenCrop(16), TenCrop((12, 20), vertical=True)],
    MultiCrop: [
        MultiCrop((View(20, 2, scale=(0.4, 1.0)), View(10, 3, scale=[0.05, 0.4], ops=[Invert()]))),
        MultiCrop([View((9, 8))]),
    ],
}
MEANING = {
    Function: Meaning(
        lambda op, values, row, image: op.function(image.copy(), values["u"][row]),
        0,
        source="itself",
    ),
}
ON_DALI = {Function: None, Standardize: None}  # it calls no Python, nor measures an image
