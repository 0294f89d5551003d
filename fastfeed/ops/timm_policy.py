"""timm's RandAugment, from the same text: "rand-m9-mstd0.5-inc1"."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import ByteOp
from fastfeed.ops.color import Brightness, Contrast, Saturation
from fastfeed.ops.filters import GaussianBlur, Sharpness
from fastfeed.ops.levels import (
    AutoContrast,
    Equalize,
    Invert,
    Posterize,
    Solarize,
    SolarizeAdd,
)
from fastfeed.ops.program.layers import Choices, Layer
from fastfeed.ops.warp import Affine, affine_matrices, check_look

__all__ = ["TimmRandAugment"]

SHOWCASE = ('TimmRandAugment("rand-m9-mstd0.5-inc1")',)  # drawn by `fastfeed show --ops`

_HINT = 'write "rand-m9-mstd0.5-inc1"'
_LEVELS = 10.0  # timm's _LEVEL_DENOM
_TRANSLATION = 0.45  # share of a side, at full strength
_MOVES = ("Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel")
_FACTORS = {
    "Brightness": Brightness,
    "Color": Saturation,
    "Contrast": Contrast,
    "Sharpness": Sharpness,
    "Desaturate": Saturation,
}
_OTHERS: dict[str, Any] = {
    "AutoContrast": AutoContrast(),
    "Equalize": Equalize(),
    "Invert": Invert(),
    "Posterize": Posterize((0, 8)),
    "Solarize": Solarize((0, 256)),
    "SolarizeAdd": SolarizeAdd((0, 128)),
    "GaussianBlur": GaussianBlur(sigma=(0.1, 2.0)),
}
_ALL = (
    "AutoContrast",
    "Equalize",
    "Invert",
    "Rotate",
    "Posterize",
    "Solarize",
    "SolarizeAdd",
    "Color",
    "Contrast",
    "Brightness",
    "Sharpness",
    "ShearX",
    "ShearY",
    "TranslateXRel",
    "TranslateYRel",
)
# by the name after "t": the ops and their weights; drawn without replacement where weights differ
_SETS: dict[str, dict[str, float]] = {
    "weights": {
        "Rotate": 3,
        "ShearX": 2,
        "ShearY": 2,
        "TranslateXRel": 1,
        "TranslateYRel": 1,
        "Color": 0.25,
        "Sharpness": 0.25,
        "AutoContrast": 0.25,
        "Solarize": 0.05,
        "SolarizeAdd": 0.05,
        "Contrast": 0.05,
        "Brightness": 0.05,
        "Equalize": 0.05,
        "Posterize": 0.05,
        "Invert": 0.05,
    },
    "3a": {"Solarize": 1, "Desaturate": 1, "GaussianBlur": 1},
    "3aw": {
        "Solarize": 6,
        "Desaturate": 6,
        "GaussianBlur": 6,
        "Rotate": 3,
        "ShearX": 2,
        "ShearY": 2,
        "Posterize": 1,
        "AutoContrast": 1,
        "Color": 1,
        "Sharpness": 1,
        "Contrast": 1,
        "Brightness": 1,
        "Equalize": 1,
        "Invert": 1,
    },
}


@dataclass(frozen=True, slots=True)
class _Settings:
    """The meaning of a text."""

    names: tuple[str, ...] = _ALL
    weights: tuple[float, ...] | None = None  # None: equal, with replacement
    num_ops: int = 2
    magnitude: int = 10
    p: float = 0.5
    std: float = 0.0  # of the magnitude; inf: uniform from 0 to it
    most: float = _LEVELS  # of the magnitude after noise
    increasing: bool = False


@dataclass(frozen=True, slots=True)
class TimmRandAugment(ByteOp):
    """Apply random ops to each sample, as the RandAugment of PyTorch Image Models (timm).

    The same ops, probabilities and strengths, and the same text as its `auto_augment=` and `--aa`.
    Sections after "rand", in any order: m (magnitude; 10), n (ops per sample; 2), p (probability of
    each; 0.5), mstd (standard deviation of the magnitude; above 100 it is uniform from 0), mmax
    (highest magnitude after that; 10), inc (1: all ops are stronger at higher magnitudes; 0), t (set
    of ops, with inc1: "tweights", "t3a", "t3aw"). Warps are bilinear; timm takes bicubic for
    half of them.

    Args:
        config (str): The text. Default: "rand-m9-mstd0.5-inc1".
        filter (str): For ops that move pixels, "nearest" or "bilinear". Default: "bilinear".
        fill (tuple[int, int, int]): RGB of pixels from outside the image, in [0, 255]; timm takes
            ImageNet's mean. Default: (124, 116, 104).

    Raises:
        ConfigError: If a field is out of range, or a section of the text is unknown.

    Example:
        >>> ff.TimmRandAugment("rand-m7-n3-mstd0.5-inc1").draws
        15
    """

    config: str = "rand-m9-mstd0.5-inc1"
    filter: str = "bilinear"
    fill: tuple[int, int, int] = (124, 116, 104)

    def _check(self) -> None:
        _settings(self.config)
        check_look(self)

    @property
    def draws(self) -> int:
        """Random numbers per sample: up to five for each op.

        They decide which, its direction, whether, and its magnitude.
        """
        settings = _settings(self.config)
        return settings.num_ops * _columns(settings)

    @property
    def layers(self) -> tuple[Layer, ...]:
        settings = _settings(self.config)
        return (_layer(settings, self.filter, self.fill),) * settings.num_ops

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        settings = _settings(self.config)
        layers = self.layers
        width = _columns(settings)
        places = [layers[0].ops.index(_op(name, self)) for name in settings.names]
        names = _drawn_names(settings, u[:, ::width])
        choices = []
        for k, layer in enumerate(layers):
            own = u[:, k * width : (k + 1) * width]
            share = _magnitude(settings, own[:, 3:]) / _LEVELS
            sign = np.where(own[:, 1] < 0.5, -1.0, 1.0)
            on = {name: names[k] == i for i, name in enumerate(settings.names)}
            index = np.where(own[:, 2] < settings.p, np.array(places)[names[k]], -1)
            values = [_values(op, on, share, sign, settings.increasing, sizes) for op in layer.ops]
            choices.append(Choices(index, tuple(values)))
        return choices


@lru_cache(maxsize=64)
def _settings(config: Any) -> _Settings:
    """Parse the text, as timm's `rand_augment_transform` does."""
    if not isinstance(config, str) or config.split("-")[0] != "rand":
        raise ConfigError.of("TimmRandAugment config", 'a text that begins "rand-"', config, _HINT)
    values: dict[str, Any] = {}
    for section in config.split("-")[1:]:
        if section.startswith("t") and section[1:] in _SETS:
            ops = _SETS[section[1:]]
            values["names"] = tuple(ops)
            values["weights"] = tuple(ops.values()) if len(set(ops.values())) > 1 else None
            continue
        found = re.fullmatch(r"(mstd|mmax|inc|m|n|p)(\d+(?:\.\d+)?)", section)
        if found is None:
            must = "sections m, n, p, mstd, mmax, inc with a number, or tweights, t3a, t3aw"
            raise ConfigError.of("TimmRandAugment config", must, section, _HINT)
        key = found[1]
        number = float(found[2])
        if key not in ("mstd", "p") and number != int(number):
            raise ConfigError.of(f"TimmRandAugment {key}", "a whole number", found[2], _HINT)
        name, low, high, convert = _SECTIONS[key]
        if not low <= number <= high:
            raise ConfigError.of(f"TimmRandAugment {key}", f"in [{low}, {high}]", found[2], _HINT)
        values[name] = convert(number)
    if "names" in values:  # timm's sets have increasing ops alone
        values["increasing"] = True
    settings = _Settings(**values)
    if settings.weights and settings.num_ops > len(settings.names):
        most = f"at most {len(settings.names)} with weights, which draw each op once"
        raise ConfigError.of("TimmRandAugment n", most, settings.num_ops, _HINT)
    return settings


