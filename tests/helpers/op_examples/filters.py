"""Examples of sharpness, blur, noise and JPEG's artifacts, and who says what they mean."""

import io
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance

from fastfeed.ops.filters import (
    GaussianBlur,
    GaussianNoise,
    JPEGCompression,
    MedianBlur,
    MotionBlur,
    Sharpness,
)
from fastfeed.ops.noise_table import LENGTH, normal
from helpers.meaning import ROUNDED, Meaning, Within

EXAMPLES = {
    Sharpness: [Sharpness(0.9), Sharpness([0.0, 1.0]), Sharpness((2.5, 4.0))],
    GaussianBlur: [
        GaussianBlur(),
        GaussianBlur(23, (0.1, 2.0)),
        GaussianBlur(5, [1.5, 3.0]),
        GaussianBlur(61, (8, 9)),
    ],
    MotionBlur: [
        MotionBlur(),
        MotionBlur(5, 30),
        MotionBlur((1, 99)),
        MotionBlur((3, 21), (60, 60)),
    ],
    MedianBlur: [MedianBlur(), MedianBlur(3), MedianBlur(5), MedianBlur((1, 15))],
    GaussianNoise: [GaussianNoise(), GaussianNoise([40, 80])],
    JPEGCompression: [JPEGCompression(), JPEGCompression([1, 10])],
}


def pillow(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def sharpness(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    sharp = ImageEnhance.Sharpness(pillow(image)).enhance(float(values["factor"][row]))
    return np.asarray(sharp).reshape(image.shape)


def blur(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Every tap by itself; padding as often mirrored as it takes."""
    half = op.taps // 2
    weights = np.exp(-0.5 * (np.arange(-half, half + 1) / values["sigma"][row]) ** 2)
    weights /= weights.sum()
    blurred = image.astype(np.float64)
    for axis, length in enumerate(image.shape[:2]):
        there = np.arange(-half, length + half) % max(2 * length - 2, 1)
        padded = blurred.take(
            np.minimum(there, 2 * length - 2 - there) if length > 1 else 0 * there, axis
        )
        blurred = sum(w * padded.take(np.arange(length) + i, axis) for i, w in enumerate(weights))
    return np.rint(blurred).astype(np.uint8)


def motion(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """The mean of moved images."""
    half = int(values["length"][row]) // 2
    padded = np.pad(image, ((half, half), (half, half), (0, 0)), "reflect").astype(np.float64)
    height, width = image.shape[:2]
    total = np.zeros(image.shape)
    for k in range(-half, half + 1):
        x, y = np.rint(k * values["direction"][row] * (1 - 1e-9)).astype(int)
        total += padded[half + y : half + y + height, half + x : half + x + width]
    return np.rint(total / (2 * half + 1)).astype(np.uint8)


def median(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    kernel = int(values["kernel"][row])
    half = kernel // 2
    padded = np.pad(image, ((half, half), (half, half), (0, 0)), "edge")
    squares = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (0, 1))
    return np.median(squares, axis=(-2, -1)).astype(np.uint8)


def noise(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    found = (
        normal()[(values["offset"][row] + np.arange(image.size)) % LENGTH]
        .astype(np.float64)
        .reshape(image.shape)
    )
    return np.clip(np.rint(image + values["sigma"][row] * found), 0, 255).astype(np.uint8)


def jpeg(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    file = io.BytesIO()
    color = {} if image.shape[2] == 1 else {"subsampling": "4:2:0"}
    pillow(image).save(file, "JPEG", quality=int(values["quality"][row]), **color)
    with Image.open(file) as again:
        return np.asarray(again).reshape(image.shape)


MEANING = {
    Sharpness: Meaning(sharpness, 1, source="Pillow ImageEnhance.Sharpness"),
    GaussianBlur: Meaning(blur, 1, source="torchvision gaussian_blur"),
    MotionBlur: Meaning(motion, 0, source="formula"),
    MedianBlur: Meaning(median, 0, source="NumPy median"),
    GaussianNoise: Meaning(noise, 1, source="formula"),
    JPEGCompression: Meaning(jpeg, 1, source="Pillow Image.save"),
}
ON_DALI = {
    Sharpness: Within(2, 1, 0.6),
    GaussianBlur: ROUNDED,
    MotionBlur: ROUNDED,
    MedianBlur: None,  # DALI has it on GPUs alone
    GaussianNoise: ROUNDED,
    JPEGCompression: Within(2, 2, 0.1),  # nothing where DALI and OpenCV have the same libjpeg
}
