"""Images seen through a matrix: rotation, affine maps, perspective."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from PIL import Image

from fastfeed.ops.base import shade
from fastfeed.ops.warp import Affine, Perspective, Rotate
from helpers.opencv_ops.scratch import planes
from helpers.opencv_ops.warp_arrays import warp_pixels

_FLAGS = {
    "bilinear": cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
    "nearest": cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP,
}
_BORDERS = {
    "constant": cv2.BORDER_CONSTANT,
    "edge": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT_101,
    "symmetric": cv2.BORDER_REFLECT,
}
_SAME = np.eye(3).tolist()
_MOST = 32_766  # OpenCV counts coordinates in 16 bits with a sign
# OpenCV 4 rounds coordinates to 1/32 of a pixel: levels are off by up to 2, a mask's pixel may be
# its neighbor's
_EXACT = int(cv2.__version__.split(".")[0]) >= 5


def warp(
    image: np.ndarray,
    matrix: np.ndarray,
    filter: str,
    fill: tuple[int, ...],
    out: np.ndarray | None = None,
    border: str = "constant",
    shape: tuple[int, ...] | None = None,
) -> np.ndarray:
    """Every pixel of the result is looked up in `image`; what lies outside is `fill`, or by
    `border`.

    `image` itself for the identity, unless the result has a `shape` (height, width) of its own.

    image   uint8 (height, width, channels) or (height, width), for masks; of that shape is the
    result, too matrix  float64 (3, 3): from output to input coordinates, (x, y, 1) columns, pixel
    centers at +0.5 fill    as many numbers as channels out     where to write, other memory than
    the image's; new memory unless given

    As Pillow's `Image.transform`, but for bilinear pixels within half a pixel of the image's edge:
    Pillow repeats the edge up to there and stops, this fades into the fill over one pixel, as
    torchvision does with tensors.
    """
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    if a == e == i == 1.0 and b == c == d == f == g == h == 0.0 and not shape:
        return image
    if max(image.shape[:2]) > _MOST:
        assert border == "constant" and not shape, "Pillow has no border"
        return _by_pillow(image, matrix, filter, fill)
    shape, flags = (*(shape or image.shape[:2]), *image.shape[2:]), _FLAGS[filter]
    if g == h == 0.0:
        move = np.array(
            (
                (a / i, b / i, c / i + (a + b) / i / 2 - 0.5),
                (d / i, e / i, f / i + (d + e) / i / 2 - 0.5),
            )
        )
        take = cv2.warpAffine
    else:  # half a pixel back, the matrix, half a pixel on
        ahead = ((a, b, c + (a + b) / 2), (d, e, f + (d + e) / 2), (g, h, i + (g + h) / 2))
        move = np.array(
            [[v - w / 2 for v, w in zip(row, ahead[2], strict=True)] for row in ahead[:2]]
            + [ahead[2]]
        )
        take = cv2.warpPerspective
    if not _EXACT:
        out = np.empty(shape, np.uint8) if out is None else out
        warp_pixels(image, move, filter == "nearest", fill, out, border)
        return out
    made = take(
        image,
        move,
        shape[1::-1],
        dst=out,
        flags=flags,
        borderMode=_BORDERS[border],
        borderValue=fill,
    )
    return made.reshape(shape)


def _by_pillow(
    image: np.ndarray, matrix: np.ndarray, filter: str, fill: tuple[int, ...]
) -> np.ndarray:
    plain = Image.fromarray(image[:, :, 0] if image.shape[2:] == (1,) else image)
    data = tuple((matrix / (matrix[2, 2] or 1e-12)).ravel()[:8])
    how = Image.Resampling.BILINEAR if filter == "bilinear" else Image.Resampling.NEAREST
    shade: Any = tuple(fill) if plain.mode == "RGB" else fill[0]
    result = plain.transform(plain.size, Image.Transform.PERSPECTIVE, data, how, fillcolor=shade)
    return np.array(result).reshape(image.shape)


def warped(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Rotate, Affine, Perspective: into the image's own memory, from a copy, unless it grows."""
    matrix, fill = values["matrix"][row], shade(op.fill, image.shape[2])
    if "size" in values:
        return warp(
            image, matrix, op.filter, fill, None, op.border, tuple(values["size"][row].tolist())
        )
    if matrix.tolist() == _SAME:
        return image
    source = planes(*image.shape)
    np.copyto(source, image)
    return warp(source, matrix, op.filter, fill, image, op.border)


KERNELS = {Rotate: warped, Affine: warped, Perspective: warped}
