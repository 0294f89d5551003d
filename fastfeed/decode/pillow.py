"""Decodes every format that Pillow supports, in our threads.

Pillow releases the GIL while it decodes and scales.

JPEGs are shrunk in the DCT domain (`draft`) as far as the window allows. Formats are chosen by
content and opened by their plugin directly, so no other plugin sees the bytes and no process-wide
limit of Pillow is touched.
"""

from __future__ import annotations

import io
import struct
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from PIL import BmpImagePlugin, Image, ImageFile, PpmImagePlugin, WebPImagePlugin

from fastfeed.decode.base import DecodeFailure, Header, Request, Stop, dct_denominator
from fastfeed.decode.deep import deep_values, fitted
from fastfeed.decode.formats.avif import AvifFile
from fastfeed.decode.formats.exif import stored_orientation
from fastfeed.decode.formats.exr import ExrFile, open_exr
from fastfeed.decode.formats.gif import GifFile
from fastfeed.decode.formats.heic import HeicFile
from fastfeed.decode.formats.jpeg import JpegFile
from fastfeed.decode.formats.jpeg2000 import Jpeg2000File
from fastfeed.decode.formats.npy import NpyFile, open_npy
from fastfeed.decode.formats.png import PngFile, png_intact
from fastfeed.decode.formats.tiff import NumbersTiff, TiffFile
from fastfeed.decode.memory_limit import DECODING, MemoryLimit, Oversized, give_back, with_memory
from fastfeed.decode.orientation import displayed, displayed_size, stored_box, swaps
from fastfeed.decode.pillow_warnings import current_name, named, tell_current
from fastfeed.decode.pixels import cut, flipped, resampled, rows_read
from fastfeed.decode.sniff import content_kind, ends_early, sniff
from fastfeed.errors import ConfigError
from fastfeed.ops.decode import Decode
from fastfeed.runtime.placement import lacks_memory
from fastfeed.system.processes import after_fork

OPEN: dict[str, Any] = {
    "JPEG": JpegFile,
    "PNG": PngFile,
    "WEBP": WebPImagePlugin.WebPImageFile,
    "GIF": GifFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "TIFF": TiffFile,
    "JPEG2000": Jpeg2000File,
    "AVIF": AvifFile,
    "PPM": PpmImagePlugin.PpmImageFile,
    "HEIC": HeicFile,
    "NPY": open_npy,
    "OpenEXR": open_exr,
}
# where all bits of a file are kept
_NUMBERS = OPEN | {"TIFF": NumbersTiff, "NPY": NpyFile, "OpenEXR": ExrFile}
_NUMBER_BYTES = 32  # per pixel of such a file: as stored, as asked for, and a copy of floats
# of a progressive JPEG; each costs a pass over all blocks, even if it has few bytes
_MAX_SCANS = 500
# beyond both, not an image: deflate cannot reach 1:1032 bytes
_DENSE_PIXELS = 16_000_000
_PIXELS_PER_BYTE = 4_000
# of a decoded image: above this, memory kept by each thread's allocator is returned
_LARGE_BYTES = 32 << 20
_CROP_PIXELS = 80_000_000  # Pillow's crop warns above 89 MP

# by number of channels
_MODES = {
    1: "L",
    3: "RGB",
    4: "RGBA",
}

_FILTERS = threading.Lock()
# the thread that holds it is not in the child
after_fork(lambda: globals().update(_FILTERS=threading.Lock()))
T = TypeVar("T")

_BOMB_WORDS = "security limit exceeded"  # of libheif: a picture that is larger than its header says
_UNSUPPORTED_WORDS = (
    "unsupported",
    "not available",
    "cannot handle",
    "unknown pixel mode",
    "unknown raw mode",
    "unknown nclx",  # of libheif: numbers of colors that it does not know
    "unknown color profile type",  # of libheif, too
    "has not been built in",  # of libheif: a picture coded otherwise than in HEVC
    "conversion from yuv failed",  # of libavif: such a matrix with this subsampling, or range
)
_TRUNCATED_WORDS = (
    "truncated",
    "unexpected end",
    "only got",
    "not enough image data",
    "buffer is not large enough",
    "no more images",
)


class Unsupported(Exception):
    """An image that cannot be converted to RGB."""


class Opened:
    """An opened file: the plugin's image, until it is decoded.

    If it were kept longer, it would keep all of its pixels.
    """

    __slots__ = ("_image", "_open", "orientation")

    def __init__(self, open: Callable[..., Any], image: Any, orientation: int) -> None:
        self._open = open
        self._image = image
        self.orientation = orientation

    def look(self, blob: Any) -> Any:
        """The image, to read its properties."""
        if self._image is None:
            self._image = self._open(io.BytesIO(blob), "")
        return self._image

    def take(self, blob: Any) -> Any:
        """The image, to be decoded once; the next call opens it again."""
        image = self.look(blob)
        self._image = None
        return image


