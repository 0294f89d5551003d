"""Images, labels and data sets in the form that Keras's functions give them."""

from __future__ import annotations

import importlib
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


def image_ops(
    size: Any,  # (height, width), pixels, or one for both
    interpolation: str,  # Keras's name
    color_mode: str,
    data_format: str | None,
    antialias: bool = True,
    fit: Literal["exact", "crop", "pad_floor"] = "exact",
    keeps_bytes: bool = False,  # uint8 with "nearest"
) -> tuple[list[Any], str]:
    """Ops that make float32 in [0, 255] of three channels or one, and the name of their field."""
    filters = _FILTERS if antialias else _PLAIN
    if (name := interpolation.lower()) not in filters:
        alone = "" if antialias else " with antialias=False"
        raise ConfigError.of("interpolation", f"one of {', '.join(filters)}{alone}", interpolation)
    if data_format is None:
        data_format = framework("keras", "ff.keras").config.image_data_format()
    is_gray = color_mode == "grayscale"
    is_chw = data_format == "channels_first"
    pair = (size, size) if isinstance(size, int) else size
    ops: list[Any] = [Resize(pair, filters[name], fit)]
    ops += [Grayscale()] if is_gray else []
    if filters[name] != "nearest" or not keeps_bytes:
        ops.append(Normalize((0.0,) * 3, (1 / 255,) * 3))  # floats of the same levels
    ops += [ToLayout("CHW")] if is_chw else []
    ops += [Map(_plane if is_chw else _channel, "image", out="gray")] if is_gray else []
    return ops, "gray" if is_gray else "image"


def label_ops(kind: str | None, classes: int) -> list[Any]:
    """Ops that give class numbers the form of Keras's `label_mode` or `class_mode`."""
    convert = {"int": _integers, "binary": _column, "sparse": _floats}.get(kind or "")
    if convert is not None:
        return [Map(convert, "label", out="label")]
    return [OneHot(classes)] if kind == "categorical" else []


def check_split(validation: float | None, subset: str | None) -> None:
    """ConfigError unless a share for validation and the name of a side come together."""
    if (validation is None) != (subset is None) or not 0 < (validation or 0.5) < 1:
        raise ConfigError(
            "validation_split must be in (0, 1) and go together with subset, got"
            f" validation_split={validation} and subset={subset!r}",
            field="validation_split",
        )


def make_dataset(feed: Feed, yields: Yields, format: str, unbatched: bool = False) -> Any:
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
