"""Runs a program on native threads, one call per batch.

The exceptions are functions of users and files that Pillow decodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.backends.cpu.native_ops import (
    BORDERS,
    is_native,
    layer_values,
    native_layer,
    needs_noise,
)
from fastfeed.decode.base import (
    DECLINED,
    ENLARGE,
    DecodeFailure,
    FunctionFailed,
    Header,
    Request,
    Stop,
)
from fastfeed.decode.executor import Executor, Samples
from fastfeed.decode.native import failure_from_status
from fastfeed.decode.padding import decode_views, decode_with_border
from fastfeed.decode.pillow_warnings import named
from fastfeed.errors import FeedClosed
from fastfeed.ops.base import FILTERS, shade
from fastfeed.ops.convert import Convert
from fastfeed.ops.function import Function
from fastfeed.ops.mix import MixPlan
from fastfeed.ops.noise_table import STEPS, gray, steps
from fastfeed.ops.program.layers import Choices, Layer
from fastfeed.ops.program.program import Program, Work
from fastfeed.ops.program.window import Windows
from fastfeed.runtime.timeline import Timeline
from fastfeed.system.clocks import steady_ns

_SLICE = 32  # samples that a thread takes through ops in Python at a time, at most
# as Status in native/image/header.h
_DONE = 0
_CANCELLED = 6
_STAGES = ("decode", "augment", "convert")
# columns of spans: thread, begin, and nanoseconds of each stage
_DECODE = 2
_AUGMENT = 3

# (height, width, channels) and its choices -> as in the batch
Finish = Callable[[np.ndarray, Sequence[Choices], Stop], np.ndarray]


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer of the program, or its ops that run in one place; a sample takes at most one op."""

    layer: Layer
    native: bool  # runs on native threads; otherwise in Python
    number: int  # of the whole layer in the program
    op_indices: tuple[int, ...]  # which of its ops

    def choices(self, choices: Sequence[Choices]) -> Choices:
        """The choices of this layer, from those of the program's layers."""
        whole = choices[self.number]
        if len(self.op_indices) == len(whole.values):
            return whole
        own = np.full(len(whole.values) + 1, -1)  # the last is that of no op, -1
        own[list(self.op_indices)] = np.arange(len(self.op_indices))
        return Choices(own[whole.choice], tuple(whole.values[k] for k in self.op_indices))


@dataclass(frozen=True, slots=True)
class _Part:
    """Neighboring layers that run in one place."""

    layers: tuple[_Layer, ...]
    native: Any  # the native extension's Program; None for layers in Python
    shape: tuple[int, ...]  # of a window after these layers, in bytes; () after the last part


