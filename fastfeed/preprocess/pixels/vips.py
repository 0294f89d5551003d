"""Rows of large PNG, TIFF and WebP files, decoded strip by strip through libvips.

Only WebP is held in full. libvips only decodes, so results equal those of Pillow's path.
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
    raise MissingExtra.of("decoding large images in little memory", "pyvips", "vips") from error

VERSION = ".".join(str(pyvips.version(part)) for part in range(3))
_BANDS = (1, 2, 3, 4)  # gray, RGB, either with alpha
_ROWS_PER_FETCH = 8  # libvips buffers a multiple of it


@functools.cache
def _configure() -> None:
    """Disable libvips's cache, so that memory is freed with the file, and its threads."""
    pyvips.cache_set_max(0)
    pyvips.concurrency_set(1)


class StripReader:
    """Reads stored rows from top to bottom, each once. Failures of libvips raise OSError."""

    def __init__(self, blob: Any, height: int, width: int) -> None:
        _configure()
        try:
            # a source reads the bytes in place; a buffer would be copied
            source = pyvips.Source.new_from_memory(blob)
            image = pyvips.Image.new_from_source(source, "", access="sequential", fail_on="warning")
            if (image.height, image.width) != (height, width):
                raise OSError(
                    f"libvips finds {image.width}x{image.height} pixels, not {width}x{height}"
                )
            if image.bands not in _BANDS or image.format not in ("uchar", "ushort"):
                raise OSError(f"unsupported by libvips: {image.bands} bands of {image.format}")
            self._region = pyvips.Region.new(image)
        except pyvips.Error as error:
            raise OSError(_message(error)) from error
        self._image = image
        self._source = source
        self._next = 0

    def __call__(self, top: int, count: int) -> Image.Image:
        """These rows as 8-bit L, LA, RGB or RGBA; of 16-bit samples the high byte."""
        image = self._image
        pixels = np.empty((count, image.width, image.bands), np.uint8)
        for at in range(0, count, _ROWS_PER_FETCH):
            part = pixels[at : at + _ROWS_PER_FETCH]
            rows = self._fetch(top + at, len(part))
            if image.format == "ushort":
                part[:] = (np.frombuffer(rows, np.uint16) >> 8).reshape(part.shape)
            else:
                part[:] = np.frombuffer(rows, np.uint8).reshape(part.shape)
        return Image.fromarray(pixels[:, :, 0] if image.bands == 1 else pixels)

    def _fetch(self, top: int, count: int) -> Any:
        self._next = top + count
        try:
            return self._region.fetch(0, top, self._image.width, count)
        except pyvips.Error as error:
            raise OSError(_message(error)) from error

    def finish(self) -> None:
        """Read the remaining rows, so that damage there is detected."""
        while self._next < self._image.height:
            self._fetch(self._next, min(_ROWS_PER_FETCH, self._image.height - self._next))


def _message(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or "libvips refused the content"
