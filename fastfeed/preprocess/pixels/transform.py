"""Decodes, crops, scales and encodes one image; equal bytes and recipes give equal results."""

from __future__ import annotations

import hashlib
import io
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.lib import format as npy

# imported here, as Pillow would import them at the first file
from PIL import Image, JpegImagePlugin, PngImagePlugin, WebPImagePlugin  # noqa: F401

from fastfeed.decode.base import DECLINED, DecodeFailure
from fastfeed.decode.pillow import OPEN
from fastfeed.preprocess.model.condition import UNKNOWN, SampleValues, parse_condition
from fastfeed.preprocess.model.image_recipe import Encoding, Size
from fastfeed.preprocess.model.recipe import Recipe
from fastfeed.preprocess.model.record import ProcessedImage
from fastfeed.preprocess.model.task import MemoryLimitError, TaskContext
from fastfeed.preprocess.pixels.decode import NEVER, Rasterizer, cost
from fastfeed.preprocess.pixels.geometry import (
    OutputGeometry,
    limit_error,
    output_error,
    output_geometry,
)
from fastfeed.preprocess.pixels.image_info import ImageInfo, image_info


class Transformer:
    """Transforms a file's bytes into a ProcessedImage, or a failure. Thread-safe.

    With `keep_small`, a file is passed through, with its metadata, if every reader decodes it as it
    would a new file: it has the requested format and size, is upright, 8-bit RGB without
    transparency, in sRGB or without a profile, a single image. All pixels are decoded first: a PNG
    with its checksums, a JPEG by the native extension and by Pillow, which must agree, as Pillow
    alone reads damaged ones.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._scaling = recipe.scaling
        self._encoding = recipe.encoding
        self._limits = recipe.limits
        self._condition = parse_condition(recipe.limits.where) if recipe.limits.where else None
        self._rasterizer = Rasterizer(
            recipe.scaling.matte,
            recipe.scaling.filter,
            max_pixels=recipe.limits.max_pixels,
            full_decode=recipe.scaling.full_decode,
        )
        self._native = self._rasterizer.native

    def __call__(
        self, blob: bytes, context: TaskContext, known: SampleValues = UNKNOWN
    ) -> ProcessedImage | DecodeFailure:
        """Reserves memory with `context.room` once, for everything that this image needs.

        known: values that decide `Limits.where` together with the file's header.
        """
        try:
            return self._process(blob, context, known)
        except MemoryLimitError as error:
            return DecodeFailure("oom", str(error))
        except MemoryError:
            return DecodeFailure("oom", "the system has no more memory")

    def _process(
        self, blob: bytes, context: TaskContext, known: SampleValues
    ) -> ProcessedImage | DecodeFailure:
        start = time.perf_counter()
        info = image_info(blob, self._limits.max_pixels)
        if isinstance(info, DecodeFailure):
            return info
        if error := limit_error(self._limits, info.format, info.height, info.width):
            return error
        if self._condition is not None:
            known = known.with_file(info.height, info.width, len(blob), info.format)
            if dropped := self._condition.failure(known):
                return dropped
        geometry = output_geometry(self._scaling, info.height, info.width)
        if error := output_error(geometry, self._encoding.image, self._limits.max_pixels):
            return error
        digest = hashlib.sha256(blob).hexdigest()
        header_seconds = time.perf_counter() - start
        seconds = {"decode": 0.0, "resize": 0.0, "encode": 0.0}
        with context.room(self._memory_needed(blob, info, geometry)):
            start = time.perf_counter()
            output = (
                self._pass_through(blob, info, geometry)
                or self._recode(blob, info, geometry, seconds)
                or self._pixels(blob, info, geometry, seconds)
            )
            decoded = time.perf_counter()
            if isinstance(output, DecodeFailure):
                return output
            image = output if isinstance(output, bytes) else encode(output, self._encoding)
            end = time.perf_counter()
        facts = _facts(blob, info, geometry) | {"sha256": digest, "kept": output is blob}
        if fields := self._recipe.metadata.exif:
            facts["columns"] = exif_columns(blob, info.format, fields)
        seconds["decode"] = header_seconds + decoded - start - sum(seconds.values())
        seconds["encode"] += end - decoded
        return ProcessedImage(image, self._encoding.extension, *geometry.canvas, facts, seconds)

    def _memory_needed(self, blob: bytes, info: ImageInfo, geometry: OutputGeometry) -> int:
        """Upper bound of the memory needed, bytes."""
        scaling = self._scaling
        how = scaling.filter, scaling.full_decode
        need = cost(info, len(blob), geometry.box, geometry.size, *how)
        need += working_bytes(self._encoding, geometry.canvas)
        return need + (3 * geometry.canvas[0] * geometry.canvas[1] if geometry.padded else 0)

    def _pass_through(
        self, blob: bytes, info: ImageInfo, geometry: OutputGeometry
    ) -> bytes | DecodeFailure | None:
        """The file unchanged; None if it must be re-encoded."""
        size = info.height, info.width
        is_same = geometry.box == (0, 0, *size) and geometry.size == geometry.canvas == size
        keeps = self._encoding.keep_small and is_same
        if not keeps or not can_pass_through(blob, info, self._encoding.image):
            return None
        if info.format == "JPEG":
            assert self._native is not None
            request = self._rasterizer.request(blob, info, geometry.box, geometry.size)
            pixels = np.empty((1, *geometry.size, 3), np.uint8)
            (bad,) = self._native.decode(request, pixels, NEVER)
            if bad is None:
                return blob if decodes_alike(blob, pixels[0]) else None
            return None if bad.reason in DECLINED else bad
        pixels = self._rasterizer.pixels(blob, info, geometry.box, geometry.size)
        return pixels if isinstance(pixels, DecodeFailure) else blob

    def _recode(
        self, blob: bytes, info: ImageInfo, geometry: OutputGeometry, seconds: dict[str, float]
    ) -> bytes | DecodeFailure | None:
        """Decode, scale and encode in one native call; None if that is not possible."""
        fits = info.path == "native" and not info.converts and not geometry.padded
        if not fits or self._encoding.image != "jpeg":
            return None
        assert self._native is not None
        how = self._encoding.quality, self._encoding.subsampling == "4:2:0", self._encoding.optimize
        times = np.zeros((1, 2), np.int64)
        request = self._rasterizer.request(blob, info, geometry.box, geometry.size)
        (file,) = self._native.recode(request, *how, NEVER, times)
        seconds["resize"] += times[0, 0] / 1e9
        seconds["encode"] += times[0, 1] / 1e9
        return None if isinstance(file, DecodeFailure) and file.reason in DECLINED else file

    def _pixels(
        self, blob: bytes, info: ImageInfo, geometry: OutputGeometry, seconds: dict[str, float]
    ) -> np.ndarray | DecodeFailure:
        """Pixels of the whole canvas."""
        pixels = self._rasterizer.pixels(blob, info, geometry.box, geometry.size, seconds)
        if isinstance(pixels, DecodeFailure) or not geometry.padded:
            return pixels
        canvas = np.empty((*geometry.canvas, 3), np.uint8)
        canvas[:] = self._scaling.fill
        top, left = geometry.at
        canvas[top : top + geometry.size[0], left : left + geometry.size[1]] = pixels
        return canvas


def _facts(blob: bytes, info: ImageInfo, geometry: OutputGeometry) -> dict[str, Any]:
    return {
        "format": info.format,
        "source_height": info.height,
        "source_width": info.width,
        "source_bytes": len(blob),
        "orientation": info.orientation,
        "icc": info.icc,
        "mode": info.mode,
        "box": [round(edge, 2) for edge in geometry.box],
    }


_MAKE = 0x010F
_MODEL = 0x0110
_DATE = 0x0132
_EXIF = 0x8769
_GPS = 0x8825
# of the EXIF folder
_ORIGINAL = 0x9003
_OFFSET = 0x9011
_LENS_MAKE = 0xA433
_LENS = 0xA434
_SIGNS = {"N": 1, "S": -1, "E": 1, "W": -1}
_TIME = re.compile(r"(\d{4}):(\d\d):(\d\d) (\d\d:\d\d:\d\d)")
_ZONE = re.compile(r"[+-]\d\d:\d\d|Z")
_MAX_TEXT = 200  # characters


def exif_columns(blob: bytes, format: str, fields: Sequence[str]) -> dict[str, Any]:
    """EXIF fields as `exif_time` and so on, None if absent. Never raises.

    Times are ISO 8601, with a zone if the camera recorded one; gps is [latitude, longitude] in
    degrees, north and east positive.
    """
    try:
        image = OPEN[format](io.BytesIO(blob), "")  # of TIFFs, folders are read from the open file
        exif = image.getexif()
    except Exception:  # hostile bytes make plugins raise anything
        exif = {}
    columns = dict.fromkeys(f"exif_{field}" for field in fields)
    for field in fields:
        with suppress(Exception):  # a damaged folder or field, such as a fraction of 0
            columns[f"exif_{field}"] = _READERS[field](exif)
    return columns


def _time(exif: Any) -> str | None:
    details = exif.get_ifd(_EXIF)
    match = _TIME.match(str(details.get(_ORIGINAL) or exif.get(_DATE) or ""))
    if not match:
        return None
    zone = _ZONE.fullmatch(_text(details.get(_OFFSET)) or "")
    return f"{match[1]}-{match[2]}-{match[3]}T{match[4]}" + (zone[0] if zone else "")


def _gps(exif: Any) -> list[float] | None:
    place = exif.get_ifd(_GPS)
    latitude = _degrees(place[1], place[2])
    longitude = _degrees(place[3], place[4])
    is_valid = abs(latitude) <= 90 and abs(longitude) <= 180  # false for NaN
    return [round(latitude, 7), round(longitude, 7)] if is_valid else None


def _degrees(letter: Any, parts: Any) -> float:
    degrees, minutes, seconds = (float(part) for part in parts)
    return _SIGNS[str(letter).strip("\0 ").upper()] * (degrees + minutes / 60 + seconds / 3600)


def _named(exif: Any, make: int, model: int) -> str | None:
    """Make and model of a camera; the model alone if it begins with the make."""
    maker = _text(exif.get(make))
    name = _text(exif.get(model))
    if maker and name and not name.lower().startswith(maker.split()[0].lower()):
        return f"{maker} {name}"
    return name or maker


def _text(value: Any) -> str | None:
    """A text as one printable line."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = value if isinstance(value, str) else ""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text[:_MAX_TEXT] or None


