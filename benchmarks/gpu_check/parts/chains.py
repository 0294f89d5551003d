"""Ops that change pixels, on the GPU against the cpu backend: simple ones all in one graph, each
for some samples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import fastfeed as ff
from fastfeed.ops.program.compile import Program, fuse
from fastfeed.ops.program.layers import Choices
from fastfeed.ops.program.program import Work
from fastfeed.spec import Spec


class Within(NamedTuple):
    """Allowed differences, in levels."""

    inside: float  # largest, but for the outermost rows and columns
    edge: float  # largest there
    mean: float


_SAME = Within(0, 0, 0)
_ROUNDED = Within(2, 2, 0.6)  # sums in another order, rounded or cut
# on hard edges what is between two pixels, or which one is nearest
_LOOKED_UP = Within(255, 255, 1.0)
_POLICY = Within(255, 255, 2.0)  # one level apart, then on the other side of a threshold further on
_JPEG = Within(255, 255, 5.0)  # NVIDIA's sums and chroma upsampling are its own
SIMPLE: list[tuple[Any, Within]] = [
    (ff.Brightness(0.8), _ROUNDED),
    (ff.Contrast(0.8), _ROUNDED),
    (ff.Saturation(0.8), _ROUNDED),
    (ff.Hue(0.5), _ROUNDED),
    (ff.Grayscale(), _ROUNDED),
    (ff.ToBGR(), _SAME),
    (ff.Solarize((0, 256)), _SAME),
    (ff.Posterize((1, 8)), _SAME),
    (ff.Equalize(), _ROUNDED),
    (ff.AutoContrast(), _ROUNDED),
    (ff.Invert(), _SAME),
    (ff.Gamma((0.5, 2.0)), _ROUNDED),
    (ff.LUT([(7 * k) % 256 for k in range(256)]), _SAME),
    (ff.LUT([[(m * k) % 256 for k in range(256)] for m in (3, 5, 7)]), _SAME),
    (ff.Sharpness((0.0, 2.0)), _ROUNDED),
    (ff.GaussianBlur(), _ROUNDED),
    (ff.GaussianBlur(61, (8, 9)), _ROUNDED),
    (ff.GaussianNoise(), _ROUNDED),
    (ff.JPEGCompression((40, 95)), _JPEG),
    (ff.RandomErasing(1.0, fill=(9, 100, 200)), _SAME),
    (ff.RandomErasing(0.8, fill="noise"), _SAME),
    (ff.CutOut(31, fill=(1, 2, 3)), _SAME),
    (ff.GridMask((20, 40), fill=(1, 2, 3)), _SAME),
    (ff.Rotate(40), _LOOKED_UP),
    (ff.Rotate(40, "nearest", (9, 100, 200)), _LOOKED_UP),
    (ff.Affine(10, (0.1, 0.1), (0.8, 1.2), 12, fill=(9, 100, 200)), _LOOKED_UP),
    (ff.Perspective(0.5, 1.0), _LOOKED_UP),
]
CHAINS: dict[str, tuple[list[Any], Within]] = {
    "Crop": ([ff.Crop(10, 20, 80)], _SAME),
    "RandomCrop": ([ff.RandomCrop((100, 120), padding=30, mode="reflect")], _SAME),
    "Pad": ([ff.Pad(30, "edge"), ff.RandomFlip()], _SAME),
    "Pad in the chain": (
        [ff.Invert(), ff.Pad((5, 40), fill=(9, 100, 200)), ff.RandomFlip(direction="both")],
        _SAME,
    ),
    "Maybe, Sequential": ([ff.Maybe(ff.Sequential([ff.RandomFlip(), ff.Invert()]), 0.5)], _SAME),
    "OneOf": (
        [ff.OneOf([ff.Invert(), ff.RandomErasing(1.0, fill="noise"), ff.RandomFlip(1.0)])],
        _SAME,
    ),
    "ColorJitter": ([ff.ColorJitter(0.4, 0.4, 0.4, 0.1)], Within(6, 6, 1.0)),
    "RandAugment": ([ff.RandAugment()], _POLICY),
    "TrivialAugmentWide": ([ff.TrivialAugmentWide()], _POLICY),
    "AutoAugment": ([ff.AutoAugment()], _POLICY),
    "AugMix": ([ff.AugMix()], _POLICY),
}


def in_turn(given: Spec, n: int) -> tuple[Program, Work]:
    """A program that holds all of SIMPLE, and what it does to n samples: the first op to the first
    few, and so on.
    """
    program = fuse([ff.OneOf([op for op, _ in SIMPLE])], given)
    rng = np.random.default_rng(5)
    height, width = given.size
    work = program.work(
        program.draw(lambda slot, k: rng.random((n, k))), np.tile(np.array([height, width]), (n, 1))
    )
    return program, Work(
        work.windows, (Choices(np.arange(n) * len(SIMPLE) // n, work.choices[0].values),)
    )
