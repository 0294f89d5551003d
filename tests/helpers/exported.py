"""Lists of ops that can be exported, and images for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fastfeed as ff

SIZE = (40, 56)
LIST = [*range(0, 256, 2), *range(255, 0, -2)]
_IMAGES = np.random.default_rng(0).integers(0, 256, (3, *SIZE, 3), np.uint8)
LEVELS = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=3)

# ops after the geometry at the front of a list, on images of any size
PIXELS: dict[str, list[Any]] = {
    "imagenet": [ff.Normalize.imagenet()],
    "chw": [ff.ToFloat(), ff.Normalize((0.5, 0.4, 0.3), (0.1, 0.2, 0.3)), ff.ToLayout("CHW")],
    "half": [ff.ToFloat("float16")],
    "bytes": [ff.ToLayout("CHW")],
    "gray": [ff.Grayscale(), ff.Normalize.imagenet()],
    "tables": [
        ff.Invert(),
        ff.LUT([LIST, LIST[::-1], LIST]),
        ff.Grayscale(),
        ff.Gamma(0.5),
        ff.Brightness((1.5, 1.5)),
        ff.Posterize(3),
        ff.Solarize(99),
        ff.ToFloat(),
    ],
    "sequence": [ff.Sequential([ff.Invert(), ff.Sequential([ff.Solarize(9)])])],
}
# lists for whole images of `SIZE`
WHOLE: dict[str, list[Any]] = {
    "center": [ff.CenterCrop((31, 40)), ff.Normalize.imagenet()],
    "same size": [ff.Resize(SIZE), ff.Normalize.imagenet()],
    "fill": [ff.Crop(2, 3, (30, 40)), ff.Pad((1, 2, 3, 4), fill=(9, 8, 7)), ff.Grayscale()],
    "edge": [ff.CenterCrop(20), ff.Pad(25, "edge"), ff.ToLayout("CHW")],
    "reflect": [ff.CenterCrop((31, 40)), ff.Pad(35, "reflect")],
    "twice": [ff.CenterCrop(30), ff.Invert(), ff.Pad(3), ff.CenterCrop((20, 34)), ff.ToFloat()],
}


EVERY_NODE = ("chw", "half", "tables", "fill", "edge", "reflect")  # of a graph, in few lists


def cases(names: Sequence[str] | None = None) -> list[tuple[str, list[Any], Any, np.ndarray]]:
    """Name, list of ops, size of whole images or None, input of the exported graph; of all lists,
    or those of these names.
    """
    listed: list[tuple[str, list[Any], Any, np.ndarray]] = [
        (name, [ff.Resize((16, 16)), *ops], None, LEVELS) for name, ops in PIXELS.items()
    ]
    listed += [(name, ops, SIZE, _IMAGES) for name, ops in WHOLE.items()]
    return [case for case in listed if names is None or case[0] in names]


def expected(ops: list[Any], images: np.ndarray) -> np.ndarray:
    """What a transform makes of the images."""
    with ff.Transform(ops, threads=1) as transform:
        return transform(list(images)).images.copy()
