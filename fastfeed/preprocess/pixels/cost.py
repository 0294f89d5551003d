"""Memory that decoding an image needs, from its header, fitted to peaks at 100 megapixels."""

from __future__ import annotations

from fastfeed.decode.base import dct_denominator
from fastfeed.decode.orientation import displayed_size, stored_box
from fastfeed.preprocess.pixels.decode import FILTER_NAMES
from fastfeed.preprocess.pixels.image_info import ImageInfo
from fastfeed.preprocess.pixels.strips import STRIP_PIXELS, rows_read

_SHRINKS = (1, 2, 4, 8)  # as in ImageInfo.held_bytes
_COEFFICIENT = 2.125  # bytes: 16 bits, and one bit for whether it is known
# bytes per pixel of an image of Pillow's; else 4
_IMAGE = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2}
# bytes per pixel that the decoder holds in addition to the image
_DECODER = {"WEBP": 13.5, "AVIF": 6.0}
# the same, by mode; of the others, which have more bits, 11.5
_HEIC = {"L": 1.7, "I;16": 2.7, "RGB": 5.2, "RGBA": 8.5}
_WEBP = 8  # bytes per pixel that libvips holds
_JPEG2000 = 5.5  # the same, per sample
_BANDS = {"1": 1, "L": 1, "I;16": 1, "LA;16": 2, "LA": 2, "RGBA": 4, "RGBA;16": 4}
_KEYED = ("1", "L", "I;16", "RGB", "RGB;16")  # modes in which alpha comes from a transparent color
_SMALL = 4_000_000  # bytes: rows, tables
_LIBVIPS = 24_000_000  # bytes: the library itself


def cost(
    info: ImageInfo,
    blob_bytes: int,
    box: tuple[float, float, float, float],
    size: tuple[int, int],
    filter: str = "lanczos",
    full_decode: bool = False,
) -> int:
    """Peak memory in bytes, without the file; arguments as of Rasterizer."""
    out = size[0] * size[1]
    converts = 8 * out if info.converts else 0
    top, _, height, width = stored_box(info.orientation, box, (info.height, info.width))
    rows, columns = displayed_size(info.orientation, size)
    shrink = dct_denominator((height, width), (rows, columns), FILTER_NAMES[filter])
    shrink = 1 if info.linear or full_decode else shrink
    if info.path == "native":
        held = info.held_bytes[_SHRINKS.index(shrink)]
        if info.format == "PNG":
            held += blob_bytes  # its header is read from a copy of the chunks that decide pixels
        return int(_SMALL + 3 * out + converts + held)
    shrink = shrink if info.format == "JPEG" else 1
    stored_rows = info.stored[0] // shrink
    _, last = rows_read(top / shrink, height / shrink, stored_rows, rows, FILTER_NAMES[filter])
    bands = _BANDS.get(info.mode, 3) + (info.alpha and info.mode in ("P", *_KEYED))
    # horizontally scaled rows, the result, its copy
    scaling = (1 if bands == 1 else 4) * last * columns + 7 * out + converts
    if info.path == "vips":
        strip = max(STRIP_PIXELS, info.stored[1])
        full_image = _WEBP * info.height * info.width if info.format == "WEBP" else 0
        buffers = 12 * bands * strip + 64 * bands * info.stored[1]
        return int(_LIBVIPS + full_image + buffers + scaling)
    pixels = max(info.height * info.width, info.coded_pixels) // shrink**2
    image = (_IMAGE.get(info.mode, 4) + _DECODER.get(info.format, 0)) * pixels
    if info.format == "TIFF" and info.mode.startswith("I;16"):
        image += 4 * pixels  # made 8 bits in NumPy
    if info.format == "PNG" and info.alpha and info.mode in _KEYED:
        image += 20 * pixels  # a color is looked for in NumPy
    if info.format == "HEIC":
        image += _HEIC.get(info.mode, 11.5) * pixels
    if info.format == "JPEG2000":
        image += _JPEG2000 * bands * pixels
    if info.format != "JPEG":
        image += blob_bytes  # what the plugin reads is a copy
    is_plain = info.mode in ("RGB", "L") and not info.alpha and not info.linear
    strips = 0 if is_plain else 20 * min(STRIP_PIXELS, pixels)
    coefficients = info.held * _COEFFICIENT * (info.height + 64) * (info.width + 64)
    return int(_SMALL + image + coefficients + strips + scaling)
