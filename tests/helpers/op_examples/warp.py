"""Examples of the ops that look through a matrix, and Pillow's word on what they mean."""

from typing import Any

import numpy as np
from PIL import Image

from fastfeed.ops.base import shade
from fastfeed.ops.warp import Affine, Perspective, Rotate
from helpers.meaning import BILINEAR, Meaning

EXAMPLES = {
    Rotate: [
        Rotate(30),
        Rotate((-90.0, 45.0), fill=(255, 128, 0)),
        Rotate([90, 90]),
        Rotate(180, "nearest"),
        Rotate(60, border="reflect"),
        Rotate((20, 40), "nearest", border="edge", center=(3.5, 20)),
        Rotate(25, fill=(9, 200, 1), expand=True),
        Rotate((-200, -150), border="symmetric", expand=True),
    ],
    Affine: [
        Affine(),
        Affine(15, (0.1, 0.2), (0.8, 1.2), 10),
        Affine(translate=[0.3, 0.0], scale=[0.5, 0.5], shear=[-5, 5, -20, 20], fill=[9, 8, 7]),
        Affine((10, 20), filter="nearest"),
        Affine(20, (0.5, 0.5), (0.1, 2.0), border="symmetric"),
    ],
    Perspective: [
        Perspective(),
        Perspective(0.3, 1.0, fill=(1, 2, 3)),
        Perspective(0.8, 0.7, "nearest"),
        Perspective(0.5, 0.9, border="edge"),
        Perspective(0.5, 0.9, "nearest", border="reflect"),
    ],
}


def pillow(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Image.transform, as torchvision calls it, of the image with two pixels of fill around it.

    Without these Pillow stops at once where the image ends; with them it fades into the fill over a
    pixel. NumPy draws a border that is much wider.
    """
    channels = image.shape[2]
    fill = shade(op.fill, channels)
    if op.border == "constant":
        frame = 2
        framed = np.empty((image.shape[0] + 4, image.shape[1] + 4, channels), np.uint8)
        framed[:] = fill
        framed[2:-2, 2:-2] = image
    else:
        frame = 8 * max(image.shape)
        around = ((frame, frame), (frame, frame), (0, 0))
        framed = np.pad(image, around, op.border)
    height, width = values["size"][row].tolist() if "size" in values else image.shape[:2]
    matrix = np.array([[1, 0, frame], [0, 1, frame], [0, 0, 1]]) @ values["matrix"][row]
    flat = Image.fromarray(framed[:, :, 0] if channels == 1 else framed)
    how = {"bilinear": Image.Resampling.BILINEAR, "nearest": Image.Resampling.NEAREST}[op.filter]
    kind = (
        Image.Transform.AFFINE
        if np.array_equal(matrix[2], [0, 0, 1])
        else Image.Transform.PERSPECTIVE
    )
    data = tuple((matrix / matrix[2, 2]).ravel()[: 6 if kind == Image.Transform.AFFINE else 8])
    seen = flat.transform(
        (width, height), kind, data, how, fillcolor=fill if channels == 3 else fill[0]
    )
    return np.asarray(seen).reshape(height, width, channels)


# nearest: where a pixel's center falls on the line between two others, rounding decides
MEANING = {
    kind: Meaning(pillow, 1, 0.995, "Pillow Image.transform")
    for kind in (Rotate, Affine, Perspective)
}
ON_DALI = {Rotate: BILINEAR, Affine: BILINEAR, Perspective: BILINEAR}
