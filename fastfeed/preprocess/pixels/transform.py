"""One photograph: look at it, cut, scale, encode. The same bytes and the same recipe give the same result."""

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
from fastfeed.preprocess.entry import ProcessedImage
from fastfeed.preprocess.pixels.cost import cost
from fastfeed.preprocess.pixels.decode import ImageInfo, Rasterizer, image_info
from fastfeed.preprocess.pixels.encode import encode, working_bytes
from fastfeed.preprocess.pixels.geometry import OutputGeometry, output_error, output_geometry
from fastfeed.preprocess.pixels.limits import limit_error
from fastfeed.preprocess.pixels.passthrough import can_pass_through, decodes_alike
from fastfeed.preprocess.recipe import Recipe
from fastfeed.preprocess.task import MemoryLimitError, TaskContext

__all__ = ["Transformer"]

_KERNEL_FILTERS = {"lanczos": "lanczos", "bicubic": "bicubic", "area": "box"}
_AS_THEY_ARE = ("none", "sRGB", "damaged")  # profiles whose pixels need no conversion
_NO_FLIP = np.zeros((1, 2), bool)
_NEVER = Event()


class Transformer:
    """`Transformer(recipe)(blob, watch)`: a file's bytes into what is packed, or why not. Never raises for what a file
    contains. Safe for threads.

    With `keep_small`, a file of the wanted format is passed on as it is where every reader sees in it what it would see
    in a new one: upright, 8-bit RGB without transparency, in sRGB or without a profile, one image, of the size wanted;
    JPEGs of Huffman coding, baseline or progressive. All pixels are decoded first: of a PNG with its checksums, of a
    JPEG by the kernel and by Pillow, which must see the same (without the kernel no JPEG is kept: Pillow reads damaged
    ones without a word). A file that is kept keeps its metadata (EXIF with place and time, ICC, XMP); one that is
    written anew has none. Gray files are written anew, in RGB, so that readers meet one number of channels.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._scaling, self._encoding, self._limits = recipe.scaling, recipe.encoding, recipe.limits
        self._rasterizer = Rasterizer(self._scaling.matte, self._scaling.filter, max_pixels=self._limits.max_pixels)
        self._filter = _KERNEL_FILTERS[self._scaling.filter]
        self._kernel = NativeEngine(Decode(max_pixels=self._limits.max_pixels)) if is_built() else None

    def __repr__(self) -> str:
        return f"Transformer({self._scaling}, {self._encoding})"

    def __call__(self, blob: bytes, watch: TaskContext) -> ProcessedImage | Bad:
        """`watch.room` is asked once, for all memory that this photograph takes."""
        try:
            return self._made(blob, watch)
        except MemoryLimitError as error:
            return Bad("oom", str(error))
        except MemoryError:
            return Bad("oom", "the system has no more memory")

    def _made(self, blob: bytes, watch: TaskContext) -> ProcessedImage | Bad:
        start = time.perf_counter()
        seen = image_info(blob, self._limits.max_pixels)
        if isinstance(seen, Bad):
            return seen
        if why := limit_error(self._limits, seen.format, seen.height, seen.width):
            return why
        goal = output_geometry(self._scaling, seen.height, seen.width)
        if why := output_error(goal, self._encoding.image, self._limits.max_pixels):
            return why
        digest = hashlib.sha256(blob).hexdigest()
        looked = time.perf_counter() - start
        with watch.room(self._need(blob, seen, goal)):
            start = time.perf_counter()
            found = self._kept(blob, seen, goal) or self._recoded(blob, seen, goal) or self._pixels(blob, seen, goal)
            between = time.perf_counter()
            if isinstance(found, Bad):
                return found
            image = found if isinstance(found, bytes) else encode(found, self._encoding)
            end = time.perf_counter()
        facts = _facts(blob, seen, goal) | {"sha256": digest, "kept": found is blob}
        seconds = {"decode": looked + between - start, "encode": end - between}
        return ProcessedImage(image, self._encoding.extension, *goal.canvas, facts, seconds)

    def _need(self, blob: bytes, seen: ImageInfo, goal: OutputGeometry) -> int:
        """Bytes of memory, at most."""
        need = cost(seen, len(blob), goal.box, goal.size) + working_bytes(self._encoding, goal.canvas)
        return need + (3 * goal.canvas[0] * goal.canvas[1] if goal.padded else 0)

    def _kept(self, blob: bytes, seen: ImageInfo, goal: OutputGeometry) -> bytes | Bad | None:
        """The file as it is; None where that will not do."""
        if not (
            self._encoding.keep_small and _unchanged(seen, goal) and can_pass_through(blob, seen, self._encoding.image)
        ):
            return None
        if seen.format == "JPEG":
            assert self._kernel is not None
            pixels = np.empty((1, *goal.size, 3), np.uint8)
            (bad,) = self._kernel.decode(self._request(blob, seen, goal), pixels, _NEVER)
            if bad is None:
                return blob if decodes_alike(blob, pixels[0]) else None
            return None if bad.reason in DECLINED else bad
        found = self._rasterizer.pixels(blob, seen, goal.box, goal.size)
        return found if isinstance(found, Bad) else blob

    def _recoded(self, blob: bytes, seen: ImageInfo, goal: OutputGeometry) -> bytes | Bad | None:
        """Decoded, scaled and encoded in one call of the kernel, no pixel in Python; None where that will not do.

        The bytes are those that `_pixels` and `encode` give.
        """
        if seen.path != "kernel" or seen.icc not in _AS_THEY_ARE or self._encoding.image != "jpeg" or goal.padded:
            return None
        assert self._kernel is not None
        subsampled = self._encoding.subsampling == "4:2:0"
        (file,) = self._kernel.recode(self._request(blob, seen, goal), self._encoding.quality, subsampled, _NEVER)
        return None if isinstance(file, Bad) and file.reason in DECLINED else file

    def _pixels(self, blob: bytes, seen: ImageInfo, goal: OutputGeometry) -> np.ndarray | Bad:
        """All of the canvas."""
        pixels = self._rasterizer.pixels(blob, seen, goal.box, goal.size)
        if isinstance(pixels, Bad) or not goal.padded:
            return pixels
        canvas = np.empty((*goal.canvas, 3), np.uint8)
        canvas[:] = self._scaling.fill
        top, left = goal.at
        canvas[top : top + goal.size[0], left : left + goal.size[1]] = pixels
        return canvas

    def _request(self, blob: bytes, seen: ImageInfo, goal: OutputGeometry) -> Request:
        windows = Windows(np.array([goal.box]), _NO_FLIP, np.array([goal.size], np.int64))
        return Request([blob], [Header(seen.height, seen.width, "JPEG")], windows, self._filter)


def _unchanged(seen: ImageInfo, goal: OutputGeometry) -> bool:
    return goal.box == (0, 0, seen.height, seen.width) and goal.size == goal.canvas == (seen.height, seen.width)


def _facts(blob: bytes, seen: ImageInfo, goal: OutputGeometry) -> dict[str, Any]:
    return {
        "format": seen.format,
        "source_height": seen.height,
        "source_width": seen.width,
        "source_bytes": len(blob),
        "orientation": seen.orientation,
        "icc": seen.icc,
        "mode": seen.mode,
        "box": [round(edge, 2) for edge in goal.box],
    }
