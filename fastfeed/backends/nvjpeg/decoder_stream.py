"""One batch at a time from files to rows: decoders of the engine, and the GPU work after them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.backends.gpu_memory import GpuMemory
from fastfeed.backends.nvjpeg.windows import LAYOUT, WindowKernel
from fastfeed.decode.base import Stop
from fastfeed.decode.executor import Samples
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.program.program import Work
from fastfeed.runtime.timeline import Timeline

_BYTES = 1 << 30  # of decoded planes at a time
_STEP = 64 << 20  # bytes by which memory grows


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """Arguments of one call of `render`."""

    samples: Samples
    work: Work
    out: Any
    stop: Stop
    number: int


class _Room:
    """Memory on the GPU that grows, in large steps: CuPy keeps memory that is freed."""

    def __init__(self, memory: GpuMemory) -> None:
        self._memory = memory
        self._held: Any = None

    def take(self, count: int) -> Any:
        """At least `count` bytes until the next call; no work that was queued before uses them."""
        if self._held is None or self._held.nbytes < count:
            self._held = None  # given back first
            self._held = self._memory.empty((-(-count // _STEP) * _STEP,), "uint8")
            # the engine writes at once, whatever a stream has left to do
            self._memory.synchronize()
        return self._held


@runs_on_gpu("nvjpeg")
class DecoderStream:
    """Decoders, windows and chain of one batch at a time."""

    def __init__(
        self, decoder: Any, windows: WindowKernel, chain: Any, memory: GpuMemory, timeline: Timeline
    ) -> None:
        """decoder: a native NvjpegDecoder; chain: DALI's ops after the windows, or None."""
        self._decoder = decoder
        self._kernel = windows
        self._chain = chain
        self._memory = memory
        self._timeline = timeline
        self._planes = _Room(memory)
        self._windows = _Room(memory)

    def plan(
        self, call: RenderRequest, skip: np.ndarray, cpu_share: float
    ) -> tuple[np.ndarray, int]:
        """(`LAYOUT` (n,), number of files that nvJPEG was asked about).

        The layout has 0 bytes where the CPU decodes a sample.
        """
        layouts = np.zeros(len(call.samples), LAYOUT)
        with self._timeline.span("parse", call.number):
            return layouts, self._decoder.plan(
                call.samples.handle, skip, cpu_share, _numbers(layouts)
            )

    def fill(self, call: RenderRequest, rows: np.ndarray, layouts: np.ndarray) -> np.ndarray:
        """Fill rows of the batch; returns those whose file the engine refused after all."""
        refused = [rows[:0]]
        with self._memory.device_context():
            for part in _parts(rows, layouts["bytes"]):
                if call.stop.is_set():
                    break
                sizes = layouts["bytes"][part]
                first = int(self._planes.take(int(sizes.sum())).__cuda_array_interface__["data"][0])
                begins = (first + np.cumsum(sizes) - sizes).astype(np.uint64)
                failed = np.zeros(len(part), bool)
                with self._timeline.span("decode", call.number):
                    self._decoder.decode(
                        call.samples.handle, part, begins, _numbers(layouts), failed
                    )
                refused.append(part[failed])
                if not failed.all():
                    with self._timeline.span("augment", call.number):
                        self._cut(call, part[~failed], layouts, begins[~failed])
        return np.concatenate(refused)

    def _cut(
        self, call: RenderRequest, rows: np.ndarray, layouts: np.ndarray, begins: np.ndarray
    ) -> None:
        """Turn decoded planes into finished samples."""
        if not call.out.flags.c_contiguous:
            raise ValueError("a batch on the GPU must be contiguous")
        tasks = self._kernel.tasks(rows, call.work.windows, layouts, begins)
        if self._chain is None:
            self._kernel.run(tasks, call.out)
            self._memory.synchronize()  # before the planes are written again
            return
        shape = (len(tasks), *self._kernel.shape)
        windows = self._windows.take(math.prod(shape))[: math.prod(shape)].reshape(*shape)
        target = call.out.reshape(-1, *call.out.shape[-3:])
        every = tasks["row"].tolist()
        tasks["row"] = np.arange(len(tasks))
        self._kernel.run(tasks, windows)
        self._memory.synchronize()
        try:
            images = self._chain.run(windows, call.work[rows])
        except Exception as error:  # DALI has no class for it
            self._memory.check_room(error)
            raise
        target[every] = self._memory.as_array(images)
        self._memory.synchronize()  # before DALI has these images back


def _numbers(layouts: np.ndarray) -> np.ndarray:
    return layouts.view(np.int64).reshape(len(layouts), -1)


def _parts(rows: np.ndarray, sizes: np.ndarray) -> Iterator[np.ndarray]:
    """Runs of rows that fit into a stream's memory; at least one row each."""
    ends = np.cumsum(sizes[rows])
    first = 0
    while first < len(rows):
        held = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, held + _BYTES, "right")))
        yield rows[first:last]
        first = last