_READERS: dict[str, Callable[[Any], Any]] = {
    "time": _time,
    "camera": lambda exif: _named(exif, _MAKE, _MODEL),
    "lens": lambda exif: _named(exif.get_ifd(_EXIF), _LENS_MAKE, _LENS),
    "gps": _gps,
}
_PNG_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
_ANIMATED_WEBP = 0x02  # flag in VP8X
_ROUNDING = 3  # levels of 255
_STRIP = 256  # rows compared at once
_HEAD = 1 << 16  # bytes of a JPEG to search for a multi-picture index; no segment is longer


def can_pass_through(blob: bytes, info: ImageInfo, image: str) -> bool:
    """True if the headers allow passing a file through as `image` (of recipe.IMAGES)."""
    kind = _KINDS.get(info.format)
    if kind is None or kind[0] != image:
        return False
    plain = info.orientation == 1 and info.mode == "RGB" and not info.alpha
    return plain and info.icc in ("none", "sRGB") and kind[1](blob, info)


def decodes_alike(blob: bytes, pixels: np.ndarray) -> bool:
    """True if Pillow decodes a JPEG to the native extension's pixels, uint8 (height, width, 3)."""
    height, width = pixels.shape[:2]
    try:
        image = JpegImagePlugin.JpegImageFile(io.BytesIO(blob), "")  # as other programs open it
        if image.mode != "RGB" or image.size != (width, height):
            return False
        for top in range(0, height, _STRIP):
            mine = pixels[top : top + _STRIP]
            other = np.asarray(image.crop((0, top, width, top + len(mine))))
            if (np.maximum(mine, other) - np.minimum(mine, other)).max() > _ROUNDING:
                return False
        return True
    except Exception:  # hostile bytes make plugins raise anything
        return False


