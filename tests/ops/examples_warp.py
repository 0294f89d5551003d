"""Examples of the ops that look through a matrix, and Pillow's word on what they mean."""

from typing import Any

import numpy as np
from meaning import Meaning
from PIL import Image

from fastfeed.ops.base import shade
from fastfeed.ops.warp import Affine, Perspective, Rotate

EXAMPLES = {
    Rotate: [
        Rotate(30),
        Rotate((-90.0, 45.0), fill=(255, 128, 0)),
        Rotate([90, 90]),
        Rotate(180, "nearest"),
    ],
    Affine: [
        Affine(),
        Affine(15, (0.1, 0.2), (0.8, 1.2), 10),
        Affine(translate=[0.3, 0.0], scale=[0.5, 0.5], shear=[-5, 5, -20, 20], fill=[9, 8, 7]),
        Affine((10, 20), filter="nearest"),
    ],
    Perspective: [Perspective(), Perspective(0.3, 1.0, fill=(1, 2, 3)), Perspective(0.8, 0.7, "nearest")],
}


def pillow(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Image.transform, as torchvision calls it."""
    matrix = values["matrix"][row]
    flat = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    how = {"bilinear": Image.Resampling.BILINEAR, "nearest": Image.Resampling.NEAREST}[op.filter]
    fill = shade(op.fill, image.shape[2])
    kind = Image.Transform.AFFINE if np.array_equal(matrix[2], [0, 0, 1]) else Image.Transform.PERSPECTIVE
    data = tuple((matrix / matrix[2, 2]).ravel()[: 6 if kind == Image.Transform.AFFINE else 8])
    seen = flat.transform(flat.size, kind, data, how, fillcolor=fill if len(fill) == 3 else fill[0])
    return np.asarray(seen).reshape(image.shape)


# At the image's own edge OpenCV fades into the fill over a pixel where Pillow stops at once: those pixels may differ.
MEANING = {kind: Meaning(pillow, 1, 0.97, "Pillow Image.transform") for kind in (Rotate, Affine, Perspective)}
