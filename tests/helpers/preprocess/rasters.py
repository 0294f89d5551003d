"""Files of every kind with pixels that are known, and PNGs made by hand."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.preprocess.pixels.decode import ImageInfo, Rasterizer, image_info

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


def saved(image: Image.Image | np.ndarray, format: str, orientation: int = 1, **options: Any) -> bytes:
    """As exact as the format can be."""
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    if orientation != 1:
        options["exif"] = Image.Exif()
        options["exif"][0x0112] = orientation
    exact = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True, "exact": True}}
    file = io.BytesIO()
    image.save(file, format, **exact.get(format, {}) | options)
    return file.getvalue()


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _packed(row: np.ndarray, depth: int) -> bytes:
    if depth >= 8:
        return row.astype(f">u{depth // 8}").tobytes()
    return np.packbits((row[..., None] >> np.arange(depth - 1, -1, -1) & 1).astype(np.uint8).ravel()).tobytes()


def png(samples: np.ndarray, depth: int = 8, key: Sequence[int] = (), interlaced: bool = False) -> bytes:
    """Of (height, width, channels) whole numbers; `key` is the transparent color."""
    height, width, channels = samples.shape
    color = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    passes = [(0, 0, 1, 1)]
    if interlaced:  # first row, first column, every so many rows, columns
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [samples[top::down, left::right] for top, left, down, right in passes]
    rows = b"".join(b"\0" + _packed(row, depth) for part in parts if part.size for row in part)
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)
    trns = _chunk(b"tRNS", struct.pack(f">{len(key)}H", *key)) if key else b""
    body = _chunk(b"IHDR", head) + trns + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


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
