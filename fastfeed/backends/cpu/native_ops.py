"""Simple ops as native code runs them: a name, fixed constants, and numbers per sample.

`native/batch/program.cpp` lists the names, `native/batch/chain.cpp` defines the numbers. An op
without an entry here runs in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from fastfeed.ops.augmix import AugMix
from fastfeed.ops.base import FILTERS, shade
from fastfeed.ops.color import (
    Brightness,
    ChannelDropout,
    ChannelShuffle,
    Contrast,
    Grayscale,
    Hue,
    Saturation,
    ToBGR,
)
from fastfeed.ops.distort import DISPLACEMENT, ElasticTransform, GridDistortion
from fastfeed.ops.erasing import CutOut, GridMask, RandomErasing
from fastfeed.ops.filters import (
    GaussianBlur,
    GaussianNoise,
    JPEGCompression,
    MedianBlur,
    MotionBlur,
    Sharpness,
)
from fastfeed.ops.levels import (
    LUT,
    AutoContrast,
    Equalize,
    Gamma,
    Invert,
    Posterize,
    Solarize,
    SolarizeAdd,
)
from fastfeed.ops.program.layers import Choices, Layer
from fastfeed.ops.program.window import Window
from fastfeed.ops.warp import WARP_FILTERS, Affine, Perspective, Rotate

BORDERS = (
    "none",
    "constant",
    "edge",
    "reflect",
    "symmetric",
)  # as Border::Mode in native/ops/window.h

Values = dict[str, Any]


class NativeOp(NamedTuple):
    """The native extension's call for one type of op."""

    name: Callable[[Any], str]
    constants: Callable[[Any, int], tuple[float, ...]]  # from the op and the number of channels
    # columns, (n,) or (n, k), or one matrix per sample
    numbers: Callable[[Values], tuple[np.ndarray, ...]]


def _op(name: str, *numbers: str, constants: Any = lambda op, channels: ()) -> NativeOp:
    return NativeOp(lambda op: name, constants, _columns(*numbers))