class NativeProgram:
    """A compiled program for an executor's threads."""

    def __init__(
        self,
        program: Program,
        executor: Executor,
        timeline: Timeline,
        final: Convert | None = None,
        finish: Finish | None = None,
    ) -> None:
        """`final`: the conversion of mixed samples, if the program renders bytes to be mixed.

        `finish`: what comes after decoding, if native code has no kernel for the pixels.
        """
        self._program = program
        self._executor = executor
        self._timeline = timeline
        self._finish = finish
        self._views = max(1, program.views)
        height, width, self._channels = (side or 0 for side in program.pixels.shape)
        self._layers = tuple(
            part for number, layer in enumerate(program.layers) for part in _halves(layer, number)
        )
        # functions of users, which run in Python
        self.python_ops: tuple[Any, ...] = tuple(
            op for layer in self._layers if not layer.native for op in layer.layer.ops
        )
        self._sizes = [(height, width)]  # before each layer, and after the last
        after = [
            tuple(side or 0 for side in link.spec.size)
            for link in program.chain
            for _ in link.layers
        ]
        self._sizes += [after[layer.number] for layer in self._layers]
        self._parts: list[_Part] = []
        self._decoded_parts: list[_Part] = []
        if finish is None:
            self._parts = self._split(decoded=False)
            self._decoded_parts = self._split(decoded=True)
        self._mixing: Any = None
        if program.mix is not None:
            last = len(self._layers)
            how = final or program.convert
            self._mixing = self._kernel_program(last, last, encoded=False, how=how)

    def run(
        self,
        samples: Samples,
        skip: np.ndarray,
        work: Work,
        out: np.ndarray,
        stop: Stop,
        batch: int = 0,
    ) -> dict[int, DecodeFailure]:
        """Fill the rows of `out` whose sample is not skipped (bool (n,)).

        Bad ones, whose rows have any content.
        """
        results: dict[int, DecodeFailure] = {}
        others = [row for row in samples.others if not skip[row]] if samples.others else []
        record = partial(self._timeline.record_native, batch, _STAGES)
        call = _Call(len(skip), work, out, results, stop, record)
        if not others:
            self._render(samples.handle, skip, call)
        else:
            skip = skip.copy()
            skip[others] = True
            tasks = [
                partial(self._by_pillow, samples, row, samples.others[row], call) for row in others
            ]
            pending = self._executor.start_python(tasks, stop)
            try:
                self._render(samples.handle, skip, call)
            finally:  # after an error, too: its rows are made again
                with suppress(FeedClosed):
                    pending.result()
        for row, bad in list(results.items()):
            if bad.reason in DECLINED and row not in others:
                # discovered only after the header: four components, a custom color space
                with named(samples.name(row)):
                    header = self._executor.pillow.probe([samples.handle.bytes(row)])[0]
                if isinstance(header, Header):
                    del results[row]
                    self._by_pillow(samples, row, header, call)
                else:
                    results[row] = header
        return results

    def mix(
        self,
        samples: np.ndarray,
        members: np.ndarray,
        plan: MixPlan,
        out: np.ndarray,
        stop: Stop,
        batch: int = 0,
    ) -> None:
        """Fill `out` from rendered samples; `members` int64 (n, group) are their rows."""
        spans = np.empty((len(out), 5), np.int64)
        rows = np.ascontiguousarray(members)
        how = (plan.how, plan.shares, plan.box)
        used = self._executor.mix(self._mixing, samples, rows, *how, _bits(out), spans, stop)
        self._timeline.record_native(batch, ("mix",), spans[:used, [0, 1, 4]])

    def change(self, pixels: np.ndarray, choices: Sequence[Choices], stop: Stop) -> np.ndarray:
        """Decoded samples (n, views, height, width, channels) after the layers and conversion."""
        n = len(pixels)
        out = np.empty((n, *self._program.shape), self._program.spec.dtype)
        whole = np.empty((0, 4)), np.empty((0, 2), bool), np.empty((0, 2), np.int64)
        work = Work(Windows(*whole), tuple(choices), self._views)
        call = _Call(n, work, out, {}, stop, lambda spans: None)
        handle = self._images(pixels)
        self._through(self._decoded_parts, handle, np.zeros(n, bool), call, range(n))
        return out

    def _render(self, handle: Any, skip: np.ndarray, call: _Call) -> None:
        if not self.python_ops:
            self._through(self._parts, handle, skip, call, range(len(skip)))
            return
        step = max(1, min(_SLICE, -(-len(skip) // self._executor.threads)))
        slices = [range(first, min(first + step, len(skip))) for first in range(0, len(skip), step)]
        tasks = [
            partial(
                self._through,
                self._parts,
                handle.part(rows.start, rows.stop),
                skip[rows],
                call,
                rows,
            )
            for rows in slices
        ]
        self._executor.run_python(tasks, call.stop)

    def _by_pillow(self, samples: Samples, row: int, header: Header, call: _Call) -> None:
        """Decode one window, or all views of a sample, with Pillow, and run the ops after it."""
        program = self._program
        pillow = self._executor.pillow
        if call.stop.is_set():
            return
        request = Request(
            [samples.handle.bytes(row)], [header], call.work[row : row + 1].windows, program.filter
        )
        shape = (1, self._views, *self._sizes[0], self._channels)
        pixels = np.empty(shape, program.pixels.dtype)
        with call.timed(_DECODE):
            if program.views:
                (bad,) = decode_views(pillow, request, program.border, pixels, call.stop)
            else:
                (bad,) = decode_with_border(pillow, request, program.border, pixels[0], call.stop)
        if bad is not None:
            call.results[row] = bad
        elif self._finish is not None:
            out = call.out[row].reshape(self._views, *program.spec.shape)
            for k, image in enumerate(pixels[0], row * self._views):
                choices = [layer[k : k + 1] for layer in call.work.choices]
                out[k - row * self._views] = self._finish(image, choices, call.stop)
        else:
            self._through(
                self._decoded_parts,
                self._images(pixels),
                np.zeros(1, bool),
                call,
                range(row, row + 1),
            )

    def _through(
        self, parts: Sequence[_Part], handle: Any, skip: np.ndarray, call: _Call, rows: range
    ) -> None:
        """Run samples of these rows through all parts, into the batch."""
        n = len(rows)
        work = call.work if n == call.count else call.work[rows.start : rows.stop]
        pixels = np.empty(0, np.uint8)
        for part in parts:
            if part.native is None:
                choices = [layer.choices(work.choices) for layer in part.layers]
                given = pixels
                pixels = self._python_target(part, pixels, call, rows)
                for k in np.flatnonzero(~skip).tolist():
                    if call.stop.is_set():
                        return
                    with call.timed(_AUGMENT):
                        try:
                            self._run_in_python(part, choices, work, k, given[k], pixels[k])
                        except OpFailed as failed:
                            call.results[rows[k]] = failed.bad()
                            skip[k] = True
                continue
            if pixels.size:
                handle = self._images(pixels)
            target = call.out[rows.start : rows.stop]
            if part.shape:
                target = pixels = np.empty((n, self._views, *part.shape), np.uint8)
            codes = np.empty(n, np.int8)
            spans = np.empty((n, 5), np.int64)
            windows = work.windows if part is parts[0] and parts is self._parts else None
            cuts = (None, None, None)
            filters = None
            if windows is not None:
                cuts = (windows.boxes, windows.flips, windows.limits)
                filters = windows.filters
            values = tuple(
                layer_values(layer.layer, layer.choices(work.choices)) for layer in part.layers
            )
            results = _bits(target), codes, spans
            used = self._executor.render(
                part.native, handle, skip, *cuts, values, *results, call.stop, filters
            )
            call.record(spans[:used])
            if not any(codes.tolist()):
                continue
            for k in np.flatnonzero((codes != _DONE) & (codes != _CANCELLED)).tolist():
                call.results[rows[k]] = failure_from_status(int(codes[k]))
            skip |= codes != _DONE

    def _python_target(
        self, part: _Part, pixels: np.ndarray, call: _Call, rows: range
    ) -> np.ndarray:
        """Memory for the results of functions: their images, if they keep the shape."""
        if not part.shape:
            out = call.out[rows.start : rows.stop]
            return out.reshape(len(rows), self._views, *self._program.spec.shape)
        if part.shape == pixels.shape[2:]:
            return pixels
        return np.empty((len(rows), self._views, *part.shape), np.uint8)

    def _run_in_python(
        self,
        part: _Part,
        choices: Sequence[Choices],
        work: Work,
        k: int,
        images: np.ndarray,
        out: np.ndarray,
    ) -> None:
        """Take the windows of sample k, uint8 (views, height, width, channels), into `out`."""
        sample = None if work.fields is None else work.fields[k]
        for row, (window, target) in enumerate(zip(images, out, strict=True), k * self._views):
            image = window
            for layer, own in zip(part.layers, choices, strict=True):
                chosen = own.choice[row]
                if chosen >= 0:
                    op = layer.layer.ops[chosen]
                    image = call_function(op, own.values[chosen], row, image, sample)
            if image is not target:
                np.copyto(target, image)

    def _images(self, pixels: np.ndarray) -> Any:
        """Windows (n, views, height, width, channels) as samples of the native extension."""
        stacked = pixels.reshape(len(pixels), -1, *pixels.shape[3:])
        return self._executor.native.Samples.of_images(stacked, np.arange(len(stacked)))

    def _split(self, decoded: bool) -> list[_Part]:
        """Runs of native layers, and between them layers in Python.

        The first run is native, and the last unless a function makes the batch's images.
        """
        layers = self._layers
        how = self._program.convert
        parts = list[_Part]()
        native = [layer.native for layer in layers]
        first = 0
        while True:
            last = next((k for k in range(first, len(layers)) if not native[k]), len(layers))
            is_last = last == len(layers)
            program = self._kernel_program(
                first, last, encoded=not parts and not decoded, how=how if is_last else None
            )
            shape = () if is_last else (*self._sizes[last], self._channels)
            parts.append(_Part(layers[first:last], program, shape))
            if is_last:
                return parts
            first = next((k for k in range(last, len(layers)) if native[k]), len(layers))
            ends = first == len(layers) and self._program.ends_in_function
            shape = () if ends else (*self._sizes[first], self._channels)
            parts.append(_Part(layers[last:first], None, shape))
            if ends:
                return parts

    def _kernel_program(self, first: int, last: int, encoded: bool, how: Convert | None) -> Any:
        """Layers [first, last), and a conversion unless bytes are wanted."""
        program = self._program
        layers = [part.layer for part in self._layers[first:last]]
        border = program.border
        (height, width) = self._sizes[first]
        (out_height, out_width) = self._sizes[last]
        noise = (steps(), gray(), STEPS) if any(map(needs_noise, layers)) else None
        return self._executor.native.Program(
            {
                "encoded": encoded and program.decode is not None,
                "height": height,
                "width": width,
                "out_height": out_height,
                "out_width": out_width,
                "channels": self._channels,
                "views": self._views,
                "whole": program.views > 0,
                "filter": FILTERS.index(program.filter),
                "enlarge": ENLARGE[program.filter],
                "enlarge_by_filter": tuple(ENLARGE[filter] for filter in FILTERS),
                "max_pixels": 0 if program.decode is None else program.decode.max_pixels,
                "matte": (0, 0, 0) if program.decode is None else program.decode.matte,
                "border": 0 if border is None else BORDERS.index(border.mode),
                "fill": shade((0, 0, 0) if border is None else border.fill, self._channels),
                "layers": tuple(native_layer(layer, self._channels) for layer in layers),
                "table": None if how is None or how.keeps_bytes else how.table().tobytes(),
                "standardized": how.dtype if how is not None and how.standardized else "",
                "planar": how is not None and how.layout == "CHW",
                "noise": noise,
            }
        )


class OpFailed(Exception):
    """A user's function raised, or returned something other than an image of its shape."""

    def bad(self) -> DecodeFailure:
        """The failure of its sample."""
        bad = FunctionFailed("op_failed", str(self))
        bad.error = self.__cause__ if isinstance(self.__cause__, Exception) else self
        return bad


def call_function(
    op: Function, values: dict[str, Any], row: int, image: np.ndarray, sample: Any = None
) -> np.ndarray:
    """Apply a user's function, in place if its images stay alike; OpFailed for wrong results.

    sample: its fields, with `take(names)` and `put(values)`.
    """
    given = image[...]  # a view: its shape and its flags are the function's own
    fields = sample.take(op.fields) if op.fields else {}
    try:
        result: Any = op.function(given, values["u"][row], **fields)
    except MemoryError:  # says nothing about this sample
        raise
    except Exception as error:  # the feed's policy decides what it means
        raise OpFailed(f"{op!r} raised {type(error).__name__}: {error}{_place(error)}") from error
    if op.annotations:
        names = ("image", *op.annotations)
        if not isinstance(result, Mapping) or any(name not in result for name in names):
            got = list(result) if isinstance(result, Mapping) else type(result).__name__
            raise OpFailed(f"{op!r} must return a mapping of {', '.join(names)}, returned {got}")
        try:
            sample.put({name: result[name] for name in op.annotations})
        except ValueError as error:
            raise OpFailed(f"{op!r} must return {error}") from error
        result = result["image"]
    shape = image.shape
    dtype = image.dtype
    if op.returns is not None:
        shape = op.returns.shape
        dtype = np.dtype(op.returns.dtype)
    if not isinstance(result, np.ndarray) or result.dtype != dtype or result.shape != shape:
        got = type(result).__name__
        if isinstance(result, np.ndarray):
            got = f"{result.dtype}{list(result.shape)}"
        stated = "as it got" if op.returns is None else "as stated"
        raise OpFailed(f"{op!r} must return {dtype}{list(shape)}, {stated}, returned {got}")
    if op.returns is not None:
        return np.array(result)  # the function may keep its own
    if result is not given:
        np.copyto(image, result)  # overlapping memory, as of image[:, ::-1], is fine
    return image


def _bits(out: np.ndarray) -> np.ndarray:
    """Memory for results as native code takes it, which does not know bfloat16."""
    return out.view(np.uint16) if out.dtype.kind == "V" else out


def _place(error: Exception) -> str:
    """File and line of the user's function that raised."""
    at = error.__traceback__ and error.__traceback__.tb_next  # the first is the call above
    return f" ({Path(at.tb_frame.f_code.co_filename).name}, line {at.tb_lineno})" if at else ""


def _halves(layer: Layer, number: int) -> list[_Layer]:
    """The layer, or, if only some of its ops run natively, both kinds apart."""
    halves = []
    for native in (True, False):
        kept = tuple(k for k, op in enumerate(layer.ops) if is_native(op) == native)
        if kept:
            halves.append(_Layer(Layer(tuple(layer.ops[k] for k in kept)), native, number, kept))
    return halves


@dataclass(slots=True)
class _Call:
    """Arguments and results of one `run`."""

    count: int  # samples
    work: Work
    out: np.ndarray
    results: dict[int, DecodeFailure]
    stop: Stop
    record: Callable[[np.ndarray], None]  # spans, int64 (n, 5)

    @contextmanager
    def timed(self, stage: int) -> Iterator[None]:
        """Record time in Python as a span of a stage: a column of the spans for `record`."""
        span = np.zeros((1, 5), np.int64)
        span[0, :2] = threading.get_native_id(), steady_ns()
        try:
            yield
        finally:
            span[0, stage] = steady_ns() - span[0, 1]
            self.record(span)
