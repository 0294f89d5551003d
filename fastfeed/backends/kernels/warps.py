"""Images seen through a matrix: rotation, affine maps, perspective."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from PIL import Image

from fastfeed.ops.base import shade
from fastfeed.ops.warp import Affine, Perspective, Rotate

__all__ = ["KERNELS", "warp"]

_FLAGS = {
    "bilinear": cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
    "nearest": cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP,
}
_MOST = 32_766  # OpenCV counts coordinates in 16 bits with a sign


def warp(image: np.ndarray, matrix: np.ndarray, filter: str, fill: tuple[int, ...]) -> np.ndarray:
    """Every pixel of the result is looked up in `image`; what lies outside is `fill`. `image` itself for the identity.

    image   uint8 (height, width, channels) or (height, width), for masks; of that shape is the result, too
    matrix  float64 (3, 3): from output to input coordinates, (x, y, 1) columns, pixel centers at +0.5
    fill    as many numbers as channels

    As Pillow's `Image.transform`, but for bilinear pixels within half a pixel of the image's edge: Pillow repeats the
    edge up to there and stops, this fades into the fill over one pixel, as torchvision does with tensors.
    """
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    if a == e == i == 1.0 and b == c == d == f == g == h == 0.0:
        return image
    if max(image.shape[:2]) > _MOST:
        return _by_pillow(image, matrix, filter, fill)
    size = image.shape[1::-1]
    if g == h == 0.0:
        move = np.array([[a, b, c + (a + b - i) / 2], [d, e, f + (d + e - i) / 2]]) / i
        out = cv2.warpAffine(image, move, size, flags=_FLAGS[filter], borderValue=fill)
    else:
        half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
        back = np.array([[1, 0, -0.5], [0, 1, -0.5], [0, 0, 1]])
        out = cv2.warpPerspective(image, back @ matrix @ half, size, flags=_FLAGS[filter], borderValue=fill)
    return out.reshape(image.shape)


def _by_pillow(image: np.ndarray, matrix: np.ndarray, filter: str, fill: tuple[int, ...]) -> np.ndarray:
    plain = Image.fromarray(image[:, :, 0] if image.shape[2:] == (1,) else image)
    data = tuple((matrix / (matrix[2, 2] or 1e-12)).ravel()[:8])
    how = Image.Resampling.BILINEAR if filter == "bilinear" else Image.Resampling.NEAREST
    shade: Any = tuple(fill) if plain.mode == "RGB" else fill[0]
    seen = plain.transform(plain.size, Image.Transform.PERSPECTIVE, data, how, fillcolor=shade)
    return np.array(seen).reshape(image.shape)


def warped(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Rotate, Affine, Perspective."""
    return warp(image, values["matrix"][row], op.filter, shade(op.fill, image.shape[2]))


KERNELS = {Rotate: warped, Affine: warped, Perspective: warped}
