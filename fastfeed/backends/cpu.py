"""NumPy and OpenCV. What this computes is what the ops mean."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import cv2
import numpy as np

from fastfeed.decode.base import Bad, Engine, Header, Request, Stop
from fastfeed.ops.convert import Convert
from fastfeed.ops.fuse import Program, Windows
from fastfeed.slots import Allocate, aligned
from fastfeed.timeline import Timeline

__all__ = ["CpuBackend", "compile", "convert", "engine"]


class CpuBackend:
    """Decodes into bytes, then converts in one pass; rows of a batch may come from many threads."""

    name = "cpu"
    whole = False
    where = "memory"
    xp: Any = np
    empty: Allocate = staticmethod(aligned)
    here = staticmethod(nullcontext)

    def __init__(self, program: Program, engine: Engine, timeline: Timeline) -> None:
        self._program, self._engine, self._timeline = program, engine, timeline
        self._scratch = threading.local()

    def render(
        self,
        blobs: Sequence[Any],
        headers: Sequence[Header],
        windows: Windows,
        out: np.ndarray,
        stop: Stop,
        batch: int = 0,
    ) -> list[Bad | None]:
        program, timeline = self._program, self._timeline
        direct = program.spec == program.pixels
        pixels = out if direct else self._pixels(len(blobs))
        with timeline.span("decode", batch):
            done = self._engine.decode(Request(blobs, headers, windows, program.filter), pixels, stop)
        if not direct:
            with timeline.span("convert", batch):
                convert(program.convert, pixels, out)
        return done

    def settle(self) -> None:
        pass

    def path(self) -> str:
        return f"{self._engine.name} -> NumPy + OpenCV"

    def _pixels(self, n: int) -> np.ndarray:
        """This thread's own rows between decoding and conversion."""
        rows = getattr(self._scratch, "rows", None)
        if rows is None or len(rows) < n:
            shape = tuple(side or 0 for side in self._program.pixels.shape)
            rows = self._scratch.rows = np.empty((n, *shape), np.uint8)
        return rows[:n]


def convert(how: Convert, pixels: np.ndarray, out: np.ndarray) -> None:
    """uint8 (n, height, width, channels) to how.dtype in how.layout, written to `out`.

    A byte has 256 values, so scaling and normalization are one table look-up, exact and without temporaries.
    """
    if how.keeps_bytes:
        out[:] = pixels.transpose(0, 3, 1, 2) if how.layout == "CHW" else pixels
        return
    table = how.table()
    for image, target in zip(pixels, out, strict=True):
        planes = target if how.layout == "CHW" else target.transpose(2, 0, 1)
        if how.dtype == "float32" and how.layout == "HWC":
            cv2.LUT(image, table[None], dst=target)
        elif how.dtype == "float32":
            for c, plane in enumerate(planes):
                cv2.LUT(np.ascontiguousarray(image[:, :, c]), table[None, :, c], dst=plane)
        else:  # OpenCV has no float16 tables
            for c, plane in enumerate(planes):
                plane[...] = table[:, c][image[:, :, c]]


def compile(
    program: Program,
    engine: Engine,
    timeline: Timeline,
    batch: int,
    threads: int,
    gpu: int = 0,
    decode: Any = "auto",
) -> CpuBackend:
    """What BACKENDS["cpu"] stands for."""
    return CpuBackend(program, engine, timeline)


def engine(decode: Any) -> Any:
    """Who decodes, for `decode.engine_for`."""
    return decode
