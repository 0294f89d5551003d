"""One photograph: look at it, cut, scale, encode. The same bytes and the same recipe give the same result."""

from __future__ import annotations

import hashlib
import time
from threading import Event
from typing import Any

import numpy as np

from fastfeed.decode.base import DECLINED, Bad, Header, Request
from fastfeed.decode.native import NativeEngine, built
from fastfeed.ops.decode import Decode
from fastfeed.ops.fuse import Windows
from fastfeed.preprocess.accept import refused
from fastfeed.preprocess.cost import cost
from fastfeed.preprocess.encode import encode, working_bytes
from fastfeed.preprocess.geometry import Placement, place, refusal
from fastfeed.preprocess.keep import keepable, whole
from fastfeed.preprocess.made import Made
from fastfeed.preprocess.raster import Look, Rasterizer, look
from fastfeed.preprocess.recipe import Color, Recipe
from fastfeed.preprocess.work import NoRoom, Watch

__all__ = ["Transformer"]

_KERNEL_FILTERS = {"lanczos": "lanczos", "bicubic": "bicubic", "area": "box"}
_NEVER = Event()


class Transformer:
    """`Transformer(recipe)(blob, watch)`: a file's bytes into what is packed, or why not. Never raises for what a file
    contains. Safe for threads.

    With `keep_small`, a file of the wanted format is passed on as it is where every reader sees in it what it would see
    in a new one: upright, 8-bit RGB without transparency, in sRGB or without a profile, one image, of the size wanted;
    JPEGs of Huffman coding, baseline or progressive. All of its pixels are decoded first. A file that is kept keeps its
    metadata too (EXIF with its place and time, ICC, XMP); one that is written anew has none. Gray files are written
    anew, in RGB, so that readers meet one number of channels.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._scaling, self._encoding, self._limits = recipe.scaling, recipe.encoding, recipe.limits
        self._rasterizer = Rasterizer(self._scaling.matte, self._scaling.filter)
        self._filter = _KERNEL_FILTERS[self._scaling.filter]
        self._kernel = NativeEngine(Decode(max_pixels=self._limits.max_pixels)) if built() else None

    def __repr__(self) -> str:
        return f"Transformer({self._scaling}, {self._encoding})"

    def __call__(self, blob: bytes, watch: Watch) -> Made | Bad:
        """`watch.room` is asked once, for all memory that this photograph takes."""
        try:
            return self._made(blob, watch)
        except NoRoom as error:
            return Bad("oom", str(error))
        except MemoryError:
            return Bad("oom", "the system has no more memory")

    def _made(self, blob: bytes, watch: Watch) -> Made | Bad:
        start = time.perf_counter()
        seen = look(blob, self._limits.max_pixels)
        if isinstance(seen, Bad):
            return seen
        if why := refused(self._limits, seen.format, seen.height, seen.width):
            return why
        goal = place(self._scaling, seen.height, seen.width)
        if why := refusal(goal, self._encoding.image, self._limits.max_pixels):
            return why
        digest = hashlib.sha256(blob).hexdigest()
        looked = time.perf_counter() - start
        with watch.room(self._need(blob, seen, goal)):
            start = time.perf_counter()
            result = self._result(blob, seen, goal)
            decoded = time.perf_counter() - start
            if isinstance(result, Bad):
                return result
            image, kept = result, isinstance(result, bytes) and result is blob
            if isinstance(result, np.ndarray):
                image = encode(result, self._encoding)
            encoded = time.perf_counter() - start - decoded
        facts = _facts(blob, seen, goal) | {"sha256": digest, "kept": kept}
        seconds = {"decode": looked + decoded, "encode": encoded}
        return Made(image, self._encoding.extension, *goal.canvas, facts, seconds)

    def _need(self, blob: bytes, seen: Look, goal: Placement) -> int:
        """Bytes of memory, at most."""
        need = cost(seen, len(blob), goal.box, goal.size) + working_bytes(self._encoding, goal.canvas)
        return need + (3 * goal.canvas[0] * goal.canvas[1] if goal.padded else 0)

    def _result(self, blob: bytes, seen: Look, goal: Placement) -> bytes | np.ndarray | Bad:
        """A file, or pixels of the canvas' size that are to become one."""
        if self._encoding.keep_small and _unchanged(seen, goal) and keepable(blob, seen, self._encoding.image):
            bad = whole(blob, seen)
            if bad is None or bad.reason not in DECLINED:
                return bad or blob
        if self._kernel and seen.kernel and self._encoding.image == "jpeg" and not goal.padded:
            file = self._recoded(blob, seen, goal)
            if not isinstance(file, Bad) or file.reason not in DECLINED:
                return file
        pixels = self._rasterizer.pixels(blob, seen, goal.box, goal.size)
        return pixels if isinstance(pixels, Bad) or not goal.padded else _framed(pixels, goal, self._scaling.fill)

    def _recoded(self, blob: bytes, seen: Look, goal: Placement) -> bytes | Bad:
        """All of it in one call of the kernel: no pixel comes to Python. The bytes are those of the other way."""
        assert self._kernel is not None
        windows = Windows(np.array([goal.box]), np.zeros((1, 2), bool), np.array([goal.size], np.int64))
        request = Request([blob], [Header(seen.height, seen.width, "JPEG")], windows, self._filter)
        subsampled = self._encoding.subsampling == "4:2:0"
        return self._kernel.recode(request, self._encoding.quality, subsampled, _NEVER)[0]


def _framed(pixels: np.ndarray, goal: Placement, fill: Color) -> np.ndarray:
    canvas = np.empty((*goal.canvas, 3), np.uint8)
    canvas[:] = fill
    top, left = goal.at
    canvas[top : top + goal.size[0], left : left + goal.size[1]] = pixels
    return canvas


def _unchanged(seen: Look, goal: Placement) -> bool:
    return goal.box == (0, 0, seen.height, seen.width) and goal.size == goal.canvas == (seen.height, seen.width)


def _facts(blob: bytes, seen: Look, goal: Placement) -> dict[str, Any]:
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
