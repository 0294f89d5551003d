"""Headers of image files: facts, JPEG markers, and the decoder to use."""

from __future__ import annotations

import functools
import importlib
import re
from dataclasses import dataclass, field
from typing import Any

from fastfeed.decode.base import DECLINED, DecodeFailure, Header
from fastfeed.decode.native import held_bytes, is_built, markers
from fastfeed.decode.orientation import displayed_size
from fastfeed.decode.pillow import PillowEngine, failure_from_error
from fastfeed.errors import MissingExtra
from fastfeed.ops.decode import Decode
from fastfeed.preprocess.pixels.color import NONE, Profile, read_profile, signaled
from fastfeed.preprocess.pixels.strips import color_model, converts_first

LARGE = 16_000_000  # pixels; larger files are decoded in strips
_PNG_COLORS = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}  # by the header's color type
_DEEP = {"RGB": "RGB;16", "RGBA": "RGBA;16", "L": "I;16", "LA": "LA;16"}
# compressions: none, LZW, deflate, PackBits, deflate's old number
_PLAIN_TIFF = (1, 5, 8, 32_773, 32_946)


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """Facts from the header of an image file."""

    format: str  # detected from the bytes: "JPEG", "PNG", ...
    height: int  # pixels, as displayed
    width: int
    orientation: int  # EXIF, 1..8
    mode: str  # "RGB", "L", "CMYK", "P", ...; with 16 bits "I;16", "RGB;16", "RGBA;16"
    icc: str  # "none", "sRGB", "Display P3", "BT.2020 PQ", ...; "damaged" (ignored)
    path: str  # decoder to use: "native", "vips" or "pillow"
    progressive: bool = False
    alpha: bool = False
    converts: bool = False  # the profile changes colors
    linear: bool = False  # colors are converted before scaling
    coded_pixels: int = 0  # of an AVIF, before it is cut to its clean aperture
    # coefficients per pixel that Pillow keeps in memory, of a JPEG with several scans
    held: float = 0.0
    # that the native extension keeps, shrunk by 1, 2, 4 and 8
    held_bytes: tuple[int, int, int, int] = (0, 0, 0, 0)

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


def image_info(blob: bytes, max_pixels: int = 300_000_000) -> ImageInfo | DecodeFailure:
    """Parse a file's header; a failure if the file is refused. Never raises for any content."""
    if is_built() and bytes(blob[:3]) == b"\xff\xd8\xff":
        header = markers(blob, max_pixels)
        if isinstance(header, DecodeFailure):
            return header if header.reason not in DECLINED else _pillow_info(blob, max_pixels)
        jpeg = read_markers(blob)
        mode = "L" if header.components == 1 else "RGB"
        profile = read_profile(jpeg.profile, mode)
        return ImageInfo(
            "JPEG",
            header.height,
            header.width,
            header.orientation,
            mode,
            profile.name,
            "pillow" if profile.linear else "native",
            progressive=jpeg.progressive,
            converts=profile.transform is not None,
            linear=profile.linear,
            held=jpeg.held(),
            held_bytes=held_bytes(blob),
        )
    return _pillow_info(blob, max_pixels)


def _pillow_info(blob: bytes, max_pixels: int) -> ImageInfo | DecodeFailure:
    """Read the headers of an image with Pillow."""
    (header,) = PillowEngine(Decode(max_pixels=max_pixels)).probe([blob])
    if isinstance(header, DecodeFailure):
        return header
    image = header.handle.look(blob)
    orientation = header.handle.orientation
    try:
        mode = _mode(image, blob)
        alpha = has_alpha(image)
        profile = opened_profile(image)
        jpeg = read_markers(blob) if header.format == "JPEG" else None
        path = _path(image, header, converts_first(alpha, profile), blob, max_pixels)
    except Exception as error:  # hostile bytes make plugins raise anything
        return failure_from_error(error, blob, header.format)
    return ImageInfo(
        header.format,
        header.height,
        header.width,
        orientation,
        mode,
        profile.name,
        path,
        converts=profile.transform is not None,
        linear=profile.linear,
        progressive=bool(jpeg and jpeg.progressive),
        alpha=alpha,
        coded_pixels=getattr(image, "coded_pixels", 0),
        held=jpeg.held() if jpeg else 0.0,
        held_bytes=held_bytes(blob) if path == "native" else (0, 0, 0, 0),
    )


def has_alpha(image: Any) -> bool:
    """True if an opened image has transparent pixels."""
    return image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info


def _path(image: Any, header: Header, converts_first: bool, blob: bytes, max_pixels: int) -> str:
    """Decoder of a file that Pillow opened."""
    is_native = header.format in ("PNG", "WEBP", "TIFF") and is_built() and not converts_first
    if is_native and not isinstance(markers(blob, max_pixels), DecodeFailure):
        return "native"
    large = header.height * header.width >= LARGE
    return "vips" if large and _in_strips(image, header.format, blob) else "pillow"


