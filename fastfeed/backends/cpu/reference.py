"""Batches in NumPy and OpenCV: what the ops mean, and who runs them where there are no native
threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np

from fastfeed.backends.cpu.chain import run
from fastfeed.backends.cpu.functions import OpFailed
from fastfeed.backends.cpu.kernels import lookup
from fastfeed.backends.cpu.mixing import mix
from fastfeed.decode.base import Bad, DecodeEngine, Header, Request, Stop
from fastfeed.decode.multi_crop import decode_views
from fastfeed.decode.padding import decode_with_border
from fastfeed.ops.convert import Convert
from fastfeed.ops.mix_plan import MixPlan
from fastfeed.ops.program.program import Program, Work
from fastfeed.runtime.timeline import Timeline

__all__ = ["Reference", "convert", "convert_one"]


class Reference:
    """A program image by image; rows of a batch may come from many threads.

    Decodes into bytes, then runs the chain on each image and converts it while it is in the CPU's
    cache.
    """

    def __init__(
        self, program: Program, final: Convert, engine: DecodeEngine, timeline: Timeline
    ) -> None:
        """`final`: the conversion of mixed samples, where the program makes bytes to be mixed."""
        self._program, self._final, self._engine, self._timeline = program, final, engine, timeline
        self._scratch = threading.local()

    def render(
        self,
        blobs: Sequence[Any],
        headers: Sequence[Header],
        work: Work,
        out: np.ndarray,
        stop: Stop,
        batch: int,
    ) -> list[Bad | None]:
        """As `Renderer.render` of `backends.base`."""
        program, timeline = self._program, self._timeline
        direct = program.spec == program.pixels and not program.chain
        images = out.reshape(-1, *out.shape[2:]) if program.views else out
        pixels = images if direct else self._pixels(len(images))
        with timeline.span("decode", batch):
            request = Request(blobs, headers, work.windows, program.filter)
            if program.views:
                by_sample = pixels.reshape(len(blobs), program.views, *pixels.shape[1:])
                results = decode_views(self._engine, request, program.border, by_sample, stop)
            else:
                results = decode_with_border(self._engine, request, program.border, pixels, stop)
        out = images
        if program.chain:
            with timeline.span("augment", batch):
                self._change(pixels, work, out, results, stop)
        elif not direct:
            with timeline.span("convert", batch):
                convert(program.convert, pixels, out)
        return results

    def _change(
        self, pixels: np.ndarray, work: Work, out: np.ndarray, results: list[Bad | None], stop: Stop
    ) -> None:
        how, layers = self._program.convert, self._program.layers
        for row, target in enumerate(out):
            if stop.is_set():
                return
            sample = row // work.views
            if results[sample] is not None:
                continue
            try:
                image, table = run(
                    layers, work.choices, row, pixels[row], leave=not how.keeps_bytes
                )
            except OpFailed as failed:
                results[sample] = failed.bad()
            else:
                convert_one(how, image, target, table)

    def mix(
        self, samples: np.ndarray, members: np.ndarray, plan: MixPlan, out: np.ndarray, batch: int
    ) -> None:
        """As `Mixer.mix`."""
        how = self._final
        with self._timeline.span("mix", batch):
            if how.keeps_bytes and how.layout == "HWC":
                mix(samples, members, plan, out)
                return
            pixels = np.empty((len(out), *samples.shape[1:]), np.uint8)
            mix(samples, members, plan, pixels)
            convert(how, pixels, out)

    def _pixels(self, n: int) -> np.ndarray:
        """This thread's buffer for rows between decoding and conversion."""
        rows = getattr(self._scratch, "rows", None)
        if rows is None or len(rows) < n:
            shape = tuple(side or 0 for side in self._program.pixels.shape)
            rows = self._scratch.rows = np.empty((n, *shape), np.uint8)
        return rows[:n]


def convert(how: Convert, pixels: np.ndarray, out: np.ndarray) -> None:
    """uint8 (n, height, width, channels) to how.dtype in how.layout, written to `out`."""
    for image, target in zip(pixels, out, strict=True):
        convert_one(how, image, target)


def convert_one(
    how: Convert, image: np.ndarray, target: np.ndarray, first: np.ndarray | None = None
) -> None:
    """One image; `first`: a table of bytes (256,) or (256, channels) that goes before.

    A byte has 256 values, so scaling and normalization are one table look-up, exact and without
    temporaries.
    """
    if how.keeps_bytes:
        converted = image if first is None else lookup.look_up(image, first)
        if how.layout == "CHW":
            cv2.split(converted, list(target))
        else:
            target[...] = converted
        return
    table = how.table()
    if first is not None:
        table = table[first] if first.ndim == 1 else np.take_along_axis(table, first, axis=0)
    lookup.convert(image, table, target, how.layout == "CHW")
