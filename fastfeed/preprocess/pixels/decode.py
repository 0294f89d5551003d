"""Decodes files into upright 8-bit sRGB pixels of a given size, with little memory.

Gray and YCbCr JPEGs are decoded by the kernel, large PNG, TIFF and WebP files in strips by libvips if it is installed,
all others by Pillow. Rotation and color conversion happen after downscaling.
"""

from __future__ import annotations

import functools
import importlib
import io
from dataclasses import dataclass
from threading import Event
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.decode.base import DECLINED, Bad, Header, Request, dct_denominator
from fastfeed.decode.native import NativeEngine, is_built, markers
from fastfeed.decode.orientation import displayed, displayed_size, stored_box
from fastfeed.decode.pillow import OPEN, PillowEngine, as_bad
from fastfeed.decode.pixels import resampled
from fastfeed.decode.sniff import png_intact
from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.ops.decode import Decode
from fastfeed.ops.program.compile import Windows
from fastfeed.preprocess.pixels.color import NONE, Profile, profile_of
from fastfeed.preprocess.pixels.jpeg_markers import read_markers
from fastfeed.preprocess.pixels.strips import color_model, converts_first, flattener, scale_strips
from fastfeed.preprocess.recipe import FILTERS

__all__ = ["FILTER_NAMES", "LARGE", "ImageInfo", "Rasterizer", "image_info", "libvips"]

LARGE = 16_000_000  # pixels; larger files are decoded in strips
FILTER_NAMES: dict[str, str] = dict(
    zip(FILTERS, ("lanczos", "bicubic", "box"), strict=True)
)  # names of ops.base.FILTERS
_ORIENTATION = 0x0112
_DEEP = {"RGB": "RGB;16", "RGBA": "RGBA;16", "L": "I;16", "LA": "LA;16"}
_PNG_COLORS = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}  # by the header's color type
_PLAIN_TIFF = (1, 5, 8, 32_773, 32_946)  # compressions: none, LZW, deflate, PackBits, deflate's old number
_NEVER = Event()
_NO_FLIP = np.zeros((1, 2), bool)
Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What the header of an image file says."""

    format: str  # detected from the bytes: "JPEG", "PNG", ...
    height: int  # pixels, as displayed
    width: int
    orientation: int  # EXIF, 1..8
    mode: str  # "RGB", "L", "CMYK", "P", ...; with 16 bits "I;16", "RGB;16", "RGBA;16"
    icc: str  # "none", "sRGB", "Display P3", ...; "damaged" (ignored)
    path: str  # decoder to use: "kernel", "vips" or "pillow"
    progressive: bool = False
    interlaced: bool = False
    alpha: bool = False
    linear: bool = False  # colors are converted before scaling
    held_coefficients: float = 0.0  # coefficients per pixel that a multi-scan JPEG keeps in memory

    @property
    def stored(self) -> tuple[int, int]:
        """(height, width) in the file."""
        return displayed_size(self.orientation, (self.height, self.width))


@functools.cache
def libvips() -> Any:
    """The vips module; None if pyvips is not installed."""
    try:
        return importlib.import_module("fastfeed.preprocess.pixels.vips")
    except MissingExtra:
        return None


def image_info(blob: bytes, max_pixels: int = 300_000_000) -> ImageInfo | Bad:
    """Parse a file's header; Bad if the file is refused. Never raises for what a file contains."""
    if is_built() and bytes(blob[:3]) == b"\xff\xd8\xff":
        header = markers(blob, max_pixels)
        if isinstance(header, Bad):
            return header if header.reason not in DECLINED else _pillow_info(blob, max_pixels)
        jpeg = read_markers(blob)
        mode = "L" if header.components == 1 else "RGB"
        profile = profile_of(jpeg.profile, mode)
        held_coefficients = jpeg.samples if jpeg.several_scans else 0.0
        return ImageInfo(
            "JPEG", header.height, header.width, header.orientation, mode, profile.name,
            "pillow" if profile.linear else "kernel", progressive=jpeg.progressive, linear=profile.linear,
            held_coefficients=held_coefficients,
        )  # fmt: skip
    return _pillow_info(blob, max_pixels)