def _jpeg(blob: bytes, info: ImageInfo) -> bool:
    """Huffman-coded JPEGs, which native code decodes; it detects more damage than Pillow."""
    is_whole = info.path == "native" and blob[-2:] == b"\xff\xd9"
    return is_whole and b"MPF\x00" not in bytes(blob[:_HEAD])


def _png(blob: bytes, info: ImageInfo) -> bool:
    """Other readers may fail on texts and profiles that are skipped here."""
    if blob[-12:] != _PNG_END or b"acTL" in bytes(blob[: blob.find(b"IDAT")]):
        return False
    try:
        PngImagePlugin.PngImageFile(io.BytesIO(blob)).load()
    except Exception:  # hostile bytes make plugins raise anything
        return False
    return True


def _webp(blob: bytes, info: ImageInfo) -> bool:
    animated = blob[12:16] == b"VP8X" and blob[20] & _ANIMATED_WEBP
    return not animated and int.from_bytes(blob[4:8], "little") + 8 == len(blob)


_KINDS: dict[str, tuple[str, Callable[[bytes, ImageInfo], bool]]] = {
    "JPEG": ("jpeg", _jpeg),
    "PNG": ("png", _png),
    "WEBP": ("webp", _webp),
}
LOSSLESS = 100  # WebP quality that selects lossless compression
_PNG_LEVEL = 3  # zlib level: 6 takes 2.4 times as long for 2.6 % fewer bytes on images
_WEBP_METHOD = 4  # of 0..6, libwebp's default: 6 takes three times as long for 1 % fewer bytes
# quality means effort; method 4: 1.5 times as long, 1.7 % fewer bytes
_WEBP_LOSSLESS = {"method": 2, "quality": 75}
_WORKING = {"raw": 7, "jpeg": 7, "png": 8, "webp": 30}  # bytes per pixel for noise, the worst case


