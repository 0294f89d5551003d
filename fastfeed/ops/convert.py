"""Ops that change dtype, range and layout. They are moved to the end and folded into one pass."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import FrozenOp, Kind, is_number
from fastfeed.spec import Spec, need_bfloat16

__all__ = ["Normalize", "Standardize", "ToFloat", "ToLayout"]

INTEGERS = ("uint8", "uint16")
_FLOATS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class ToFloat(FrozenOp):
    """Convert bytes in 0..255, or 16 bits in 0..65535, to floats in 0..1.

    As torchvision's `ToDtype(scale=True)`. Floats stay as they are, but for their dtype.

    Args:
        dtype (str): "float32", "float16" or "bfloat16", which is float32 rounded to 8 bits of
            precision; NumPy has it from the package ml_dtypes. Default: "float32".

    Raises:
        ConfigError: If `dtype` is another one.
        MissingExtra: If it is "bfloat16" and ml_dtypes is missing.

    Example:
        >>> image = np.array([0, 51, 255], np.uint8).reshape(1, 1, 3, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.ToFloat()], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([0. , 0.2, 1. ], dtype=float32)
    """

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"

    kind: ClassVar[Kind] = "convert"
    draws: ClassVar[int] = 0

    def _check(self) -> None:
        if self.dtype not in _FLOATS:
            raise ConfigError.of("ToFloat dtype", f"one of {', '.join(_FLOATS)}", self.dtype)
        if self.dtype == "bfloat16":
            need_bfloat16()

    def out(self, spec: Spec) -> Spec:
        _not_encoded(self, spec)
        return Spec(spec.shape, self.dtype, spec.layout)


@dataclass(frozen=True, slots=True)
class Normalize(FrozenOp):
    """Subtract a mean and divide by a standard deviation, per channel: (x - mean) / std, x in 0..1.

    As torchvision's `Normalize`. Integers are scaled to 0..1 and become float32 first, so no
    `ToFloat` is needed.

    Args:
        mean (tuple[float, ...]): One finite number per channel, on the scale 0..1.
        std (tuple[float, ...]): One number > 0 per channel, on the scale 0..1.

    Raises:
        ConfigError: If these are not tuples of as many finite numbers, or a std is not positive.

    Example:
        >>> image = np.array([0, 255], np.uint8).reshape(1, 1, 2, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.Normalize((0.5,), (0.25,))], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([-2.,  2.], dtype=float32)
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    kind: ClassVar[Kind] = "convert"
    draws: ClassVar[int] = 0

    def _check(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if not isinstance(values, tuple) or not all(map(is_number, values)):
                raise ConfigError.of(
                    f"Normalize {name}", "a tuple of numbers, one per channel", values
                )
        if len(self.mean) != len(self.std):
            raise ConfigError(
                f"Normalize needs as many means as stds, got {len(self.mean)} and {len(self.std)}",
                field="std",
            )
        if not all(map(math.isfinite, self.mean)):
            raise ConfigError.of("Normalize mean", "finite", self.mean)
        if not all(0 < s < math.inf for s in self.std):
            raise ConfigError.of("Normalize std", "> 0 and finite", self.std)

    @classmethod
    def imagenet(cls) -> Normalize:
        """ImageNet's channel statistics, as torchvision's classification references use them.

        Returns:
            Normalize with their three means and standard deviations.

        Example:
            >>> ff.Normalize.imagenet()
            Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
        """
        return cls((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

    def out(self, spec: Spec) -> Spec:
        _not_encoded(self, spec)
        if spec.channels is not None and spec.channels != len(self.mean):
            raise SpecError(
                f"Normalize has {len(self.mean)} channels, got {spec}; give one mean and one std"
                " per channel"
            )
        return Spec(spec.shape, _float_dtype(spec), spec.layout)


@dataclass(frozen=True, slots=True)
class Standardize:
    """Give every image mean 0 and standard deviation 1, over all of its pixels and channels.

    TensorFlow's `tf.image.per_image_standardization` of an image in 0..1: (x - mean) / max(std, 1 /
    sqrt(numbers of the image)), so that an image of one color becomes 0. Takes the place of
    `Normalize` and results in float32, or the dtype of a `ToFloat` in the same list. On the cpu
    backend.

    Example:
        >>> image = np.array([0, 102, 204], np.uint8).reshape(1, 1, 3, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.Standardize()], batch=1)
        >>> next(iter(feed)).images.ravel().round(3)
        array([-0.693,  0.   ,  0.693], dtype=float32)
    """

    kind: ClassVar[Kind] = "convert"
    draws: ClassVar[int] = 0

    def out(self, spec: Spec) -> Spec:
        _not_encoded(self, spec)
        return Spec(spec.shape, _float_dtype(spec), spec.layout)


@dataclass(frozen=True, slots=True)
class ToLayout(FrozenOp):
    """Put channels last or first.

    Args:
        layout (str): "HWC" (channels last; Keras, JAX) or "CHW" (channels first; PyTorch).

    Raises:
        ConfigError: If `layout` is another one.

    Example:
        >>> feed = ff.Feed(
        ...     ff.Arrays(np.zeros((2, 4, 6, 3), np.uint8)), [ff.ToLayout("CHW")], batch=2
        ... )
        >>> next(iter(feed)).images.shape
        (2, 3, 4, 6)
    """

    layout: Literal["HWC", "CHW"]

    kind: ClassVar[Kind] = "convert"
    draws: ClassVar[int] = 0

    def _check(self) -> None:
        if self.layout not in ("HWC", "CHW"):
            raise ConfigError.of("ToLayout layout", '"HWC" or "CHW"', self.layout)

    def out(self, spec: Spec) -> Spec:
        _not_encoded(self, spec)
        if spec.layout == self.layout:
            return spec
        shape = (
            (spec.shape[2], *spec.shape[:2])
            if self.layout == "CHW"
            else (*spec.shape[1:], spec.shape[0])
        )
        return Spec(shape, spec.dtype, self.layout)


@dataclass(frozen=True, slots=True)
class Convert:
    """The ops above folded into one: out = pixel * scale + offset, stored as dtype and layout.

    standardized: then each image with its own mean and standard deviation.
    """

    scale: tuple[float, ...]  # per channel
    offset: tuple[float, ...]
    dtype: str = "uint8"
    layout: str = "HWC"
    standardized: bool = False
    input_dtype: str = "uint8"  # dtype of the pixels

    @classmethod
    def of(cls, ops: list[Any], channels: int, input_dtype: str = "uint8") -> Convert:
        """Fold a run of ToFloat, Normalize or Standardize, and ToLayout, on pixels of a dtype."""
        standardized = any(isinstance(op, Standardize) for op in ops)
        scaling = [op for op in ops if isinstance(op, (Normalize, Standardize))]
        if standardized and len(scaling) > 1:
            raise SpecError(
                f"Standardize takes the place of Normalize, got {scaling[0]!r} and"
                f" {scaling[1]!r}; leave one of them out"
            )
        scale = np.ones(channels)
        offset = np.zeros(channels)
        dtype = input_dtype
        layout = "HWC"
        for op in ops:
            if isinstance(op, ToLayout):
                layout = op.layout
                continue
            if dtype in INTEGERS:
                scale = scale / np.iinfo(dtype).max
                dtype = "float32"
            if isinstance(op, ToFloat):
                dtype = op.dtype
            elif isinstance(op, Normalize):
                mean = np.array(op.mean)
                std = np.array(op.std)
                scale = scale / std
                offset = (offset - mean) / std
        numbers = tuple(scale.tolist()), tuple(offset.tolist())
        return cls(*numbers, dtype, layout, standardized, input_dtype)

    @property
    def keeps_bytes(self) -> bool:
        """True if values stay as they are and only the layout may change."""
        is_scaled = any(self.offset) or any(factor != 1 for factor in self.scale)
        return self.dtype == self.input_dtype and not (is_scaled or self.standardized)

    def on_device(self, xp: Any, images: Any, precision: str = "float32") -> Any:
        """Arrays (..., height, width, channels) of CuPy, JAX or NumPy as numbers of `dtype`."""
        if self.keeps_bytes:
            return images
        scale = xp.asarray(self.scale, precision)
        offset = xp.asarray(self.offset, precision)
        values = images.astype(precision) * scale + offset
        if self.standardized:
            axes = (-3, -2, -1)
            values = values - values.mean(axes, keepdims=True)
            least = math.prod(images.shape[-3:]) ** -0.5
            values = values / xp.maximum(values.std(axes, keepdims=True), least)
        return values.astype(self.dtype)

    @functools.lru_cache(maxsize=8)  # noqa: B019 - equal ones share theirs; they hold nothing else
    def table(self) -> np.ndarray:
        """The result for every byte: dtype, shape (256, channels), read-only."""
        levels = np.arange(256, dtype=np.float64)[:, None]
        values = (levels * np.array(self.scale) + np.array(self.offset)).astype(self.dtype)
        values.flags.writeable = False
        return values


def _float_dtype(spec: Spec) -> str:
    """The dtype after a scaling: integers become float32."""
    return "float32" if spec.dtype in INTEGERS else spec.dtype


def _not_encoded(op: Any, spec: Spec) -> None:
    if spec.encoded:
        raise SpecError(f"{type(op).__name__} needs pixels, got {spec}; put Decode() before it")
