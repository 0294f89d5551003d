"""The CPU backend, in NumPy and OpenCV: the reference for what ops compute."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import cv2
import numpy as np

from fastfeed.backends.cpu.chain import run
from fastfeed.backends.cpu.kernels import lookup
from fastfeed.backends.cpu.kernels.functions import OpFailed
from fastfeed.backends.cpu.mixing import mix
from fastfeed.backends.cpu.native_program import NativeProgram
from fastfeed.decode.base import Bad, DecodeEngine, Header, Request, Stop
from fastfeed.decode.executor import Executor, Samples
from fastfeed.decode.multi_crop import decode_views
from fastfeed.decode.padding import decode_with_border
from fastfeed.ops.convert import Convert
from fastfeed.ops.mix_plan import MixPlan
from fastfeed.ops.program.program import Program, Work
from fastfeed.runtime.buffers import aligned
from fastfeed.runtime.timeline import Timeline

__all__ = ["CpuBackend", "compile", "convert", "convert_one", "engine", "native_threads", "whole_batches"]

native_threads = True
whole_batches = False

_STAGES = ("decode", "augment", "convert")  # of native threads, in the order of their spans


class CpuBackend:
    """Decodes into bytes, then converts in one pass; rows of a batch may come from many threads."""

    memory_name = "memory"
    xp: Any = np
    empty = staticmethod(aligned)
    device_context = staticmethod(nullcontext)

    def __init__(
        self, program: Program, engine: DecodeEngine, timeline: Timeline, executor: Executor | None = None
    ) -> None:
        self._final, self._engine, self._timeline = program.convert, engine, timeline
        # samples are mixed as bytes: a quarter of the memory, and a lookup table converts the result
        self.rendered = self._program = program if program.mix is None else program.raw()
        self._native = None if executor is None else NativeProgram(self.rendered, self._final, executor)
        self._scratch = threading.local()

    def render(
        self,
        blobs: Sequence[Any],
        headers: Sequence[Header],
        work: Work,
        out: np.ndarray,
        stop: Stop,
        batch: int = 0,
    ) -> list[Bad | None]:
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

    def render_native(
        self, samples: Samples, skip: np.ndarray, work: Work, out: np.ndarray, stop: Stop, batch: int = 0
    ) -> dict[int, Bad]:
        """`render` of samples that native threads hold, but for those to be skipped (bool (n,))."""
        assert self._native is not None
        record = partial(self._timeline.record_native, batch, _STAGES)
        return self._native.run(samples, skip, work, out, stop, record)

    def _change(self, pixels: np.ndarray, work: Work, out: np.ndarray, results: list[Bad | None], stop: Stop) -> None:
        """Each image through the chain and the conversion while it is in the CPU's cache."""
        how, layers = self._program.convert, self._program.layers
        for row, target in enumerate(out):
            if stop.is_set():
                return
            sample = row // work.views
            if results[sample] is not None:
                continue
            try:
                image, table = run(layers, work.choices, row, pixels[row], leave=not how.keeps_bytes)
            except OpFailed as failed:
                results[sample] = Bad("op_failed", str(failed))
            else:
                convert_one(how, image, target, table)

    def mix(
        self, samples: np.ndarray, members: np.ndarray, plan: MixPlan, out: np.ndarray, stop: Stop, batch: int = 0
    ) -> None:
        how, timeline = self._final, self._timeline
        if self._native is not None:
            record = partial(timeline.record_native, batch, ("mix",))
            self._native.mix(samples, members, plan, out, stop, record)
            return
        with timeline.span("mix", batch):
            if how.keeps_bytes and how.layout == "HWC":
                mix(samples, members, plan, out)
                return
            pixels = np.empty((len(out), *samples.shape[1:]), np.uint8)
            mix(samples, members, plan, pixels)
            convert(how, pixels, out)

    def synchronize(self) -> None:
        pass

    def decode_path(self) -> str:
        if self._native is None:
            return f"{self._engine.name} -> NumPy + OpenCV"
        layers = self._native.python_layers
        python = f", {layers} op{'s' * (layers > 1)} in Python" if layers else ""
        return f"{self._engine.name} -> native threads{python}"

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


def convert_one(how: Convert, image: np.ndarray, target: np.ndarray, first: np.ndarray | None = None) -> None:
    """One image; `first`: a table of bytes (256,) or (256, channels) that goes before.

    A byte has 256 values, so scaling and normalization are one table look-up, exact and without temporaries.
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


def compile(
    program: Program,
    engine: DecodeEngine,
    timeline: Timeline,
    batch: int,
    threads: int,
    gpu: int = 0,
    decode: Any = "auto",
    executor: Executor | None = None,
) -> CpuBackend:
    """The entry point of BACKENDS["cpu"]."""
    return CpuBackend(program, engine, timeline, executor)


def engine(decode: Any) -> Any:
    """The `decode` argument for `decode.engine_for`."""
    return decode
