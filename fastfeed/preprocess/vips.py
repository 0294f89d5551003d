"""Rows of large PNG and TIFF files, one strip after the other, through libvips: the whole image is never in memory.

Only decoding is asked of libvips, so results are those of Pillow's path. Rows are fetched in the calling thread.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.errors import MissingExtra

try:
    import pyvips
except (ImportError, OSError) as error:  # OSError: pyvips without the library itself
    raise MissingExtra.of("decoding large PNG and TIFF files in little memory", "pyvips", "vips") from error

__all__ = ["VERSION", "Rows"]

VERSION = ".".join(str(pyvips.version(part)) for part in range(3))
_BANDS = (1, 2, 3, 4)  # gray, RGB, either with alpha


@functools.cache
def _settle() -> None:
    """What libvips has opened goes with its file, and it starts no threads beside those a worker was given."""
    pyvips.cache_set_max(0)
    pyvips.concurrency_set(1)


class Rows:
    """Stored rows from top to bottom, each once. Any failure of libvips raises OSError."""

    def __init__(self, blob: Any, height: int, width: int) -> None:
        _settle()
        try:
            image = pyvips.Image.new_from_buffer(blob, "", access="sequential", fail_on="warning")
            if (image.height, image.width) != (height, width):
                raise OSError(f"libvips finds {image.width}x{image.height} pixels, not {width}x{height}")
            if image.bands not in _BANDS or image.format not in ("uchar", "ushort"):
                raise OSError(f"unsupported by libvips: {image.bands} bands of {image.format}")
            self._region = pyvips.Region.new(image)
        except pyvips.Error as error:
            raise OSError(_said(error)) from error
        self._image, self._blob = image, blob  # libvips reads from it

    def __call__(self, top: int, count: int) -> Image.Image:
        """These rows, with 8 bits: of 16, the high byte. L, LA, RGB or RGBA."""
        image = self._image
        dtype = np.uint8 if image.format == "uchar" else np.uint16
        try:
            pixels = np.frombuffer(self._region.fetch(0, top, image.width, count), dtype)
        except pyvips.Error as error:
            raise OSError(_said(error)) from error
        if dtype == np.uint16:
            pixels = (pixels >> 8).astype(np.uint8)
        shape = (count, image.width) if image.bands == 1 else (count, image.width, image.bands)
        return Image.fromarray(pixels.reshape(shape))


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or "libvips refused the content"