class PillowEngine:
    """JPEG, PNG, WebP, GIF, BMP, TIFF, JPEG 2000, AVIF and PPM to RGB; HEIC with libheif."""

    name = "pillow"

    def __init__(self, op: Decode, memory: MemoryLimit | None = None) -> None:
        if ImageFile.LOAD_TRUNCATED_IMAGES:
            raise ConfigError(
                "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is True, so truncated files would pass as half"
                " gray images; set it to False (a package you imported has set it)"
            )
        self._op = op
        self._formats = OPEN if op.dtype == "uint8" else _NUMBERS
        self._memory = memory or DECODING

    def probe(self, blobs: Sequence[Any]) -> list[Header | DecodeFailure]:
        return [self._probe(blob) for blob in blobs]

    def decode(self, request: Request, out: np.ndarray, stop: Stop) -> list[DecodeFailure | None]:
        results: list[DecodeFailure | None] = [None] * len(request)
        windows = request.windows
        for i, (blob, header) in enumerate(zip(request.blobs, request.headers, strict=True)):
            if stop.is_set():
                break
            try:
                if header.format == "PNG" and not png_intact(blob):
                    raise OSError("a checksum of the pixel data is wrong")
                box = tuple(windows.boxes[i].tolist())
                flip = windows.flips[i]
                decode = partial(
                    unwarned, partial(self._decode, header, blob, box, flip, request.filter, out[i])
                )
                with named(header.name):
                    with_memory(decode, partial(_needed, header, blob))
            # decoders may raise anything for malicious bytes: ValueError, KeyError, struct.error...
            except Exception as error:
                out[i] = 0
                results[i] = failure_from_error(error, blob, header.format)
        return results

    def _probe(self, blob: bytes) -> Header | DecodeFailure:
        if not len(blob):
            return DecodeFailure("empty")
        format = sniff(blob)
        if format is None:
            return DecodeFailure("not_image", f"it is {content_kind(blob)}")
        if format not in self._formats:
            return DecodeFailure("unsupported_format", format)
        try:
            open = self._formats[format]
            opening = partial(unwarned, lambda: open(io.BytesIO(blob), ""))
            image = with_memory(opening, lambda: len(blob))
            height = image.height
            width = image.width
            orientation = stored_orientation(blob, format, image.info)
        except Exception as error:  # as in decode
            return failure_from_error(error, blob, format)
        if height < 1 or width < 1:
            return DecodeFailure("corrupt", f"{width}x{height} pixels")
        pixels = max(height * width, getattr(image, "coded_pixels", 0))
        if pixels > self._op.max_pixels:
            return DecodeFailure(
                "bomb",
                f"{width}x{height} pixels, the limit is {self._op.max_pixels}:"
                " Decode(max_pixels=...)",
            )
        if pixels > max(_DENSE_PIXELS, _PIXELS_PER_BYTE * len(blob)):
            return DecodeFailure(
                "bomb",
                f"{width}x{height} pixels in {len(blob)} bytes, {_PIXELS_PER_BYTE} per byte is the"
                " limit",
            )
        if (
            format == "JPEG"
            and "progressive" in image.info
            and bytes(blob).count(b"\xff\xda") > _MAX_SCANS
        ):
            return DecodeFailure(
                "bomb", f"more than {_MAX_SCANS} scans, each of which costs a pass over all pixels"
            )
        shown = displayed_size(orientation, (height, width))
        return Header(*shown, format, Opened(open, image, orientation), current_name())

    def _decode(
        self,
        header: Header,
        blob: Any,
        box: tuple[float, ...],
        flip: np.ndarray,
        filter: str,
        out: np.ndarray,
    ) -> None:
        image = header.handle.take(blob)
        orientation = header.handle.orientation
        if self._op.dtype != "uint8":
            with self._memory.reserve(_NUMBER_BYTES * header.height * header.width):
                values = displayed(orientation, self._numbers(image, blob))
                cut(values, box, filter, flip, out)
            return
        # hand the bytes over at once: every piece costs a turn with the GIL
        image.decodermaxblock = len(blob)
        top, left, height, width = stored_box(orientation, box, (header.height, header.width))  # type: ignore[arg-type]
        size = out.shape[1::-1] if swaps(orientation) else out.shape[:2]
        shrink = 1
        if header.format == "JPEG":
            shrink = dct_denominator((height, width), size, filter)
            mode = "L" if self._op.channels == 1 and image.mode == "RGB" else image.mode
            image.draft(mode, (image.width // shrink, image.height // shrink))
        need = _bytes(image, header)
        with self._memory.reserve(need):
            image.load()
            box = (top / shrink, left / shrink, height / shrink, width / shrink)
            image, box = _cropped(image, box, size, filter)
            image = plain(image, self._op.matte, self._op.channels)
            small = resampled(image, box, size, filter)
        mode = _MODES[self._op.channels]
        if small.mode != mode:
            small = small.convert(mode)
        pixels = displayed(orientation, np.asarray(small)).reshape(out.shape)
        out[:] = flipped(pixels, flip)
        if need > _LARGE_BYTES:
            del image
            give_back()

    def _numbers(self, image: Any, blob: Any) -> np.ndarray:
        """All numbers of an opened image, as stored: (height, width, channels)."""
        values = deep_values(image, blob)
        if values is None:
            image.load()
            pixels = np.asarray(plain(image, self._op.matte, self._op.channels))
            values = pixels.reshape(*pixels.shape[:2], -1)
        return fitted(values, self._op)


def _bytes(image: Any, header: Header) -> int:
    """Peak memory of loading and converting, in bytes.

    Pillow keeps RGB in 4 bytes, and coefficients of progressive JPEGs.
    """
    times = 1 if image.mode in ("RGB", "L") else 3
    if image.format == "PNG" and "transparency" in image.info:  # a color is looked for in NumPy
        times = 5
    if image.format == "HEIC":  # libheif holds its own picture, and the same as RGB
        times = 3 if image.info["bit_depth"] > 8 else max(times, 2)
    need = 5 * max(image.width * image.height, getattr(image, "coded_pixels", 0)) * times
    return need + 6 * header.width * header.height if "progressive" in image.info else need


def _needed(header: Header, blob: Any) -> int:
    return _bytes(header.handle.look(blob), header)


def _cropped(
    image: Any, box: tuple[float, ...], size: tuple[int, ...], filter: str
) -> tuple[Any, tuple[float, ...]]:
    """The pixels that scaling the box reads, if conversion would otherwise go over many more."""
    if image.mode in ("RGB", "L"):
        return image, box
    top, left, height, width = box
    first, last = rows_read(top, height, image.height, size[0], filter)
    start, end = rows_read(left, width, image.width, size[1], filter)
    if (last - first) * (end - start) > min(0.5 * image.width * image.height, _CROP_PIXELS):
        return image, box
    return image.crop((start, first, end, last)), (top - first, left - start, height, width)


def plain(image: Any, matte: tuple[int, int, int], channels: int = 3) -> Any:
    """Convert to 8 bits: RGBA for 4 channels, L for 1; else RGB or L, without transparency."""
    if image.mode == "F":
        raise Unsupported("floating-point samples")
    if image.mode.startswith(
        "I"
    ):  # 16 bits: the high byte. Pillow's own convert() would clip nearly all to white
        wide = np.asarray(image).astype(np.int64)
        if wide.min() < 0 or wide.max() > 65_535:
            raise Unsupported("samples of more than 16 bits")
        image = Image.fromarray((wide >> 8).astype(np.uint8))
    has_alpha = image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info
    if has_alpha or channels == 4:
        # convert("RGB") would show the colors hidden under transparent pixels
        clear = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        if channels == 4:
            return clear
        image = Image.new("RGB", clear.size, matte)
        image.paste(clear, mask=clear.getchannel("A"))
    if image.mode not in ("RGB", "L"):
        image = image.convert("RGB")
    return image.convert("L") if channels == 1 else image


def unwarned(call: Callable[[], T]) -> T:
    """Call it, and if a warning is raised as an error (`python -W error`), again without warnings.

    A feed's output must not depend on warning filters. They belong to the process, hence the lock.
    The first such error is reported, as a warning would be.
    """
    try:
        return call()
    except Warning as warning:
        tell_current(warning)
        with _FILTERS, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()


def failure_from_error(error: Exception, blob: bytes, format: str) -> DecodeFailure:
    """The reason for a plugin's error; the plugin's message is the detail."""
    text = f"{error}".strip()
    text = text if isinstance(error, OSError) or " " in text else f"{type(error).__name__} {text}"
    low = text.lower()
    if isinstance(error, (Image.DecompressionBombError, Oversized)) or _BOMB_WORDS in low:
        return DecodeFailure("bomb", text)
    if lacks_memory(error):
        return DecodeFailure("oom", f"{error}" or "the system has no more memory")
    if isinstance(error, (Unsupported, ImportError)) or any(
        words in low for words in _UNSUPPORTED_WORDS
    ):
        return DecodeFailure("unsupported_format", text)
    if isinstance(error, (EOFError, struct.error)):
        return DecodeFailure("truncated", "ends inside its header")
    if any(words in low for words in _TRUNCATED_WORDS):
        return DecodeFailure("truncated", text)
    return DecodeFailure("truncated" if ends_early(blob, format) else "corrupt", text)
