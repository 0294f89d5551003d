"""Batches in OpenCV and NumPy: what native threads have to reproduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfeed.backends.cpu.mixing import mix
from fastfeed.backends.cpu.native_program import OpFailed
from fastfeed.decode.base import DecodeEngine, DecodeFailure, Header, Request, Stop
from fastfeed.decode.padding import decode_views, decode_with_border
from fastfeed.ops.convert import Convert
from fastfeed.ops.mix import MixPlan
from fastfeed.ops.program.program import Program, Work
from helpers.opencv_ops import lookup
from helpers.opencv_ops.chain import run


class Reference:
    """A program image by image, with the methods of a backend that tests call."""

    def __init__(self, program: Program, engine: DecodeEngine) -> None:
        self.rendered = program if program.mix is None else program.raw()
        self._final = program.convert
        self._engine = engine

    def render(
        self,
        blobs: Sequence[Any],
        headers: Sequence[Header],
        work: Work,
        out: np.ndarray,
        stop: Stop,
    ) -> list[DecodeFailure | None]:
        """Samples from encoded bytes; rows of bad samples are undefined."""
        program = self.rendered
        images = out.reshape(-1, *out.shape[2:]) if program.views else out
        sides = [side or 0 for side in program.pixels.shape]
        pixels = np.empty((len(images), *sides), np.uint8)
        request = Request(blobs, headers, work.windows, program.filter)
        if program.views:
            by_sample = pixels.reshape(len(blobs), program.views, *sides)
            results = decode_views(self._engine, request, program.border, by_sample, stop)
        else:
            results = decode_with_border(self._engine, request, program.border, pixels, stop)
        for row, target in enumerate(images):
            sample = row // work.views
            if results[sample] is not None:
                continue
            try:
                image = run(program.layers, work.choices, row, pixels[row])
            except OpFailed as failed:
                results[sample] = failed.bad()
            else:
                convert(program.convert, image[None], target[None])
        return results

    def mix(self, samples: np.ndarray, members: np.ndarray, plan: MixPlan, out: np.ndarray) -> None:
        """As `Backend.mix`."""
        pixels = np.empty((len(out), *samples.shape[1:]), np.uint8)
        mix(samples, members, plan, pixels)
        convert(self._final, pixels, out)


def compile(program: Program, decoder: Any, *_: Any, **__: Any) -> Reference:
    """Takes the arguments of a backend's `compile`, or an engine in place of the executor."""
    return Reference(program, getattr(decoder, "pillow", decoder))


def convert(how: Convert, pixels: np.ndarray, out: np.ndarray) -> None:
    """uint8 (n, height, width, channels) to how.dtype in how.layout, written to `out`."""
    table = np.arange(256, dtype=np.uint8)[:, None] if how.keeps_bytes else how.table()
    table = np.broadcast_to(table, (256, pixels.shape[-1]))
    for image, target in zip(pixels, out, strict=True):
        if how.standardized:
            values = image.astype(np.float64) / 255
            deviation = max(values.std(), values.size**-0.5)
            values = ((values - values.mean()) / deviation).astype(np.float32)
            target[...] = values.transpose(2, 0, 1) if how.layout == "CHW" else values
            continue
        lookup.convert(image, table, target, how.layout == "CHW")
