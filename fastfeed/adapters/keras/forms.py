"""Images, labels and data sets in the form that Keras's functions give them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fastfeed.adapters.versions import framework
from fastfeed.errors import ConfigError
from fastfeed.feed import Feed
from fastfeed.feed.fields import Yields
from fastfeed.feed.session import FeedSession
from fastfeed.ops import Grayscale, Map, Normalize, OneHot, Resize, ToLayout

_FILTERS = {
    "bilinear": "bilinear",
    "bicubic": "bicubic",
    "lanczos3": "lanczos",
    "lanczos": "lanczos",
    "area": "box",
    "box": "box",
    "nearest": "nearest",
}
_PLAIN = {"bilinear": "linear", "nearest": "nearest"}  # not antialiased


@dataclass(frozen=True, slots=True)
class ImageForm:
    """Images as float32 in [0, 255], of three channels or one."""

    size: Any  # (height, width), pixels, or one for both
    interpolation: str  # Keras's name
    color_mode: str
    data_format: str | None
    antialias: bool = True
    fit: Literal["exact", "crop", "pad_floor"] = "exact"
    keeps_bytes: bool = False  # uint8 with "nearest"

    @property
    def field(self) -> str:
        """Name of the field that holds the images."""
        return "gray" if self.color_mode == "grayscale" else "image"

    @property
    def ops(self) -> list[Any]:
        """Ops that resize and convert images."""
        size = (self.size, self.size) if isinstance(self.size, int) else self.size
        is_gray = self.color_mode == "grayscale"
        ops: list[Any] = [Resize(size, self._filter, self.fit)]
        ops += [Grayscale()] if is_gray else []
        if self._filter != "nearest" or not self.keeps_bytes:
            ops.append(Normalize((0.0,) * 3, (1 / 255,) * 3))  # floats of the same levels
        channels_first = self._is_channels_first()
        ops += [ToLayout("CHW")] if channels_first else []
        if is_gray:
            ops.append(Map(_plane if channels_first else _channel, "image", out="gray"))
        return ops

    @property
    def _filter(self) -> str:
        filters = _FILTERS if self.antialias else _PLAIN
        name = self.interpolation.lower()
        if name in filters:
            return filters[name]
        alone = "" if self.antialias else " with antialias=False"
        raise ConfigError.of(
            "interpolation", f"one of {', '.join(filters)}{alone}", self.interpolation
        )

    def _is_channels_first(self) -> bool:
        if self.data_format is not None:
            return self.data_format == "channels_first"
        keras = framework("keras", "ff.keras")
        return keras.config.image_data_format() == "channels_first"


def label_ops(kind: str | None, classes: int) -> list[Any]:
    """Ops that give class numbers the form of Keras's `label_mode` or `class_mode`."""
    convert = {"int": _integers, "binary": _column, "sparse": _floats}.get(kind or "")
    if convert is not None:
        return [Map(convert, "label", out="label")]
    return [OneHot(classes)] if kind == "categorical" else []


def data_of(feed: Feed, yields: Yields, format: str, unbatched: bool = False) -> Any:
    """The data set of this feed, which keeps it as `feed`."""
    if format == "tf":
        framework("tensorflow", 'format="tf"')
        adapter = importlib.import_module("fastfeed.adapters.keras.tensorflow")
        data = adapter.whole_epochs(FeedSession.of(feed), yields, unbatched)
    elif unbatched:
        raise ConfigError(
            f'batch_size=None is for format="tf", got format={format!r}; pass a number',
            field="batch_size",
        )
    else:
        data = feed.to_keras(yields=yields)
    data.feed = feed
    return data


def _channel(images: np.ndarray) -> np.ndarray:
    return images[..., :1]


def _plane(images: np.ndarray) -> np.ndarray:
    return images[:, :1]


def _integers(labels: np.ndarray) -> np.ndarray:
    return labels.astype(np.int32)


def _floats(labels: np.ndarray) -> np.ndarray:
    return labels.astype(np.float32)


def _column(labels: np.ndarray) -> np.ndarray:
    return labels.astype(np.float32)[:, None]