def _pillow_info(blob: bytes, max_pixels: int) -> ImageInfo | Bad:
    """The same with Pillow."""
    (header,) = PillowEngine(Decode(max_pixels=max_pixels)).probe([blob])
    if isinstance(header, Bad):
        return header
    image, orientation = header.handle.look(blob), header.handle.orientation
    try:
        if header.format == "TIFF":
            tag = image.tag_v2.get(_ORIENTATION, 1)
            orientation = tag if isinstance(tag, int) and 1 <= tag <= 8 else 1
        mode = _mode(image, blob)
        alpha = image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info
        profile = _profile(image)
        jpeg = read_markers(blob) if header.format == "JPEG" else None
        in_strips = header.height * header.width >= LARGE and _in_strips(image, header.format, blob)
    except Exception as error:  # hostile bytes make plugins raise anything
        return as_bad(error, blob, header.format)
    return ImageInfo(
        header.format, header.height, header.width, orientation, mode, profile.name,
        "vips" if in_strips else "pillow", linear=profile.linear,
        progressive=bool(jpeg and jpeg.progressive), interlaced=bool(image.info.get("interlace")), alpha=alpha,
        held_coefficients=jpeg.samples if jpeg and jpeg.several_scans else 0.0,
    )  # fmt: skip


def _mode(image: Any, blob: bytes) -> str:
    """Pillow's mode, with 16 bits where Pillow does not tell."""
    if image.format == "PNG" and blob[24] == 16:
        return _DEEP[_PNG_COLORS[blob[25]]]
    mode: str = image.mode
    return _DEEP.get(mode, mode) if image.format == "TIFF" and set(_tag(image, 258)) == {16} else mode


def _eight_bit_key(key: Any, blob: bytes) -> Any:
    """A PNG's transparent color in the scale of the loaded pixels; Pillow returns it as stored in the file."""
    depth, color = blob[24], _PNG_COLORS[blob[25]]
    if color == "L" and depth in (2, 4):
        return key * 255 // ((1 << depth) - 1)
    if color == "RGB" and depth == 16:
        return tuple(value >> 8 for value in key)  # the low bytes are gone
    return key


def _profile(image: Any) -> Profile:
    """Profile of an opened image."""
    if "icc_profile" not in image.info or color_model(image.mode) == "LAB":
        return NONE
    return profile_of(image.info["icc_profile"] or b"", color_model(image.mode))


def _tag(image: Any, number: int, default: int = 1) -> tuple[int, ...]:
    value = image.tag_v2.get(number, default)
    return value if isinstance(value, tuple) else (value,)


def _in_strips(image: Any, format: str, blob: bytes) -> bool:
    """Whether libvips is installed and decodes this file to the same pixels as Pillow."""
    if format == "PNG":
        is_plain = not image.info.get("interlace")
    elif format == "WEBP":
        is_plain = not getattr(image, "is_animated", False)  # also decoded in full, but held once instead of four times
    elif format == "TIFF":
        bits, colors, extra = _tag(image, 258), _tag(image, 262), _tag(image, 338, 0)
        shape = {"L": 1, "I;16": 1, "I;16B": 1, "RGB": 3, "RGBA": 4}.get(image.mode)
        is_plain = (
            shape is not None and len(set(bits)) == 1 and bits[0] in (8, 16) and _tag(image, 277) == (shape,)
            and colors == ((1,) if shape == 1 else (2,)) and extra == ((2,) if shape == 4 else (0,))
            and _tag(image, 284) == (1,) and _tag(image, 259)[0] in _PLAIN_TIFF and set(_tag(image, 339)) == {1}
        )  # fmt: skip
    else:
        is_plain = False
    vips = libvips() if is_plain else None
    if vips is None:
        return False
    try:
        vips.StripReader(blob, *_stored(image))
    except OSError:
        return False
    return True


def _twelve_bits(image: Any) -> bool:
    """Whether a TIFF has 12-bit samples, which Pillow does not scale to 16 as in other formats."""
    return image.format == "TIFF" and image.mode.startswith("I;16") and _tag(image, 258) == (12,)


def _stored(image: Any) -> tuple[int, int]:
    """(height, width) as stored in the file; of TIFF files Pillow reports the size after rotation."""
    is_transposed = image.format == "TIFF" and image.tag_v2.get(_ORIENTATION) in (5, 6, 7, 8)
    return (image.width, image.height) if is_transposed else (image.height, image.width)


