"""How much memory decoding a photograph will need, from its header: what admission reckons with.

Figures per path were fitted to peaks of fresh processes on images of 100 megapixels.
"""

from __future__ import annotations

from fastfeed.decode.base import dct_denominator
from fastfeed.decode.orientation import displayed_size, stored_box
from fastfeed.preprocess.pixels.decode import FILTER_NAMES, Look
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
    look: Look, blob_bytes: int, box: tuple[float, float, float, float], size: tuple[int, int], filter: str = "lanczos"
) -> int:
    """Bytes at the peak, beside the file's own. box, size and filter as Rasterizer takes them."""
    out = size[0] * size[1]
    converts = 0 if look.icc in ("none", "sRGB", "damaged") else 8 * out
    if look.path == "kernel":
        return int(_SMALL + 3 * out + converts + _held(look))
    top, _, height, width = stored_box(look.orientation, box, (look.height, look.width))
    rows, columns = displayed_size(look.orientation, size)
    shrink = dct_denominator((height, width), (rows, columns), FILTER_NAMES[filter]) if look.format == "JPEG" else 1
    _, last = rows_read(top / shrink, height / shrink, look.stored[0] // shrink, rows, FILTER_NAMES[filter])
    bands = _BANDS.get(look.mode, 3) + (look.alpha and look.mode in ("1", "L", "P", "I;16", "RGB", "RGB;16"))
    # rows that are narrow already, the result, its copy
    scaling = (1 if bands == 1 else 4) * last * columns + 7 * out + converts
    if look.path == "vips":
        strip = max(STRIP_PIXELS, look.stored[1])
        whole = _WEBP * look.height * look.width if look.format == "WEBP" else 0
        return int(_LIBVIPS + whole + 12 * bands * strip + 64 * bands * look.stored[1] + scaling)
    pixels = look.height * look.width // shrink**2
    image = (_IMAGE.get(look.mode, 4) + _BESIDE.get(look.format, 0)) * pixels
    if look.format == "JPEG2000":
        image += _JPEG2000 * bands * pixels
    if look.format != "JPEG":
        image += blob_bytes  # what the plugin reads is a copy
    if look.format == "TIFF" and look.orientation != 1:
        image += 4 * pixels  # Pillow turns it whole
    strips = 0 if look.mode in ("RGB", "L") and not look.alpha else 20 * min(STRIP_PIXELS, pixels)
    return int(_SMALL + image + _held(look) + strips + scaling)


def _held(look: Look) -> float:
    return look.held * _COEFFICIENT * (look.height + 64) * (look.width + 64) if look.held else 0