_SECTIONS: dict[str, tuple[str, int, int, Any]] = {
    "m": ("magnitude", 0, 100, int),
    "n": ("num_ops", 1, 16, int),
    "p": ("p", 0, 1, float),
    "mstd": ("std", 0, 1_000_000, lambda value: math.inf if value > 100 else value),
    "mmax": ("most", 1, 100, float),
    "inc": ("increasing", 0, 1, bool),
}


def _columns(settings: _Settings) -> int:
    """Random numbers of one op: which, direction, whether, two for noise of the magnitude."""
    return 3 + (0 if not settings.std else 1 if settings.std == math.inf else 2)


def _op(name: str, look: Any) -> Any:
    """The simple op behind a name."""
    if name in _MOVES:
        return Affine(filter=look.filter, fill=look.fill)
    return _FACTORS[name](1.0) if name in _FACTORS else _OTHERS[name]


@lru_cache(maxsize=64)
def _layer(settings: _Settings, filter: str, fill: tuple[int, int, int]) -> Layer:
    look = Affine(filter=filter, fill=fill)
    return Layer(tuple(dict.fromkeys(_op(name, look) for name in settings.names)))


def _drawn_names(settings: _Settings, u: np.ndarray) -> np.ndarray:
    """Index of the name of each op: int64 (num_ops, n), from uniform numbers (n, num_ops)."""
    if settings.weights is None:
        return (u.T * len(settings.names)).astype(np.int64)
    left = np.tile(np.array(settings.weights), (len(u), 1))
    drawn = np.empty(u.T.shape, np.int64)
    for k in range(settings.num_ops):
        ends = left.cumsum(axis=1)
        target = u[:, k] * ends[:, -1]
        drawn[k] = (ends > target[:, None]).argmax(axis=1)
        left[np.arange(len(u)), drawn[k]] = 0
    return drawn


