"""The ops that `bench_augment.py` measures, the photographs they work on, and the forms that rivals
like these in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from rounds import DATA

import fastfeed as ff
from fastfeed.backends.cpu.native_program import NativeProgram
from fastfeed.decode.executor import Executor
from fastfeed.ops import OPS
from fastfeed.ops.program.compile import fuse
from fastfeed.runtime.buffers import aligned
from fastfeed.runtime.timeline import Timeline

IMAGES, SIDE = 32, 224
_NEVER = threading.Event()
Run = Callable[[], int]

CASES = {
    "Brightness": "Brightness(0.4)",
    "Contrast": "Contrast(0.4)",
    "Saturation": "Saturation(0.4)",
    "Hue": "Hue(0.1)",
    "ColorJitter": "ColorJitter(0.4, 0.4, 0.4, 0.1)",
    "Grayscale": "Grayscale()",
    "ChannelShuffle": "ChannelShuffle()",
    "ChannelDropout": "ChannelDropout((1, 2))",
    "Solarize": "Solarize((0, 256))",
    "SolarizeAdd": "SolarizeAdd((0, 110))",
    "Posterize": "Posterize((2, 7))",
    "Equalize": "Equalize()",
    "AutoContrast": "AutoContrast()",
    "Invert": "Invert()",
    "Gamma": "Gamma((0.7, 1.5))",
    "LUT": "LUT([*range(255, -1, -1)])",
    "Sharpness": "Sharpness(0.9)",
    "GaussianBlur": "GaussianBlur(23, (0.1, 2.0))",
    "MotionBlur": "MotionBlur((3, 15))",
    "MedianBlur": "MedianBlur(3)",
    "MedianBlur, 5": "MedianBlur(5)",
    "MedianBlur, 7": "MedianBlur(7)",
    "GaussianNoise": "GaussianNoise((1, 25))",
    "JPEGCompression": "JPEGCompression((30, 95))",
    "RandomErasing": "RandomErasing(1.0)",
    "RandomErasing, noise": "RandomErasing(1.0, fill='noise')",
    "RandomErasing, color": "RandomErasing(1.0, fill='color')",
    "CutOut": "CutOut(112)",
    "GridMask": "GridMask()",
    "Rotate": "Rotate(30)",
    "Rotate, reflect": "Rotate(30, border='reflect')",
    "Rotate, expanded": "Rotate((30, 30), expand=True)",
    "Affine": "Affine(15, (0.1, 0.1), (0.9, 1.1), 10)",
    "Perspective": "Perspective(0.5, 1.0)",
    "Perspective, edge": "Perspective(0.5, 1.0, border='edge')",
    "ElasticTransform": "ElasticTransform()",
    "GridDistortion": "GridDistortion()",
    "RandomFlip": "RandomFlip(1.0)",
    "Standardize": "Standardize()",
    "RandAugment": "RandAugment()",
    "TrivialAugmentWide": "TrivialAugmentWide()",
    "AutoAugment": "AutoAugment('imagenet')",
    "TimmRandAugment": "TimmRandAugment('rand-m7-mstd0.5-inc1')",
    "AugMix": "AugMix()",
}


def evaluated(name: str) -> Any:
    return eval(CASES[name], {kind.__name__: kind for kind in OPS})


def rows_of(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each image, as plain numbers."""
    return [
        {key: of[i].item() if of.ndim == 1 else of[i] for key, of in values.items()}
        for i in range(IMAGES)
    ]


def photographs() -> list[np.ndarray]:
    """Parts of real ones, as a feed cuts them."""
    source = ff.ImageFolder(DATA / "imagenet-sample", labeled=False)
    with ff.Feed(source, [ff.RandomResizedCrop(SIDE)], batch=IMAGES) as feed:
        return list(next(feed.batches(0)).images)


class Ours:
    """A list of ops on given images, on one native thread, as a feed runs it that has them in
    memory.
    """

    def __init__(
        self, ops: list[Any], images: list[np.ndarray], draws: np.ndarray | None = None
    ) -> None:
        """`draws`: random numbers of the last op."""
        source = ff.Arrays(np.stack(images))
        self._program = fuse(ops, source.spec)
        self._executor = Executor(None, 1)
        self._native = NativeProgram(self._program, self._executor, Timeline(capacity=0))
        self._samples = self._executor.borrow(images, _NEVER)
        last = max((step.slot for step in self._program.steps), default=0)
        given = np.empty((0, 0)) if draws is None else draws
        self._draws = self._program.draw(
            lambda slot, n: given if slot == last else np.zeros((len(source), n))
        )
        self.batch = aligned((len(source), *self._program.shape), self._program.spec.dtype)

    def __call__(self) -> int:
        """Choose parameters, and make all images."""
        n = len(self.batch)
        work = self._program.work(self._draws, np.full((n, 2), SIDE))
        self._native.run(self._samples, np.zeros(n, bool), work, self.batch, _NEVER)
        return n


def ours(op: Any, u: np.ndarray, images: list[np.ndarray]) -> tuple[Run, Run, np.ndarray]:
    """The op; what everyone's batch costs without it; and the first image that it makes.

    A flip in front of all ops is part of how an image is copied and costs nothing, so it is
    measured behind another op.
    """
    before = [ff.Invert()] if op.kind == "geometry" else []
    go, copies = Ours([*before, op], images, u), Ours(before, images)
    given = [255 - image for image in images] if before else images
    first = Ours([op], given, u)
    first()
    return go, copies, first.batch[0].astype(int)


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
    ("Albumentations", "albumentations_ops", lambda image: image),
    ("timm, PIL", "timm_ops", Image.fromarray),
]


def each(function: Any, images: list[Any], op: Any, rows: list[dict[str, Any]]) -> int:
    for image, row in zip(images, rows, strict=True):
        function(image, op, row)
    return len(images)
