"""How much memory decoding a photograph will need, from its header: what admission reckons with.

Figures per path were fitted to peaks of fresh processes on images of 100 megapixels.
"""

from __future__ import annotations

from fastfeed.decode.base import dct_denominator
from fastfeed.decode.orientation import displayed_size, stored_box
from fastfeed.preprocess.pixels.decode import FILTER_NAMES, ImageInfo
from fastfeed.preprocess.pixels.strips import STRIP_PIXELS, rows_read

__all__ = ["cost"]

_COEFFICIENT = 2.125  # bytes: 16 bits, and one bit that says whether it is known
_IMAGE = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2}  # bytes per pixel of an image of Pillow's; else 4
_BESIDE = {"WEBP": 13.5, "AVIF": 6.0}  # bytes per pixel that a decoder holds beside that image
_WEBP = 8  # bytes per pixel that libvips holds
_JPEG2000 = 5.5  # the same, per sample
_BANDS = {"1": 1, "L": 1, "I;16": 1, "LA;16": 2, "LA": 2, "RGBA": 4, "RGBA;16": 4}
_SMALL = 4_000_000  # bytes: rows, tables
_LIBVIPS = 24_000_000  # bytes: the library itself


def cost(
    info: ImageInfo,
    blob_bytes: int,
    box: tuple[float, float, float, float],
    size: tuple[int, int],
    filter: str = "lanczos",
) -> int:
    """Bytes at the peak, beside the file's own. box, size and filter as Rasterizer takes them."""
    out = size[0] * size[1]
    converts = 0 if info.icc in ("none", "sRGB", "damaged") else 8 * out
    if info.path == "kernel":
        return int(_SMALL + 3 * out + converts + _held(info))
    top, _, height, width = stored_box(info.orientation, box, (info.height, info.width))
    rows, columns = displayed_size(info.orientation, size)
    shrink = dct_denominator((height, width), (rows, columns), FILTER_NAMES[filter]) if info.format == "JPEG" else 1
    _, last = rows_read(top / shrink, height / shrink, info.stored[0] // shrink, rows, FILTER_NAMES[filter])
    bands = _BANDS.get(info.mode, 3) + (info.alpha and info.mode in ("1", "L", "P", "I;16", "RGB", "RGB;16"))
    # rows that are narrow already, the result, its copy
    scaling = (1 if bands == 1 else 4) * last * columns + 7 * out + converts
    if info.path == "vips":
        strip = max(STRIP_PIXELS, info.stored[1])
        whole = _WEBP * info.height * info.width if info.format == "WEBP" else 0
        return int(_LIBVIPS + whole + 12 * bands * strip + 64 * bands * info.stored[1] + scaling)
    pixels = info.height * info.width // shrink**2
    image = (_IMAGE.get(info.mode, 4) + _BESIDE.get(info.format, 0)) * pixels
    if info.format == "JPEG2000":
        image += _JPEG2000 * bands * pixels
    if info.format != "JPEG":
        image += blob_bytes  # what the plugin reads is a copy
    if info.format == "TIFF" and info.orientation != 1:
        image += 4 * pixels  # Pillow turns it whole
    strips = 0 if info.mode in ("RGB", "L") and not info.alpha else 20 * min(STRIP_PIXELS, pixels)
    return int(_SMALL + image + _held(info) + strips + scaling)


def _held(info: ImageInfo) -> float:
    return info.held * _COEFFICIENT * (info.height + 64) * (info.width + 64) if info.held else 0