def encode(pixels: np.ndarray, encoding: Encoding) -> bytes:
    """Encode uint8 pixels, shape (height, width, 3), with explicit parameters and no metadata."""
    file = io.BytesIO()
    pixels = np.ascontiguousarray(pixels)
    if encoding.image == "raw":
        npy.write_array(file, pixels, version=(1, 0), allow_pickle=False)
    else:
        Image.fromarray(pixels).save(file, **_options(encoding))
    return file.getvalue()


def working_bytes(encoding: Encoding, size: Size) -> int:
    """Upper bound of the memory for encoding, with the file, without the pixels."""
    per_pixel = _WORKING[encoding.image]
    if encoding.image == "webp" and encoding.quality == LOSSLESS:
        per_pixel = 45
    elif encoding.image == "jpeg" and encoding.optimize:
        per_pixel += 6  # its coefficients
    return per_pixel * size[0] * size[1]


def _options(encoding: Encoding) -> dict[str, Any]:
    if encoding.image == "png":
        return {"format": "PNG", "compress_level": _PNG_LEVEL, "optimize": False}
    if encoding.image == "webp":
        lossless = encoding.quality == LOSSLESS
        how = {"method": _WEBP_METHOD, "quality": encoding.quality}
        return {"format": "WEBP", "lossless": lossless} | (_WEBP_LOSSLESS if lossless else how)
    sizes = {"quality": encoding.quality, "subsampling": encoding.subsampling}
    return {"format": "JPEG", "optimize": encoding.optimize, "progressive": False, **sizes}
