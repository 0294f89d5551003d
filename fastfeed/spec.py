"""The shape, dtype and layout of a sample between two stages."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError, MissingExtra

LAYOUTS = ("encoded", "HWC", "CHW")
DTYPES = ("uint8", "uint16", "float16", "bfloat16", "float32")


@checked
@dataclass(frozen=True, slots=True)
class Spec:
    """Shape, dtype and layout of one sample.

    Args:
        shape (tuple[int | None, ...]): In the order of `layout`, pixels; a length of None differs
            from sample to sample.
        dtype (str): "uint8", "uint16", "float16", "bfloat16" or "float32".
        layout (str): "encoded" (a file's bytes), "HWC" or "CHW".

    Raises:
        ConfigError: If dtype or layout is another one.
        MissingExtra: If dtype is "bfloat16" and the package ml_dtypes is missing.

    Example:
        >>> spec = ff.Spec((480, 640, 3), "uint8", "HWC")
        >>> print(spec, spec.with_size(224, 224), ff.Spec((3, 8, 8), "float32", "CHW").as_bytes())
        HWC uint8[480, 640, 3] HWC uint8[224, 224, 3] HWC uint8[8, 8, 3]
    """

    shape: tuple[int | None, ...]
    dtype: str
    layout: str

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise ConfigError.of("layout", f"one of {', '.join(LAYOUTS)}", self.layout)
        if self.dtype not in DTYPES:
            raise ConfigError.of("dtype", f"one of {', '.join(DTYPES)}", self.dtype)
        if self.dtype == "bfloat16":
            need_bfloat16()

    def __reduce__(self) -> Any:
        return Spec, (self.shape, self.dtype, self.layout)  # checked in the other process, too

    @property
    def encoded(self) -> bool:
        """The sample is still a file's bytes."""
        return self.layout == "encoded"

    @property
    def size(self) -> tuple[int | None, int | None]:
        """Size as (height, width), pixels; None where unknown."""
        if self.encoded:
            return (None, None)
        return self.shape[:2] if self.layout == "HWC" else self.shape[1:]  # type: ignore[return-value]

    @property
    def channels(self) -> int | None:
        """Number of channels; None before decoding."""
        return None if self.encoded else self.shape[-1 if self.layout == "HWC" else 0]

    @property
    def fixed(self) -> bool:
        """All samples have the same shape, so they fit into one batch array."""
        return not self.encoded and None not in self.shape

    def with_size(self, height: int | None, width: int | None) -> Spec:
        """Return this spec with another image size.

        Args:
            height (int | None): Pixels; None differs from sample to sample.
            width (int | None): Pixels; None differs from sample to sample.

        Returns:
            The spec.
        """
        channels = self.channels
        shape = (height, width, channels) if self.layout == "HWC" else (channels, height, width)
        return Spec(shape, self.dtype, self.layout)

    @property
    def has_kernel(self) -> bool:
        """Native code works on such pixels: uint8 of 1 or 3 channels."""
        return self.dtype == "uint8" and self.channels in (1, 3)

    def as_bytes(self) -> Spec:
        """The spec of the same images as bytes.

        Returns:
            uint8 HWC of the same size and channels.
        """
        return before_conversion(self, "uint8")

    def __str__(self) -> str:
        if self.encoded:
            return "encoded bytes"
        dims = ", ".join("?" if n is None else str(n) for n in self.shape)
        return f"{self.layout} {self.dtype}[{dims}]"


class LabelSpec(NamedTuple):
    """Shape and dtype of one label; by default a class number."""

    shape: tuple[int, ...] = ()
    dtype: str = "int64"  # a NumPy name, or "str" for texts

    def require_class(self, who: str, instead: str) -> None:
        """ConfigError, with the advice `instead`, unless labels are class numbers."""
        if self != CLASS_NUMBER:
            raise ConfigError(f"{who} needs class numbers as labels, got {self}; {instead}")

    def __str__(self) -> str:
        if self.dtype == "str":
            return "texts"
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]" if self.shape else self.dtype


class ObjectSpec(NamedTuple):
    """Parts of the objects in images, and rules for objects that ops cut off."""

    keypoints: int = 0  # of each object
    keypoint_names: tuple[str, ...] = ()
    # keypoints that trade places in a mirrored image; None: not known
    flip_pairs: tuple[tuple[int, int], ...] | None = None
    has_boxes: bool = True  # False: objects have only keypoints
    instance_masks: bool = False  # each object has an outline, drawn as a mask
    # room for rings and for points of polygons in an image; None: outlines are no polygons
    polygons: tuple[int, int] | None = None
    normalized: bool = False  # boxes and keypoints are shares of the image's width and height
    # a box is dropped below any of these
    min_size: float = 1.0  # its shorter side, pixels
    min_area: float = 0.0  # square pixels
    min_visible: float = 0.1  # the share of its area that is not cut off

    @property
    def mirrored(self) -> np.ndarray:
        """The keypoint that each one is in a mirrored image: int64 (keypoints,)."""
        order = np.arange(self.keypoints)
        for first, second in self.flip_pairs or ():
            order[[first, second]] = second, first
        return order

    def missing_in(self, instances: Any) -> str:
        """Error text for `Instances` without these keypoints or outlines; empty if all are there."""
        m = len(instances.labels)
        keypoints = instances.keypoints
        shapes = instances.shapes
        if self.keypoints and m and np.shape(keypoints) != (m, self.keypoints, 3):
            return (
                f"must give keypoints ({m}, {self.keypoints}, 3) for object_spec.keypoints="
                f"{self.keypoints}, got {'none' if keypoints is None else np.shape(keypoints)}; add"
                " them, or leave that out"
            )
        for name in ("instance_masks", "polygons"):
            option = getattr(self, name)
            if not option or not m or (shapes is not None and len(shapes) == m):
                continue
            return (
                f"must give shapes ({m},) for object_spec.{name}={option}, got"
                f" {'none' if shapes is None else len(shapes)}; add them, or leave that out"
            )
        return ""


def before_conversion(spec: Spec, dtype: str) -> Spec:
    """HWC pixels of this size and these channels, and of the dtype that they are decoded to."""
    return Spec((*spec.size, spec.channels), dtype, "HWC")


def need_bfloat16() -> None:
    """Teach NumPy the name of the dtype, in this process; MissingExtra without ml_dtypes."""
    try:
        importlib.import_module("ml_dtypes")
    except ImportError as error:
        raise MissingExtra.of('dtype "bfloat16"', "ml_dtypes", "bfloat16") from error


CLASS_NUMBER = LabelSpec()
PLAIN_OBJECTS = ObjectSpec()
ENCODED = Spec((None,), "uint8", "encoded")
PIXELS = Spec((None, None, 3), "uint8", "HWC")