class Rasterizer:
    """`Rasterizer((255, 255, 255), "lanczos").pixels(blob, look(blob), box, size)`. Thread-safe.

    matte: RGB behind transparent pixels. filter: of recipe.FILTERS, antialiased. full_decode: as in recipe.Scaling.
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
            raise ConfigError(f"filter must be one of {', '.join(FILTERS)}, got {filter!r}")
        self._op = Decode(matte, max_pixels)
        self._filter, self._full = FILTER_NAMES[filter], full_decode
        self._pillow = PillowEngine(self._op)
        self._native = NativeEngine(self._op, full=full_decode) if is_built() else None

    def __repr__(self) -> str:
        return f"Rasterizer({self._filter}, matte {self._op.matte}, kernel {'yes' if self._native else 'no'})"

    def pixels(self, blob: bytes, info: ImageInfo, box: Box, size: tuple[int, int]) -> np.ndarray | Bad:
        """Contiguous uint8 (height, width, 3): `box` (top, left, height, width), in displayed pixels, as `size`."""
        try:
            if info.path == "kernel":
                pixels = self._through_kernel(blob, info, box, size)
                if not isinstance(pixels, Bad) or pixels.reason not in DECLINED:
                    return pixels
            if info.path == "vips":
                return self._through_vips(blob, info, box, size)
            return self._through_pillow(blob, box, size)
        except Exception as error:  # decoders of hostile bytes raise anything: ValueError, KeyError, struct.error...
            bad = as_bad(error, blob, info.format)
            is_truncated = info.path == "vips" and info.format == "PNG" and b"IEND" not in bytes(blob[-64:])
            return Bad("truncated", bad.detail) if is_truncated else bad

    def _through_kernel(self, blob: bytes, info: ImageInfo, box: Box, size: tuple[int, int]) -> np.ndarray | Bad:
        assert self._native is not None
        header = Header(info.height, info.width, "JPEG")
        windows = Windows(np.array([box], float), _NO_FLIP, np.array([size], np.int64))
        out = np.empty((1, *size, 3), np.uint8)
        (bad,) = self._native.decode(Request([blob], [header], windows, self._filter), out, _NEVER)
        if bad is not None:
            return bad
        if info.icc == "none":
            return out[0]
        profile = profile_of(read_markers(blob).profile, info.mode)
        if profile.transform is None:
            return out[0]
        image = Image.fromarray(np.ascontiguousarray(out[0, :, :, 0]) if info.mode == "L" else out[0])
        return np.array(profile.converted(image))

    def _through_vips(self, blob: bytes, info: ImageInfo, box: Box, size: tuple[int, int]) -> np.ndarray | Bad:
        if info.format == "PNG" and not png_intact(blob):
            return Bad("corrupt", "a checksum of the pixel data is wrong")
        profile = _profile(OPEN[info.format](io.BytesIO(blob), ""))
        flat = flattener(info.alpha, profile, self._op.matte)
        rows = libvips().StripReader(blob, *info.stored)
        displayed_shape = info.height, info.width
        small = scale_strips(
            lambda top, count: flat(rows(top, count)), info.stored, stored_box(info.orientation, box, displayed_shape),
            displayed_size(info.orientation, size), self._filter,
        )  # fmt: skip
        rows.finish()
        return _upright(small, NONE if converts_first(info.alpha, profile) else profile, info.orientation)

    def _through_pillow(self, blob: bytes, box: Box, size: tuple[int, int]) -> np.ndarray | Bad:
        (header,) = self._pillow.probe([blob])
        if isinstance(header, Bad):
            return header
        if header.format == "PNG" and not png_intact(blob):
            return Bad("corrupt", "a checksum of the pixel data is wrong")
        image, orientation = header.handle.take(blob), header.handle.orientation
        top, left, height, width = stored_box(orientation, box, (header.height, header.width))
        size = displayed_size(orientation, size)
        shrink, profile = 1, _profile(image)
        if header.format == "JPEG" and not profile.linear and not self._full:
            shrink = dct_denominator((height, width), size, self._filter)
            image.draft(image.mode, (image.width // shrink, image.height // shrink))
        box = (top / shrink, left / shrink, height / shrink, width / shrink)
        image.load()
        if header.format == "PNG" and "transparency" in image.info:
            image.info["transparency"] = _eight_bit_key(image.info["transparency"], blob)
        alpha = image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info
        if image.mode in ("RGB", "L") and not alpha and not profile.linear:
            small = resampled(image, box, size, self._filter)
        else:
            flat = flattener(alpha, profile, self._op.matte, 12 if _twelve_bits(image) else 16)
            small = scale_strips(
                lambda top, count: flat(image.crop((0, top, image.width, top + count))),
                (image.height, image.width), box, size, self._filter,
            )  # fmt: skip
        return _upright(small, NONE if converts_first(alpha, profile) else profile, orientation)


def _upright(small: Image.Image, profile: Profile, orientation: int) -> np.ndarray:
    """Convert a stored image in the profile's colors to displayed orientation and sRGB."""
    return np.ascontiguousarray(displayed(orientation, np.asarray(profile.converted(small))))
