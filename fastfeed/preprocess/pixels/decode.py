"""Decodes files into upright 8-bit sRGB pixels of a given size, with little memory.

Gray and YCbCr JPEGs and most PNGs, WebPs and TIFFs are decoded by the native extension, other large
ones in strips by libvips if it is installed, all others by Pillow. `cost` is the memory that this
needs, from the header of an image, fitted to peaks at 100 megapixels.
"""

from __future__ import annotations

import io
from threading import Event

import numpy as np
from PIL import Image

from fastfeed.decode.base import DECLINED, DecodeFailure, Header, Request, dct_denominator
from fastfeed.decode.formats.png import png_intact
from fastfeed.decode.native import NativeEngine, is_built
from fastfeed.decode.orientation import displayed, displayed_size, stored_box
from fastfeed.decode.pillow import OPEN, PillowEngine, failure_from_error
from fastfeed.errors import ConfigError
from fastfeed.ops.decode import Decode
from fastfeed.ops.program.compile import Windows
from fastfeed.preprocess.model.image_recipe import FILTERS, Size
from fastfeed.preprocess.pixels.color import NONE, Profile, read_profile
from fastfeed.preprocess.pixels.image_info import (
    LARGE,
    ImageInfo,
    has_alpha,
    libvips,
    opened_profile,
    read_markers,
)
from fastfeed.preprocess.pixels.strips import (
    STRIP_PIXELS,
    color_model,
    converts_first,
    flattener,
    rows_read,
    scale_strips,
)

# names of ops.base.FILTERS
FILTER_NAMES: dict[str, str] = dict(zip(FILTERS, ("lanczos", "bicubic", "box"), strict=True))
NEVER = Event()
_NO_FLIP = np.zeros((1, 2), bool)
Box = tuple[float, float, float, float]
Seconds = dict[str, float]  # by stage


class Rasterizer:
    """Decodes a box of an image at a given size; thread-safe.

    matte: RGB behind transparent pixels. filter: of recipe.FILTERS, antialiased. full_decode: as in
    recipe.Scaling.
    """

    def __init__(
        self,
        matte: tuple[int, int, int] = (255, 255, 255),
        filter: str = "lanczos",
        *,
        max_pixels: int = 300_000_000,
        full_decode: bool = False,
    ) -> None:
        if filter not in FILTER_NAMES:
            raise ConfigError.of("filter", f"one of {', '.join(FILTERS)}", filter)
        self._op = Decode(matte, max_pixels)
        self._filter = FILTER_NAMES[filter]
        self._full = full_decode
        self._pillow = PillowEngine(self._op)
        self.native = NativeEngine(self._op, full=full_decode) if is_built() else None

    def pixels(
        self,
        blob: bytes,
        info: ImageInfo,
        box: Box,
        size: Size,
        seconds: Seconds | None = None,
    ) -> np.ndarray | DecodeFailure:
        """Decode a displayed `box` as `size`: uint8 (height, width, 3)."""
        seconds = {"resize": 0.0} if seconds is None else seconds
        try:
            if info.path == "native":
                pixels = self._through_native(blob, info, box, size, seconds)
                if not isinstance(pixels, DecodeFailure) or pixels.reason not in DECLINED:
                    return pixels
                if info.format in ("PNG", "WEBP") and info.height * info.width >= LARGE:
                    # Pillow would need much memory to say how
                    return DecodeFailure("corrupt", "damaged pixel data")
            if info.path == "vips":
                return self._through_vips(blob, info, box, size, seconds)
            return self._through_pillow(blob, box, size, seconds)
        # decoders of hostile bytes raise anything: ValueError, KeyError, struct.error...
        except Exception as error:
            bad = failure_from_error(error, blob, info.format)
            is_png = info.path == "vips" and info.format == "PNG"
            is_truncated = is_png and b"IEND" not in bytes(blob[-64:])
            return DecodeFailure("truncated", bad.detail) if is_truncated else bad

    def request(self, blob: bytes, info: ImageInfo, box: Box, size: Size) -> Request:
        """The request for a box at this size to the native extension."""
        header = Header(info.height, info.width, info.format)
        windows = Windows(np.array([box], float), _NO_FLIP, np.array([size], np.int64))
        return Request([blob], [header], windows, self._filter)

    def _through_native(
        self, blob: bytes, info: ImageInfo, box: Box, size: Size, seconds: Seconds
    ) -> np.ndarray | DecodeFailure:
        assert self.native is not None
        out = np.empty((1, *size, 3), np.uint8)
        times = np.zeros((1, 2), np.int64)
        (bad,) = self.native.decode(self.request(blob, info, box, size), out, NEVER, times)
        seconds["resize"] += times[0, 0] / 1e9
        if bad is not None:
            return bad
        if not info.converts:
            return out[0]
        if info.format == "JPEG":
            profile = read_profile(read_markers(blob).profile, info.mode)
        else:
            profile = opened_profile(OPEN[info.format](io.BytesIO(blob), ""))
        is_gray = color_model(info.mode) == "L"
        image = Image.fromarray(np.ascontiguousarray(out[0, :, :, 0]) if is_gray else out[0])
        return np.array(profile.converted(image))

    def _through_vips(
        self, blob: bytes, info: ImageInfo, box: Box, size: Size, seconds: Seconds
    ) -> np.ndarray | DecodeFailure:
        if info.format == "PNG" and not png_intact(blob):
            return DecodeFailure("corrupt", "a checksum of the pixel data is wrong")
        profile = opened_profile(OPEN[info.format](io.BytesIO(blob), ""))
        flat = flattener(info.alpha, profile, self._op.matte)
        rows = libvips().StripReader(blob, *info.stored)
        box = stored_box(info.orientation, box, (info.height, info.width))
        size = displayed_size(info.orientation, size)
        small = scale_strips(
            lambda top, count: flat(rows(top, count)), info.stored, box, size, self._filter, seconds
        )
        rows.finish()
        return _upright(small, info.alpha, profile, info.orientation)

    def _through_pillow(
        self, blob: bytes, box: Box, size: Size, seconds: Seconds
    ) -> np.ndarray | DecodeFailure:
        (header,) = self._pillow.probe([blob])
        if isinstance(header, DecodeFailure):
            return header
        if header.format == "PNG" and not png_intact(blob):
            return DecodeFailure("corrupt", "a checksum of the pixel data is wrong")
        image = header.handle.take(blob)
        orientation = header.handle.orientation
        top, left, height, width = stored_box(orientation, box, (header.height, header.width))
        size = displayed_size(orientation, size)
        shrink = 1
        profile = opened_profile(image)
        if header.format == "JPEG" and not profile.linear and not self._full:
            shrink = dct_denominator((height, width), size, self._filter)
            image.draft(image.mode, (image.width // shrink, image.height // shrink))
        box = (top / shrink, left / shrink, height / shrink, width / shrink)
        image.load()
        alpha = has_alpha(image)
        flat = flattener(alpha, profile, self._op.matte)
        small = scale_strips(
            lambda top, count: flat(image.crop((0, top, image.width, top + count))),
            (image.height, image.width),
            box,
            size,
            self._filter,
            seconds,
        )
        return _upright(small, alpha, profile, orientation)


def _upright(small: Image.Image, alpha: bool, profile: Profile, orientation: int) -> np.ndarray:
    """Convert a stored image in the profile's colors to displayed orientation and sRGB."""
    profile = NONE if converts_first(alpha, profile) else profile
    return np.ascontiguousarray(displayed(orientation, np.asarray(profile.converted(small))))


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
