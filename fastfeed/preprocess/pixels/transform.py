"""Transforms one photograph: decodes, crops, scales and encodes it.

Equal bytes and recipes give equal results.
"""

from __future__ import annotations

import hashlib
import time
from threading import Event
from typing import Any

import numpy as np

from fastfeed.decode.base import DECLINED, Bad, Header, Request
from fastfeed.decode.native import NativeEngine, is_built
from fastfeed.ops.decode import Decode
from fastfeed.ops.program.compile import Windows
from fastfeed.preprocess.model.entry import ProcessedImage
from fastfeed.preprocess.model.recipe import Recipe
from fastfeed.preprocess.model.task import MemoryLimitError, TaskContext
from fastfeed.preprocess.pixels.cost import cost
from fastfeed.preprocess.pixels.decode import Rasterizer
from fastfeed.preprocess.pixels.encode import encode, working_bytes
from fastfeed.preprocess.pixels.exif import exif_columns
from fastfeed.preprocess.pixels.geometry import OutputGeometry, output_error, output_geometry
from fastfeed.preprocess.pixels.image_info import ImageInfo, image_info
from fastfeed.preprocess.pixels.limits import limit_error
from fastfeed.preprocess.pixels.passthrough import can_pass_through, decodes_alike

__all__ = ["Transformer"]

_KERNEL_FILTERS = {"lanczos": "lanczos", "bicubic": "bicubic", "area": "box"}
_NO_FLIP = np.zeros((1, 2), bool)
_NEVER = Event()


class Transformer:
    """`Transformer(recipe)(blob, context)`: a file's bytes to a ProcessedImage, or Bad.

    Never raises for what a file contains. Thread-safe.

    With `keep_small`, a file is passed through unchanged if every reader decodes it as it would a
    new file: it has the requested format and size, is upright, 8-bit RGB without transparency, in
    sRGB or without a profile, a single image; JPEGs use baseline or progressive Huffman coding. All
    pixels are decoded first: a PNG with its checksums, a JPEG by the kernel and by Pillow, which
    must agree (without the kernel no JPEG is passed through, as Pillow silently reads damaged
    ones). A file that is passed through keeps its metadata (EXIF with place and time, ICC, XMP); a
    re-encoded one has none. Gray files are re-encoded as RGB, so that all images have three
    channels.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._scaling, self._encoding, self._limits = recipe.scaling, recipe.encoding, recipe.limits
        scaling, max_pixels, full = (
            self._scaling,
            self._limits.max_pixels,
            self._scaling.full_decode,
        )
        self._rasterizer = Rasterizer(
            scaling.matte, scaling.filter, max_pixels=max_pixels, full_decode=full
        )
        self._filter = _KERNEL_FILTERS[scaling.filter]
        self._kernel = (
            NativeEngine(Decode(scaling.matte, max_pixels), full=full) if is_built() else None
        )

    def __repr__(self) -> str:
        return f"Transformer({self._scaling}, {self._encoding})"

    def __call__(self, blob: bytes, context: TaskContext) -> ProcessedImage | Bad:
        """Reserves memory with `context.room` once, for everything that this photograph needs."""
        try:
            return self._process(blob, context)
        except MemoryLimitError as error:
            return Bad("oom", str(error))
        except MemoryError:
            return Bad("oom", "the system has no more memory")

    def _process(self, blob: bytes, context: TaskContext) -> ProcessedImage | Bad:
        start = time.perf_counter()
        info = image_info(blob, self._limits.max_pixels)
        if isinstance(info, Bad):
            return info
        if error := limit_error(self._limits, info.format, info.height, info.width):
            return error
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
            if isinstance(output, Bad):
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
        need = cost(
            info, len(blob), geometry.box, geometry.size, scaling.filter, scaling.full_decode
        )
        need += working_bytes(self._encoding, geometry.canvas)
        return need + (3 * geometry.canvas[0] * geometry.canvas[1] if geometry.padded else 0)

    def _pass_through(
        self, blob: bytes, info: ImageInfo, geometry: OutputGeometry
    ) -> bytes | Bad | None:
        """The file unchanged; None if it must be re-encoded."""
        if not (
            self._encoding.keep_small
            and _unchanged(info, geometry)
            and can_pass_through(blob, info, self._encoding.image)
        ):
            return None
        if info.format == "JPEG":
            assert self._kernel is not None
            pixels = np.empty((1, *geometry.size, 3), np.uint8)
            (bad,) = self._kernel.decode(self._request(blob, info, geometry), pixels, _NEVER)
            if bad is None:
                return blob if decodes_alike(blob, pixels[0]) else None
            return None if bad.reason in DECLINED else bad
        pixels = self._rasterizer.pixels(blob, info, geometry.box, geometry.size)
        return pixels if isinstance(pixels, Bad) else blob

    def _recode(
        self, blob: bytes, info: ImageInfo, geometry: OutputGeometry, seconds: dict[str, float]
    ) -> bytes | Bad | None:
        """Decode, scale and encode in one call of the kernel; None if that is not possible.

        JPEGs are scaled in planes of luma and chroma; with `full_decode`, and of other formats, the
        bytes equal those of `_pixels` and `encode`.
        """
        if (
            info.path != "kernel"
            or info.converts
            or self._encoding.image != "jpeg"
            or geometry.padded
        ):
            return None
        assert self._kernel is not None
        how = self._encoding.quality, self._encoding.subsampling == "4:2:0", self._encoding.optimize
        times = np.zeros((1, 2), np.int64)
        (file,) = self._kernel.recode(self._request(blob, info, geometry), *how, _NEVER, times)
        seconds["resize"] += times[0, 0] / 1e9
        seconds["encode"] += times[0, 1] / 1e9
        return None if isinstance(file, Bad) and file.reason in DECLINED else file

    def _pixels(
        self, blob: bytes, info: ImageInfo, geometry: OutputGeometry, seconds: dict[str, float]
    ) -> np.ndarray | Bad:
        """Pixels of the whole canvas."""
        pixels = self._rasterizer.pixels(blob, info, geometry.box, geometry.size, seconds)
        if isinstance(pixels, Bad) or not geometry.padded:
            return pixels
        canvas = np.empty((*geometry.canvas, 3), np.uint8)
        canvas[:] = self._scaling.fill
        top, left = geometry.at
        canvas[top : top + geometry.size[0], left : left + geometry.size[1]] = pixels
        return canvas

    def _request(self, blob: bytes, info: ImageInfo, geometry: OutputGeometry) -> Request:
        windows = Windows(np.array([geometry.box]), _NO_FLIP, np.array([geometry.size], np.int64))
        return Request(
            [blob], [Header(info.height, info.width, info.format)], windows, self._filter
        )


def _unchanged(info: ImageInfo, geometry: OutputGeometry) -> bool:
    size = info.height, info.width
    return geometry.box == (0, 0, *size) and geometry.size == geometry.canvas == size


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
