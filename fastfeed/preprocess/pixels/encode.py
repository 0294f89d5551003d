"""Encodes pixels into files, deterministically: all parameters are explicit, and no metadata is
written.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.lib import format as npy
from PIL import Image, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from fastfeed.preprocess.model.image_recipe import Encoding, Size

__all__ = ["encode", "working_bytes"]

LOSSLESS = 100  # WebP quality that selects lossless compression

# imported here, or Pillow would do so at the first file
_PLUGINS = (
    JpegImagePlugin,
    PngImagePlugin,
    WebPImagePlugin,
)
_PNG_LEVEL = 3  # zlib level: 6 takes 2.4 times as long for 2.6 % fewer bytes on photographs
_WEBP_METHOD = 4  # of 0..6, libwebp's default: 6 takes three times as long for 1 % fewer bytes
# quality means effort; method 4: 1.5 times as long, 1.7 % fewer bytes
_WEBP_LOSSLESS = {
    "method": 2,
    "quality": 75,
}
_WORKING = {"raw": 7, "jpeg": 7, "png": 8, "webp": 30}  # bytes per pixel for noise, the worst case


def encode(pixels: np.ndarray, encoding: Encoding) -> bytes:
    """Encode uint8 pixels, shape (height, width, 3).

    JPEG: baseline, with the standard Huffman tables or, with `optimize`, the image's own. WebP:
    lossless at quality
    100. PNG: RGB. raw: a `.npy` file, version 1.0.
    """
    file = io.BytesIO()
    pixels = np.ascontiguousarray(pixels)
    if encoding.image == "raw":
        npy.write_array(file, pixels, version=(1, 0), allow_pickle=False)
    else:
        Image.fromarray(pixels).save(file, **_options(encoding))
    return file.getvalue()


def working_bytes(encoding: Encoding, size: Size) -> int:
    """Upper bound of the memory for encoding height x width pixels, including the file, without the
    pixels.
    """
    per_pixel = _WORKING[encoding.image]
    if encoding.image == "webp" and encoding.quality == LOSSLESS:
        per_pixel = 45
    elif encoding.image == "jpeg" and encoding.optimize:
        per_pixel += 6  # its coefficients
    return per_pixel * size[0] * size[1]


def _options(encoding: Encoding) -> dict[str, Any]:
    if encoding.image == "png":
        return {"format": "PNG", "compress_level": _PNG_LEVEL, "optimize": False}
    if encoding.image == "webp" and encoding.quality == LOSSLESS:
        return {"format": "WEBP", "lossless": True, **_WEBP_LOSSLESS}
    if encoding.image == "webp":
        return {
            "format": "WEBP",
            "lossless": False,
            "method": _WEBP_METHOD,
            "quality": encoding.quality,
        }
    options = {
        "optimize": encoding.optimize,
        "progressive": False,
        "quality": encoding.quality,
        "subsampling": encoding.subsampling,
    }
    return {"format": "JPEG", **options}
