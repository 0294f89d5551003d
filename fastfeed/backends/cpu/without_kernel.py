"""Ops after decoding on pixels that native code has no kernel for: more than bytes, and alpha."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastfeed.backends.cpu.native_program import NativeProgram
from fastfeed.decode.base import Header, Request, Stop
from fastfeed.decode.executor import Executor
from fastfeed.decode.padding import decode_with_border
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.ops.convert import Convert
from fastfeed.ops.program.layers import Choices
from fastfeed.ops.program.program import Link, Program
from fastfeed.ops.program.window import Window, Windows
from fastfeed.runtime.timeline import Timeline
from fastfeed.spec import Spec

_PIXELS = PixelsEngine()


class WithoutKernel:
    """The ops of a program after decoding, and its conversion, for single images.

    Windows are cut in NumPy. All other ops only move pixels, whatever these are: native code moves
    each of their bytes as a separate image.
    """

    def __init__(self, program: Program, executor: Executor, timeline: Timeline) -> None:
        self._program = program
        pixels = program.pixels
        self._planes = (pixels.channels or 0) * np.dtype(pixels.dtype).itemsize
        # of each link, if it is no window
        self._moves = [
            None
            if all(isinstance(op, Window) for layer in link.layers for op in layer.ops)
            else NativeProgram(_of_bytes(program, link, self._planes), executor, timeline)
            for link in program.chain
        ]

    def __call__(self, image: np.ndarray, choices: Sequence[Choices], stop: Stop) -> np.ndarray:
        """One decoded image (height, width, channels) as in the batch.

        choices: of this image, one per layer, each of one row.
        """
        first = 0
        for link, native in zip(self._program.chain, self._moves, strict=True):
            own = choices[first : first + len(link.layers)]
            first += len(own)
            if native is not None:
                image = self._moved(native, image, link, own, stop)
                continue
            for layer, choice in zip(link.layers, own, strict=True):
                chosen = int(choice.choice[0])
                if chosen >= 0:
                    image = _cut(layer.ops[chosen], choice.values[chosen], image, stop)
        convert = self._program.convert
        values = convert.on_device(np, image, "float64")
        return values.transpose(2, 0, 1) if convert.layout == "CHW" else values

    def _moved(
        self,
        native: NativeProgram,
        image: np.ndarray,
        link: Link,
        choices: Sequence[Choices],
        stop: Stop,
    ) -> np.ndarray:
        height, width, _ = image.shape
        stored = np.ascontiguousarray(image).view(np.uint8).reshape(height, width, self._planes)
        planes = np.ascontiguousarray(np.moveaxis(stored, 2, 0))[None, ..., None]
        after = native.change(planes, [choice[[0] * self._planes] for choice in choices], stop)
        moved = np.ascontiguousarray(np.moveaxis(after[0, ..., 0], 0, 2))
        return moved.view(image.dtype)


def _of_bytes(program: Program, link: Link, planes: int) -> Program:
    """A link as a program of samples with a view of one byte per pixel for each plane."""
    before, after = (Spec((*spec.size, 1), "uint8", "HWC") for spec in (link.input_spec, link.spec))
    return replace(
        program,
        decode=None,
        window=(),
        filters=("nearest",),
        border=None,
        pixels=before,
        chain=(replace(link, input_spec=before, spec=after),),
        augmented=after,
        convert=Convert.of([], 1),
        spec=after,
        views=planes,
        others=(),
        mix=None,
    )


def _cut(
    window: Window, values: dict[str, np.ndarray], image: np.ndarray, stop: Stop
) -> np.ndarray:
    height, width, channels = image.shape
    windows = Windows(*(values[name] for name in ("box", "flip", "size", "limit")))
    request = Request([image], [Header(height, width, "array")], windows, window.filter)
    out = np.empty((1, *(window.size or (height, width)), channels), image.dtype)
    decode_with_border(_PIXELS, request, window.border, out, stop)
    return out[0]
