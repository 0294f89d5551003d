"""The dali backend against the cpu backend: how far they are apart, and many ops in one list, each
for some samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image

import fastfeed as ff
from fastfeed.errors import SpecError
from fastfeed.ops.base import Kind
from fastfeed.ops.program.layers import Choices, Layer
from fastfeed.spec import Spec
from helpers.meaning import BILINEAR, NEAREST, Within
from helpers.op_examples import CHANGES, ON_DALI, SIMPLE

OF_OPS = [  # in addition to the examples, which are mostly about functions
    ff.Maybe(ff.RandomCrop((40, 56), padding=9), 0.7),
    ff.Maybe(ff.Sequential([ff.RandomFlip(), ff.Invert()]), 0.5),
    ff.OneOf(
        [ff.GaussianNoise(), ff.RandomErasing(1.0, fill="noise"), ff.Invert(), ff.RandomFlip(1.0)]
    ),
    ff.Sequential(
        [ff.RandomFlip(0.5, "both"), ff.OneOf([ff.Brightness(0.5), ff.CutOut(9)], [3, 1])]
    ),
]


def allowed(op: Any) -> Within:
    """What an op may differ by."""
    within = ON_DALI[type(op)]
    assert within is not None, f"{op!r} does not run on DALI"
    return NEAREST if within is BILINEAR and op.filter == "nearest" else within


def plain(op: Any) -> bool:
    """A warp with what DALI has, or any other op."""
    return getattr(op, "border", "constant") == "constant" and not getattr(op, "expand", False)


def composed() -> list[Any]:
    """Composites that change pixels, without a function in them."""

    def functions(op: Any) -> bool:
        return any(isinstance(one, ff.Function) for layer in op.layers for one in layer.ops)

    return [op for op in CHANGES if hasattr(op, "layers") and not functions(op)] + OF_OPS


def alone(encoding: Spec) -> tuple[Any, ...]:
    """Simple ops that can follow this, but for AugMix, which has a graph of its own."""
    found = []
    for op in SIMPLE:
        if ON_DALI[type(op)] is None or isinstance(op, ff.AugMix) or not plain(op):
            continue
        try:
            op.out(encoding)
        except SpecError:
            continue
        found.append(op)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class InTurn:
    """So many samples take the first op, as many the second, and so on; then none."""

    ops: tuple[Any, ...]
    each: int

    kind: ClassVar[Kind] = "change"

    @property
    def draws(self) -> int:
        return sum(op.draws for op in self.ops)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return (Layer(self.ops),)

    def out(self, spec: Spec) -> Spec:
        return spec

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        ends = np.cumsum([op.draws for op in self.ops])
        values = tuple(
            op.params(part, sizes)
            for op, part in zip(self.ops, np.split(u, ends[:-1], axis=1), strict=True)
        )
        choice = np.arange(len(u)) // self.each
        return [Choices(np.where(choice < len(self.ops), choice, -1), values)]


Differences = tuple[float, float, float, float]


def differences(got: np.ndarray, want: np.ndarray) -> Differences:
    """Inside, edge, mean, far, of images (n, height, width, channels)."""
    levels = np.abs(got.astype(np.float64) - want)
    edge = levels.copy()
    edge[:, 1:-1, 1:-1] = 0
    inside = levels[:, 1:-1, 1:-1]
    far = (levels > 2).mean(axis=(1, 2, 3)).max()
    return float(inside.max(initial=0)), float(edge.max()), float(levels.mean()), float(far)


def show(worst: dict[str, Differences], width: int) -> None:
    """A table of what was found."""
    if worst:
        print(f"\n\n{'dali against cpu, levels':{width}}    inside     edge     mean      far")
    for name, (inside, edge, mean, far) in worst.items():
        print(f"{name[:width]:{width}} {inside:9.4f} {edge:8.4f} {mean:8.4f} {far:8.4f}")


def stored(folder: Path, want: np.ndarray, got: np.ndarray) -> Callable[[], str]:
    """A function that stores the worst sample: cpu, dali, eight times their difference; and says
    where.
    """

    def store() -> str:
        levels = np.abs(got.astype(np.float64) - want)
        worst = int(levels.max(axis=(1, 2, 3)).argmax())
        parts = [want[worst], got[worst], 8 * levels[worst]]
        pixels = np.concatenate(parts, axis=1).round().clip(0, 255).astype(np.uint8)
        path = folder / f"worst_{worst}.png"
        Image.fromarray(pixels.repeat(3 // got.shape[3], axis=2)).save(path)
        return f"; sample {worst}: cpu | dali | 8 x difference in {path}"

    return store


def check(name: str, found: Differences, within: Within, picture: Callable[[], str] = str) -> None:
    """Assert; `picture` stores the worst sample and says where."""
    for what, value, allowed in zip(Within._fields, found, within, strict=True):
        assert value <= allowed, f"{name} {what}: {value:.3g} levels, allowed {allowed}{picture()}"
