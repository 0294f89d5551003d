"""Files of every kind with pixels that are known."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fastfeed.decode import DecodeFailure
from fastfeed.preprocess.pixels.decode import Rasterizer
from fastfeed.preprocess.pixels.image_info import ImageInfo, image_info
from helpers.engines import MATTE

TURNED = {  # stored pixels -> as displayed, by EXIF orientation (CIPA DC-008, 4.6.4.A)
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: np.swapaxes(a, 0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(np.swapaxes(a, 0, 1), 2),
    8: lambda a: np.rot90(a, 1),
}


def saved(
    image: Image.Image | np.ndarray, format: str, orientation: int = 1, **options: Any
) -> bytes:
    """As exact as the format can be."""
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    if orientation != 1:
        options["exif"] = Image.Exif()
        options["exif"][0x0112] = orientation
    exact = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True, "exact": True}}
    file = io.BytesIO()
    image.save(file, format, **exact.get(format, {}) | options)
    return file.getvalue()


def without_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("decode", "image_info", "strips"):
        monkeypatch.setattr(f"fastfeed.preprocess.pixels.{module}.is_built", lambda: False)


def preprocessed(blob: bytes, matte: tuple[int, int, int] = MATTE) -> np.ndarray | DecodeFailure:
    """All pixels as preprocess has them, or why there are none."""
    info = image_info(blob)
    if isinstance(info, DecodeFailure):
        return info
    size = info.height, info.width
    return Rasterizer(matte).pixels(blob, info, (0, 0, *size), size)


def info_of(blob: bytes, **want: Any) -> ImageInfo:
    """What it looks like, which must be an image."""
    info = image_info(blob)
    assert isinstance(info, ImageInfo), info
    for name, value in want.items():
        assert getattr(info, name) == value, (name, info)
    return info


def decoded(
    blob: bytes, box: Any = None, size: Any = None, filter: str = "lanczos", matte=(255, 255, 255)
) -> np.ndarray:
    """Pixels of a box, or of all of it; in its own size, or another."""
    info = info_of(blob)
    box = box or (0, 0, info.height, info.width)
    got = Rasterizer(matte, filter).pixels(blob, info, box, size or (info.height, info.width))
    assert isinstance(got, np.ndarray), got
    assert got.shape == (*(size or (info.height, info.width)), 3)
    assert got.dtype == np.uint8 and got.flags.c_contiguous
    return got