def _columns(*numbers: str) -> Callable[[Values], tuple[np.ndarray, ...]]:
    """Function that takes these numbers, without a call for each: it is called for every op."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return (lambda values: (values[numbers[0]],)) if numbers else (lambda values: ())


def _fill(op: Any, channels: int) -> tuple[float, ...]:
    return shade(op.fill, channels)


def _warp(op: Any, channels: int) -> tuple[float, ...]:
    return (WARP_FILTERS.index(op.filter), BORDERS.index(op.border), *_fill(op, channels))


def _window(op: Window, channels: int) -> tuple[float, ...]:
    mode, fill = ("none", (0, 0, 0)) if op.border is None else (op.border.mode, op.border.fill)
    height, width = op.size or (0, 0)
    return (height, width, FILTERS.index(op.filter), BORDERS.index(mode), *shade(fill, channels))


def _table(op: LUT, channels: int) -> tuple[float, ...]:
    return sum(op.table, ()) if op.per_channel else op.table


_WARP = _op("warp", "matrix", constants=_warp)
_ERASE = _op("erase", "box", constants=_fill)
_CHANNELS = _op("channels", "channels", constants=lambda op, channels: (0, 0, 0))
_ERASE_NAMES = {"noise": "erase_noise", "color": "erase_color"}
_OPS: dict[type, NativeOp] = {
    Brightness: _op("brightness", "factor"),
    Solarize: _op("solarize", "threshold"),
    SolarizeAdd: _op("solarize_add", "amount", constants=lambda op, channels: (op.threshold,)),
    Posterize: _op("posterize", "bits"),
    Invert: _op("invert"),
    Gamma: _op("gamma", "gamma"),
    LUT: _op("lut", constants=_table),
    Contrast: _op("contrast", "factor"),
    Equalize: _op("equalize"),
    AutoContrast: _op("autocontrast"),
    Grayscale: _op("grayscale"),
    ToBGR: _CHANNELS,
    ChannelShuffle: _CHANNELS,
    ChannelDropout: _op("channels", "channels", constants=lambda op, channels: op.fill),
    Saturation: _op("saturation", "factor"),
    Hue: _op("hue", "shift"),
    Sharpness: _op("sharpness", "factor"),
    GaussianBlur: _op("blur", "sigma", constants=lambda op, channels: (op.taps,)),
    MotionBlur: _op("motion", "length", "direction"),
    MedianBlur: _op("median", "kernel"),
    GaussianNoise: _op("noise", "sigma", "offset"),
    JPEGCompression: _op("jpeg", "quality"),
    Rotate: NativeOp(
        lambda op: "warp_to" if op.expand else "warp",
        _warp,
        lambda values: tuple(values[name] for name in ("matrix", "size") if name in values),
    ),
    Affine: _WARP,
    Perspective: _WARP,
    ElasticTransform: NativeOp(
        lambda op: "elastic",
        lambda op, channels: (*_warp(op, channels), *op.weights),
        lambda values: (values["alpha"] * DISPLACEMENT, values["offsets"]),
    ),
    GridDistortion: NativeOp(
        lambda op: "grid_distortion",
        lambda op, channels: (*_warp(op, channels), op.steps),
        lambda values: (values["lines"].reshape(len(values["lines"]), -1),),
    ),
    CutOut: _ERASE,
    RandomErasing: NativeOp(
        lambda op: _ERASE_NAMES.get(op.fill, "erase"),
        lambda op, channels: () if op.fill in _ERASE_NAMES else _fill(op, channels),
        lambda values: tuple(values.values()),
    ),
    GridMask: _op("grid_mask", "unit", "share", "top", "left", constants=_fill),
    Window: _op("window", "box", "flip", "limit", constants=_window),
    AugMix: _op("augmix", "shares", constants=lambda op, channels: (op.mixture_width,)),
}


def is_native(op: Any) -> bool:
    """True if the native extension implements this simple op."""
    return type(op) in _OPS


def native_layer(layer: Layer, channels: int) -> tuple[Any, ...]:
    """The layer's native ops: (name, constants, layers inside) of each."""
    ops = []
    for op in layer.ops:
        native = _OPS[type(op)]
        inner = (
            tuple(native_layer(part, channels) for part in op.chain)
            if isinstance(op, AugMix)
            else ()
        )
        ops.append((native.name(op), tuple(map(float, native.constants(op, channels))), inner))
    return tuple(ops)


def layer_values(layer: Layer, choices: Choices) -> tuple[Any, ...]:
    """The choice of n samples, and values per op.

    The values are numbers as float64 (n, k), and the values of inner layers.
    """
    ops = []
    for op, values in zip(layer.ops, choices.values, strict=True):
        columns = _OPS[type(op)].numbers(values)
        inner = ()
        if isinstance(op, AugMix):
            pairs = [
                (part, chosen)
                for chain in values["chains"]
                for part, chosen in zip(op.chain, chain, strict=True)
            ]
            inner = tuple(layer_values(part, chosen) for part, chosen in pairs)
        ops.append((_numbers(columns), inner))
    return np.ascontiguousarray(choices.choice, np.int64), tuple(ops)


def needs_noise(layer: Layer) -> bool:
    """True if an op of the layer reads a table of noise."""
    return any(
        isinstance(op, (GaussianNoise, ElasticTransform)) or getattr(op, "fill", None) == "noise"
        for op in layer.ops
    )


def _numbers(columns: tuple[np.ndarray, ...]) -> np.ndarray | None:
    if len(columns) == 1:
        return np.ascontiguousarray(columns[0], np.float64)
    if not columns:
        return None
    return np.concatenate(
        [column.reshape(len(column), -1) for column in columns], axis=1, dtype=np.float64
    )
