"""The ops that `bench_augment.py` measures, the photographs they work on, and the forms that rivals like these in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from rounds import DATA

import fastfeed as ff
from fastfeed.backends.cpu.chain import run
from fastfeed.ops import OPS
from fastfeed.ops.program.layers import choose, layers

IMAGES, SIDE = 32, 224
Run = Callable[[], int]

CASES = {
    "Brightness": "Brightness(0.4)",
    "Contrast": "Contrast(0.4)",
    "Saturation": "Saturation(0.4)",
    "Hue": "Hue(0.1)",
    "ColorJitter": "ColorJitter(0.4, 0.4, 0.4, 0.1)",
    "Grayscale": "Grayscale()",
    "Solarize": "Solarize((0, 256))",
    "Posterize": "Posterize((2, 7))",
    "Equalize": "Equalize()",
    "AutoContrast": "AutoContrast()",
    "Invert": "Invert()",
    "Gamma": "Gamma((0.7, 1.5))",
    "LUT": "LUT([*range(255, -1, -1)])",
    "Sharpness": "Sharpness(0.9)",
    "GaussianBlur": "GaussianBlur(23, (0.1, 2.0))",
    "GaussianNoise": "GaussianNoise((1, 25))",
    "JPEGCompression": "JPEGCompression((30, 95))",
    "RandomErasing": "RandomErasing(1.0)",
    "RandomErasing, noise": "RandomErasing(1.0, fill='noise')",
    "CutOut": "CutOut(112)",
    "GridMask": "GridMask()",
    "Rotate": "Rotate(30)",
    "Affine": "Affine(15, (0.1, 0.1), (0.9, 1.1), 10)",
    "Perspective": "Perspective(0.5, 1.0)",
    "RandomFlip": "RandomFlip(1.0)",
    "RandAugment": "RandAugment()",
    "TrivialAugmentWide": "TrivialAugmentWide()",
    "AutoAugment": "AutoAugment('imagenet')",
    "AugMix": "AugMix()",
}


def evaluated(name: str) -> Any:
    return eval(CASES[name], {kind.__name__: kind for kind in OPS})


def rows_of(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each image, as plain numbers."""
    return [{key: of[i].item() if of.ndim == 1 else of[i] for key, of in values.items()} for i in range(IMAGES)]


def photographs() -> list[np.ndarray]:
    """Parts of real ones, as a feed cuts them."""
    source = ff.ImageFolder(DATA / "imagenet-sample", labeled=False)
    with ff.Feed(source, [ff.RandomResizedCrop(SIDE)], batch=IMAGES) as feed:
        return list(next(feed.batches(0)).images)


def ours(op: Any, u: np.ndarray, sizes: np.ndarray, images: list[np.ndarray]) -> tuple[Run, Run, np.ndarray]:
    """As a feed does it that yields bytes; the copies that keep the images whole, alone; and the first result."""
    chain, scratch = layers(op), np.empty_like(images[0])

    def image(row: int, all_choices: Any) -> np.ndarray:
        np.copyto(scratch, images[row])
        return run(chain, all_choices, row, scratch, leave=False)[0]

    def go() -> int:
        all_choices = choose(op, u, sizes)
        for row in range(len(images)):
            image(row, all_choices)
        return len(images)

    def copies() -> int:
        for given in images:
            np.copyto(scratch, given)
        return len(images)

    return go, copies, image(0, choose(op, u, sizes)).copy().astype(int)


def tensor(image: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


def plain(image: Any) -> np.ndarray:
    if hasattr(image, "numpy"):
        return image.numpy().transpose(1, 2, 0)
    return np.asarray(image)


FORMS: list[tuple[str, str, Callable[[np.ndarray], Any]]] = [
    ("OpenCV by hand", "opencv", lambda image: image),
    ("Pillow", "pillow", Image.fromarray),
    ("torchvision, PIL", "vision", Image.fromarray),
    ("torchvision, tensors", "vision", tensor),
]


def each(function: Any, images: list[Any], op: Any, rows: list[dict[str, Any]]) -> int:
    for image, row in zip(images, rows, strict=True):
        function(image, op, row)
    return len(images)
