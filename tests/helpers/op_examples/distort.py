"""Examples of the ops that bend images, and OpenCV's word on what they mean."""

from typing import Any

import cv2
import numpy as np

from fastfeed.ops.base import shade
from fastfeed.ops.distort import ElasticTransform, GridDistortion
from fastfeed.ops.noise_table import normal, read_wrapped
from helpers.meaning import Meaning

EXAMPLES = {
    ElasticTransform: [
        ElasticTransform(),
        ElasticTransform([100, 400], 3.0, fill=[9, 200, 1]),
        ElasticTransform(200.0, 1.0, "nearest", border="reflect"),
        ElasticTransform(60, 0.5, border="symmetric"),
    ],
    GridDistortion: [
        GridDistortion(),
        GridDistortion(3, 0.9, border="constant", fill=(1, 2, 3)),
        GridDistortion(7, [-0.3, 0.8], "nearest", border="symmetric"),
        GridDistortion(2, border="reflect"),
    ],
}

_BORDERS = {
    "constant": cv2.BORDER_CONSTANT,
    "edge": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT_101,
    "symmetric": cv2.BORDER_REFLECT,
}


def remapped(op: Any, image: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    how = cv2.INTER_NEAREST if op.filter == "nearest" else cv2.INTER_LINEAR
    fill = shade(op.fill, image.shape[2])
    maps = x.astype(np.float32), y.astype(np.float32)
    made = cv2.remap(image, *maps, how, borderMode=_BORDERS[op.border], borderValue=fill)
    return made.reshape(image.shape)


def elastic(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """OpenCV's GaussianBlur of the noise around the image, and its remap."""
    height, width = image.shape[:2]
    half = (int(8 * op.sigma + 1) | 1) // 2
    alpha = values["alpha"][row] / 2 / np.sqrt(3)  # of normal noise with the variance of uniform
    moves = []
    for offset in values["offsets"][row].tolist():
        shape = (height + 2 * half, width + 2 * half)
        noise = read_wrapped(normal(), offset, shape[0] * shape[1]).reshape(shape)
        blurred = cv2.GaussianBlur(noise, (2 * half + 1,) * 2, op.sigma)
        moves.append(alpha * blurred[half : half + height, half : half + width])
    return remapped(op, image, np.arange(width) + moves[0], np.arange(height)[:, None] + moves[1])


def grid(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """np.interp between the grid's lines."""
    along = [
        np.interp(np.arange(n) + 0.5, np.linspace(0, n, op.steps + 1), lines) - 0.5
        for n, lines in zip(image.shape[1::-1], values["lines"][row], strict=True)
    ]
    return remapped(op, image, *np.meshgrid(*along))


# places are rounded to 1/256 of a pixel, here and not there
MEANING = {
    ElasticTransform: Meaning(elastic, 2, 0.99, "OpenCV GaussianBlur and remap"),
    GridDistortion: Meaning(grid, 2, 0.98, "NumPy interp, OpenCV remap"),
}
ON_DALI = {ElasticTransform: None, GridDistortion: None}
