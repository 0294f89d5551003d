"""The ops that policies choose from, by the papers' names, and their parameters at each strength.

All numbers are those of torchvision's `_augmentation_space`s (transforms/autoaugment.py), in
float32 as there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fastfeed.ops.color import Brightness, Contrast, Saturation
from fastfeed.ops.filters import Sharpness
from fastfeed.ops.levels import AutoContrast, Equalize, Invert, Posterize, Solarize
from fastfeed.ops.program.layers import Choices, Layer
from fastfeed.ops.warp import Affine, affine_matrices

__all__ = [
    "MIX",
    "NAMES",
    "RAND",
    "WIDE",
    "PolicyDraw",
    "Space",
    "pick",
]

_MOVES = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
_FACTORS = {
    "Brightness": Brightness,
    "Color": Saturation,
    "Contrast": Contrast,
    "Sharpness": Sharpness,
}
_PLAIN = {"AutoContrast": AutoContrast(), "Equalize": Equalize(), "Invert": Invert()}
NAMES = ("Identity", *_MOVES, *_FACTORS, "Posterize", "Solarize", "AutoContrast", "Equalize")


@dataclass(frozen=True, slots=True)
class PolicyDraw:
    """The op and its strength drawn for each of n samples."""

    which: np.ndarray  # int64 (n,): index of the name; -1 for none
    level: np.ndarray  # int64 (n,): in [0, bins)
    minus: np.ndarray  # bool (n,): the negative direction, for ops that have one


@dataclass(frozen=True, slots=True)
class Space:
    """Strengths of the ops at the highest level; at level 0 they are weakest."""

    shear: float  # pixels per pixel, about the top left corner
    share: float  # translation, of a side
    pixels: float  # translation, in addition
    degrees: float
    factor: float  # maximum distance of a factor from 1
    bits: int  # kept at level 0
    lost: int  # of these lost at the highest

    def layer(self, names: tuple[str, ...], filter: str, fill: tuple[int, int, int]) -> Layer:
        """The simple ops behind the names; all moves share one op."""
        return _layer(self, names, filter, fill)[0]

    def choose(
        self,
        names: tuple[str, ...],
        op: Any,
        selection: PolicyDraw,
        bins: int,
        sizes: np.ndarray,
    ) -> Choices:
        """Choices of the layer with the filter and fill of an op: one per sample, and its values."""
        layer, positions = _layer(self, names, op.filter, op.fill)
        on = {name: selection.which == i for i, name in enumerate(names)}
        values = tuple(self._values(each, on, selection, bins, sizes) for each in layer.ops)
        return Choices(positions[selection.which], values)

    def op(self, name: str, filter: str, fill: tuple[int, int, int]) -> Any:
        """The simple op behind a name."""
        if name in _MOVES:
            return Affine(filter=filter, fill=fill)
        if name in _FACTORS:
            return _FACTORS[name](self.factor)
        if name == "Posterize":
            return Posterize((self.bits - self.lost, self.bits))
        return Solarize((0, 255)) if name == "Solarize" else _PLAIN[name]

    def _values(
        self,
        op: Any,
        on: dict[str, np.ndarray],
        selection: PolicyDraw,
        bins: int,
        sizes: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """Values of one simple op for all samples; identity where it is not chosen."""
        level = selection.level
        sign = np.where(selection.minus, -1.0, 1.0)
        if isinstance(op, Affine):
            return {"matrix": self._matrices(on, level, sign, bins, sizes)}
        if isinstance(op, Posterize):
            lost = np.rint(level.astype(np.float32) / np.float32((bins - 1) / self.lost)).astype(
                np.int64
            )
            return {"bits": np.where(on["Posterize"], self.bits - lost, 8)}
        if isinstance(op, Solarize):
            return {"threshold": np.where(on["Solarize"], _line(255.0, 0.0, level, bins), 256.0)}
        for name, kind in _FACTORS.items():
            if isinstance(op, kind):
                return {
                    "factor": np.where(
                        on[name], 1.0 + sign * _line(0.0, self.factor, level, bins), 1.0
                    )
                }
        return {}

    def _matrices(
        self,
        on: dict[str, np.ndarray],
        level: np.ndarray,
        sign: np.ndarray,
        bins: int,
        sizes: np.ndarray,
    ) -> np.ndarray:
        never = np.zeros(len(level), bool)
        x, y, turned = (on.get(name, never) for name in ("TranslateX", "TranslateY", "Rotate"))
        shear = np.degrees(np.arctan(sign * _line(0.0, self.shear, level, bins)))
        reach = self.pixels + self.share * sizes[:, ::-1]
        shift = sign[:, None] * np.trunc(_line(0.0, reach, level[:, None], bins))  # whole pixels
        return affine_matrices(
            angle=np.where(turned, -sign * _line(0.0, self.degrees, level, bins), 0.0),
            translate=np.where(np.stack([x, y], axis=1), shift, 0.0),
            shear_x=np.where(on.get("ShearX", never), shear, 0.0),
            shear_y=np.where(on.get("ShearY", never), shear, 0.0),
            center=np.where(turned[:, None], sizes[:, ::-1] / 2, 0.0),
        )


@lru_cache(maxsize=64)
def _layer(
    space: Space, names: tuple[str, ...], filter: str, fill: tuple[int, int, int]
) -> tuple[Layer, np.ndarray]:
    """The layer, and the index in it of each name's op: int64 (names + 1,), the last for no name.

    It is -1 for no op.
    """
    named = [space.op(name, filter, fill) if name != "Identity" else None for name in names]
    ops = tuple(dict.fromkeys(op for op in named if op is not None))
    positions = [-1 if op is None else ops.index(op) for op in named]
    return Layer(ops), np.array([*positions, -1], np.int64)


RAND = Space(shear=0.3, share=150 / 331, pixels=0.0, degrees=30.0, factor=0.9, bits=8, lost=4)
WIDE = Space(shear=0.99, share=0.0, pixels=32.0, degrees=135.0, factor=0.99, bits=8, lost=6)
MIX = Space(shear=0.3, share=1 / 3, pixels=0.0, degrees=30.0, factor=0.9, bits=4, lost=4)


def pick(u: np.ndarray, n: int) -> np.ndarray:
    """Integers in [0, n) from uniform numbers: int64, of u's shape."""
    return (u * n).astype(np.int64)


def _line(first: float, last: Any, level: np.ndarray, bins: int) -> np.ndarray:
    """`torch.linspace(first, last, bins)[level]`, to the bit.

    In float32, with fused multiply-adds from the nearer end.
    """
    low = np.float32(first)
    high = np.asarray(last, np.float32)
    step = ((high - low) / np.float32(bins - 1)).astype(np.float64)
    up = low + step * level
    down = high - step * (bins - 1 - level)
    return np.where(level < bins // 2, up, down).astype(np.float32).astype(np.float64)
