"""Transforms in files: the ops, what they depend on, and a check that they give the same pixels."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.feed.transform.config import TransformConfig
from fastfeed.ops.ops_file import document, load_document, plain, save_document
from fastfeed.runtime.batch import Batch
from fastfeed.spec import ENCODED, PLAIN_OBJECTS, Spec
from fastfeed.version import __version__

_WHAT = "transform"
_WRITER = "Transform.save"
_OBJECTS = ("flip_pairs", "min_size", "min_area", "min_visible")
_SIZE = (64, 80)  # (height, width) of the pixels of the check, where any will do
_LARGEST = 1 << 24  # values of an image, at any op: a file costs no more memory than that


def save_transform(
    path: str | os.PathLike[str], config: TransformConfig, call: Callable[..., Batch]
) -> None:
    """Write a transform; call: the transform, on the CPU, for the check."""
    content = file_content(config)
    reason = _unchecked(config)
    content |= {"unchecked": reason} if reason else {"check": _check(call, config.input_spec)}
    save_document(path, content, _WHAT)


def file_content(config: TransformConfig) -> dict[str, Any]:
    """The content of a file but for the check."""
    content = document(config.ops) | {"seed": config.seed, "classes": config.classes}
    if config.input_spec != ENCODED:
        content["input"] = plain(config.input_spec, "input_spec")
    if config.objects != PLAIN_OBJECTS:
        content["objects"] = {name: getattr(config.objects, name) for name in _OBJECTS}
    if config.to_original:
        content["to_original"] = True
    return content


def load_transform(
    path: str | os.PathLike[str], allow_functions: bool
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Arguments of a saved transform by name, and its check; None if it has none.

    ConfigError for any other file.
    """
    ops, content = load_document(path, _WHAT, _WRITER, allow_functions)
    missing = [key for key in ("seed", "classes") if key not in content]
    if "check" not in content and "unchecked" not in content:
        missing.append("check")
    if missing:
        raise ConfigError(
            f"{path} is not a saved transform: it has no {missing[0]!r}; pass what {_WRITER} wrote"
        )
    spec = content.get("input", ENCODED)
    if not isinstance(spec, Spec):
        raise ConfigError.of(f"{path}: input", "a Spec", spec)
    check = content.get("check")
    if "check" in content and not isinstance(check, dict):
        raise ConfigError.of(f"{path}: check", "an object of texts", check)
    objects = content.get("objects", {})
    if not isinstance(objects, dict) or not objects.keys() <= {*_OBJECTS}:
        raise ConfigError.of(f"{path}: objects", f"an object of {', '.join(_OBJECTS)}", objects)
    arguments = {"seed": content["seed"], "classes": content["classes"], "input_spec": spec}
    arguments["to_original"] = content.get("to_original", False)
    return {"ops": ops} | arguments | objects, check


def compare(
    path: str | os.PathLike[str],
    check: Mapping[str, Any],
    config: TransformConfig,
    call: Callable[..., Batch],
) -> None:
    """Refuse a transform whose pixels are not those of the check; call: as for `save_transform`."""
    if reason := _unchecked(config):
        raise ConfigError(f"{path} has a check, but {reason}; pass what {_WRITER} wrote")
    own = _check(call, config.input_spec)
    if check == own:
        return
    what = "its ops give other pixels here"
    if check.get("pixels") == own["pixels"]:
        what = f"JPEGs are decoded to other pixels here, with decode={config.decode!r}"
    raise ConfigError(
        f"{path} is not loaded: {what} (fastfeed {__version__}); load it with the version, decoder"
        " and libjpeg that it was saved with, or save it again and evaluate the model with it"
    )


def _unchecked(config: TransformConfig) -> str:
    """The reason why pixels are not checked; empty if they are."""
    parts = (config.program, *config.program.others)
    if any(part.functions or part.maps for part in parts):
        return "pixels of your functions are not checked"
    if config.program.needs_boxes is not None:
        return f"pixels of {config.program.needs_boxes!r} depend on boxes and are not checked"
    shapes = [config.input_spec.shape, *(part.shape for part in parts)]
    shapes += [(part.views or 1, *step.spec.shape) for part in parts for step in part.steps]
    largest = max(math.prod(side or 1 for side in shape) for shape in shapes)
    if largest > _LARGEST:
        return f"images of {largest:,} values are not checked, only those of up to {_LARGEST:,}"
    return ""


def _check(call: Callable[..., Batch], spec: Spec) -> dict[str, str]:
    """Digests of what becomes of a JPEG and of pixels, each as two samples, for random ops."""
    pixels = {"pixels": _digest(call([_pixels(spec)] * 2, ids=[0, 1]))}
    if not spec.encoded:
        return pixels
    return {"jpeg": _digest(call([_jpeg()] * 2, ids=[0, 1]))} | pixels


def _digest(batch: Batch) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for images in batch.views or (batch.images,):
        digest.update(f"{images.dtype}{images.shape}".encode())
        digest.update(np.ascontiguousarray(images).tobytes())
    digest.update(repr(sorted(batch.bad)).encode())  # of Decode(max_pixels=...)
    return digest.hexdigest()


def _pixels(spec: Spec) -> np.ndarray:
    """An image with all levels of bytes, smooth in one half and noisy in the other: HWC."""
    height, width = (side or most for side, most in zip(spec.size, _SIZE, strict=True))
    rows, columns = np.mgrid[:height, :width]
    noise = (rows * 7919 + columns * 104_729) ** 2 // 17
    levels = np.where(columns * 2 < width, rows * 255 // height + columns, noise)
    step = np.arange(spec.channels or 3) * 85
    return ((levels[:, :, None] + step) % 256).astype("uint8" if spec.encoded else spec.dtype)


@cache
def _jpeg() -> bytes:
    return Path(__file__).with_name("check.jpg").read_bytes()