def _magnitude(settings: _Settings, u: np.ndarray) -> np.ndarray:
    """Magnitude of n ops: float64 (n,)."""
    magnitude = np.full(len(u), float(settings.magnitude))
    if settings.std == math.inf:
        magnitude *= u[:, 0]
    elif settings.std:  # Box and Muller
        radius = np.sqrt(-2 * np.log1p(-u[:, 0]))
        magnitude += settings.std * radius * np.cos(2 * np.pi * u[:, 1])
    return np.clip(magnitude, 0, settings.most)


def _values(
    op: Any,
    on: dict[str, np.ndarray],
    share: np.ndarray,
    sign: np.ndarray,
    increasing: bool,
    sizes: np.ndarray,
) -> dict[str, np.ndarray]:
    """Values of one simple op for all samples, by timm's `_level_to_arg` functions."""
    if isinstance(op, Affine):
        return {"matrix": _matrices(on, share * sign, sizes)}
    if isinstance(op, Posterize):
        bits = np.floor(share * 4).astype(np.int64)
        return {"bits": np.clip(4 - bits if increasing else bits, 0, 8)}
    if isinstance(op, Solarize):
        threshold = np.minimum(256.0, np.floor(share * 256))
        return {"threshold": 256.0 - threshold if increasing else threshold}
    if isinstance(op, SolarizeAdd):
        return {"amount": np.minimum(128, np.floor(share * 110)).astype(np.int64)}
    if isinstance(op, GaussianBlur):
        return {"sigma": np.minimum(0.1 + 1.9 * share, 2.0)}
    if isinstance(op, (AutoContrast, Equalize, Invert)):
        return {}
    factor = np.maximum(0.1, 1 + sign * share * 0.9) if increasing else share * 1.8 + 0.1
    if isinstance(op, Saturation) and "Desaturate" in on:
        factor = np.where(on["Desaturate"], 1 - np.minimum(0.5 + 0.5 * share, 1.0), factor)
    return {"factor": factor}


def _matrices(on: dict[str, np.ndarray], signed: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """From output to input, as timm passes them to Pillow: float64 (n, 3, 3)."""
    never = np.zeros(len(signed), bool)
    amounts = {name: np.where(on.get(name, never), signed, 0.0) for name in _MOVES}
    # Pillow turns counterclockwise
    matrix = affine_matrices(-30 * amounts["Rotate"], center=sizes[:, ::-1] / 2)
    matrix[:, 0, 1] += 0.3 * amounts["ShearX"]
    matrix[:, 1, 0] += 0.3 * amounts["ShearY"]
    matrix[:, 0, 2] += _TRANSLATION * amounts["TranslateXRel"] * sizes[:, 1]
    matrix[:, 1, 2] += _TRANSLATION * amounts["TranslateYRel"] * sizes[:, 0]
    return matrix