def _mode(image: Any, blob: bytes) -> str:
    """Pillow's mode, with 16 bits where Pillow does not tell."""
    if image.format == "PNG" and blob[24] == 16:
        return _DEEP[_PNG_COLORS[blob[25]]]
    mode: str = image.mode
    if image.format == "HEIC":
        is_deep = image.info["bit_depth"] > 8
    else:
        is_deep = image.format == "TIFF" and set(_tag(image, 258)) == {16}
    return _DEEP.get(mode, mode) if is_deep else mode


def opened_profile(image: Any) -> Profile:
    """Profile of an opened image, from "icc_profile" and "signal" in its `info`."""
    model = color_model(image.mode)
    if "signal" in image.info and model in ("L", "RGB"):
        profile = signaled(*image.info["signal"], mode=model)
        if profile.transform or profile.name == "sRGB" or "icc_profile" not in image.info:
            return profile
    if "icc_profile" not in image.info or model == "LAB":
        return NONE
    icc = image.info["icc_profile"]
    # a TIFF's tag may be of any type
    return read_profile(icc if isinstance(icc, bytes) else b"", model)


def _tag(image: Any, number: int, default: int = 1) -> tuple[int, ...]:
    value = image.tag_v2.get(number, default)
    return value if isinstance(value, tuple) else (value,)


def _in_strips(image: Any, format: str, blob: bytes) -> bool:
    """True if libvips decodes this file to the same pixels as Pillow."""
    if format == "PNG":
        is_plain = not image.info.get("interlace")
    elif format == "WEBP":
        # also decoded in full, but held once instead of four times
        is_plain = not getattr(image, "is_animated", False)
    elif format == "TIFF":
        bits = _tag(image, 258)
        colors = _tag(image, 262)
        extra = _tag(image, 338, 0)
        shape = {"L": 1, "I;16": 1, "I;16B": 1, "RGB": 3, "RGBA": 4}.get(image.mode)
        is_plain = (
            shape is not None
            and len(set(bits)) == 1
            and bits[0] in (8, 16)
            and _tag(image, 277) == (shape,)
            and colors == ((1,) if shape == 1 else (2,))
            and extra == ((2,) if shape == 4 else (0,))
            and _tag(image, 284) == (1,)
            and _tag(image, 259)[0] in _PLAIN_TIFF
            and set(_tag(image, 339)) == {1}
        )
    else:
        is_plain = False
    vips = libvips() if is_plain else None
    if vips is None:
        return False
    try:
        vips.StripReader(blob, image.height, image.width)
    except OSError:
        return False
    return True


_ICC = b"ICC_PROFILE\x00"
_NO_LENGTH = frozenset([0x00, 0x01, *range(0xD0, 0xD9)])
# like libjpeg, skip anything up to the next marker
_MARKER = re.compile(rb"\xff+[^\xff]", re.DOTALL)
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


@dataclass(slots=True)
class JpegMarkers:
    """Markers before the first scan."""

    progressive: bool = False
    several_scans: bool = False  # all coefficients are kept until the last scan has been read
    # (columns, rows) of each component
    sampling: list[tuple[int, int]] = field(default_factory=list)
    # of the profile: number, count, bytes
    chunks: list[tuple[int, int, bytes]] = field(default_factory=list)

    def held(self) -> float:
        """Coefficients per pixel that libjpeg keeps of a file with several scans: 1.5 for 4:2:0."""
        if not self.several_scans:
            return 0.0
        across = max((columns for columns, _ in self.sampling), default=1)
        down = max((rows for _, rows in self.sampling), default=1)
        return sum(columns * rows for columns, rows in self.sampling) / max(across * down, 1)

    @property
    def profile(self) -> bytes | None:
        """The ICC profile, joined from its chunks (ICC.1, B.4); b"" if one is missing."""
        if not self.chunks:
            return None
        chunks = sorted(self.chunks, key=lambda chunk: chunk[0])
        if [number for number, _, _ in chunks] != list(range(1, chunks[0][1] + 1)):
            return b""
        return b"".join(content for _, _, content in chunks)


def read_markers(blob: bytes) -> JpegMarkers:
    """Walk the segments as the native extension does; a broken segment ends the walk."""
    result = JpegMarkers()
    at = 2
    size = len(blob)
    while (marker_match := _MARKER.search(blob, at)) and marker_match.end() + 2 <= size:
        at = marker_match.end()
        marker = blob[at - 1]
        if marker in _NO_LENGTH:
            continue
        length = int.from_bytes(blob[at : at + 2], "big")
        if marker == 0xD9 or length < 2 or at + length > size:
            return result
        if marker == 0xDA:
            result.several_scans = result.progressive or blob[at + 2] < len(result.sampling)
            return result
        if marker in _FRAMES and length >= 8:
            result.progressive = marker in (0xC2, 0xC6, 0xCA, 0xCE)
            parts = blob[at + 8 : at + length]
            result.sampling = [(parts[k] >> 4, parts[k] & 15) for k in range(1, len(parts), 3)]
        elif marker == 0xE2 and length > 16 and blob[at + 2 : at + 14] == _ICC:
            result.chunks.append((blob[at + 14], blob[at + 15], bytes(blob[at + 16 : at + length])))
        at += length
    return result
