"""NVIDIA DALI: the whole program as one graph, on this rank's GPU or, without a GPU, on the CPU.

A sample's pixels do not depend on the other samples in its batch. Files that DALI cannot decode, or
decodes differently from the cpu backend, go through the cpu backend's decoding, window and ops, and
are only converted on the device; so is the share of JPEGs that the CPU takes over from a GPU. DALI
reports that a batch failed but not which sample: such a batch is halved until the sample is
isolated, and the decode engine decides. Arrays are never bad.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from fastfeed.backends.cpu.mixing import mix
from fastfeed.backends.cpu.native_program import NativeProgram
from fastfeed.backends.dali import chain
from fastfeed.backends.dali.graph import Graph, gpu_count, no_gpu
from fastfeed.backends.dali.pipeline import RenderPipeline
from fastfeed.backends.dali.plain import plain_rows, supports
from fastfeed.backends.decode_share import (
    DecodeShare,
    decodes_on_cpu,
    measurements_file,
    read_measured,
)
from fastfeed.backends.gpu_memory import GpuMemory, HostMemory, refused_all
from fastfeed.backends.options import GpuDecode, as_gpu_decode
from fastfeed.decode.base import DecodeFailure, Header, Request, Stop
from fastfeed.decode.executor import Executor, Samples
from fastfeed.errors import ConfigError, DeviceError
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.mix import MixPlan
from fastfeed.ops.program.program import Program, Work
from fastfeed.runtime.timeline import Timeline

native_threads = False
whole_batches = True

_STATUS = 16  # the same where it has no reason, only a status per image
# if at least this many samples all fail in DALI but the engine decodes them, DALI is at fault
_ALL = 4


@dataclass(slots=True)
class _RenderCall:
    """Arguments and results of one `render`."""

    blobs: Sequence[Any]
    headers: Sequence[Header]
    work: Work
    out: Any
    stop: Stop
    number: int
    results: list[DecodeFailure | None]
    in_flight: list[Any] = field(default_factory=list)  # sources of copies that may still be queued

    def request(self, rows: list[int], filter: str) -> Request:
        """The decode request for these rows."""
        return Request(self.blobs, self.headers, self.work.windows, filter)[rows]


@runs_on_gpu("dali")
class DaliBackend:
    """Renders whole batches from any thread, one per pipeline at a time.

    A pipeline is built with its first batch.
    """

    def __init__(
        self,
        program: Program,
        executor: Executor,
        timeline: Timeline,
        batch: int,
        gpu: int,
        how: GpuDecode,
    ) -> None:
        chain.check(program)
        self._executor = executor
        own = replace(program.raw(), views=0, others=(), mix=None)  # here views are samples
        self._native = NativeProgram(own, executor, timeline)
        self._program = program
        self._timeline = timeline
        self.rendered = program
        count = gpu_count()
        # if the launcher makes one GPU visible per process, that is number 0
        self._device = gpu % count if count else None
        self._memory: Any = HostMemory() if self._device is None else GpuMemory(self._device)
        self.memory_name = self._memory.name
        self.xp = self._memory.xp
        self.empty = self._memory.empty
        self.synchronize = self._memory.synchronize
        self.device_context = self._memory.device_context
        path = measurements_file()
        encoded = program.decode is not None
        load = how.hw_load
        if load is None:
            load = read_measured(path).get("hw_load", self._memory.hw_load)
        self._graph = Graph(
            program, batch * max(1, program.views), executor.threads, self._device, load
        )
        where = (
            f"{how.engine} on {self._device}, {executor.threads} threads,"
            f" {'x'.join(map(str, program.pixels.size))}"
        )
        where += f", {len(program.layers)} layers" if program.chain else ""
        where += "" if how.hw_load is None else f", load {how.hw_load:g}"
        self.share = DecodeShare(
            path, f"cpu share alongside {where}", how.cpu_share if encoded else 0.0
        )
        self._pipelines: queue.SimpleQueue[RenderPipeline | None] = queue.SimpleQueue()
        # on the CPU one pipeline has all threads
        self.lanes = how.lanes if self._device is not None else 1
        for _ in range(self.lanes):
            self._pipelines.put(None)  # not built yet
        self._black = program.convert.table()[0]

    def render_native(
        self, samples: Samples, skip: np.ndarray, work: Work, out: Any, stop: Stop, batch: int = 0
    ) -> dict[int, DecodeFailure]:
        """`render` of samples held by native threads, except those in `skip` (bool (n,))."""
        rows = np.flatnonzero(~skip).tolist()
        if not rows:
            return {}
        blobs = [self._executor.blob(samples, row) for row in rows]
        headers = [samples.header(row) for row in rows]
        is_whole = len(rows) == len(out)
        target = out if is_whole else self.empty((len(rows), *out.shape[1:]), out.dtype.name)
        failures = self.render(blobs, headers, work[rows], target, stop, batch)
        if not is_whole:
            with self.device_context():  # `target` is given back to this memory
                out[rows] = target
        return {row: bad for row, bad in zip(rows, failures, strict=True) if bad is not None}

    def render(
        self,
        blobs: Sequence[Any],
        headers: Sequence[Header],
        work: Work,
        out: Any,
        stop: Stop,
        batch: int = 0,
    ) -> list[DecodeFailure | None]:
        views = max(1, self._program.views)
        if (
            self._program.views
        ):  # each is a separate sample here, with its own header: a handle can be used only once
            blobs = [blob for blob in blobs for _ in range(views)]
            names = [header.name for header in headers for _ in range(views)]
            samples = self._executor.borrow(blobs, stop, names.__getitem__)
            headers = [samples.header(row) for row in range(len(blobs))]
            work = replace(work, views=1)
            out = out.reshape(-1, *out.shape[2:])
        call = _RenderCall(blobs, headers, work, out, stop, batch, [None] * len(blobs))
        try:
            with self.device_context():
                self._fill(call)
        finally:
            self.synchronize()  # buffers may be overwritten once they are released
        results = call.results
        return [
            next((bad for bad in results[k : k + views] if bad), None)
            for k in range(0, len(results), views)
        ]

    def mix(
        self, samples: Any, members: np.ndarray, plan: MixPlan, out: Any, stop: Stop, batch: int = 0
    ) -> None:
        with self._timeline.span("mix", batch), self.device_context():
            mix(samples, members, plan, out, self.xp, self._program.spec.layout)
        self.synchronize()  # `samples` may be released

    def _fill(self, work: _RenderCall) -> None:
        share = self.share.value
        samples = [*zip(work.blobs, work.headers, strict=True)]
        given = [
            row
            for row, (blob, h) in enumerate(samples)
            if h.format != "JPEG" or not decodes_on_cpu(blob, share)
        ]
        plain = plain_rows(
            self._program, [work.blobs[row] for row in given], [work.headers[row] for row in given]
        )
        rest = [row for row, is_plain in zip(given, plain, strict=True) if is_plain]
        own = sorted({*range(len(samples))}.difference(rest))
        if not own or not rest:
            self._by_engine(work, own)
            self.share.note((0, 0.0), (len(rest), self._by_graph(work, rest)))
            return
        with ThreadPoolExecutor(1, "fastfeed-graph") as pool:  # both at the same time
            started = time.perf_counter()
            graph = pool.submit(self._by_graph, work, rest)
            pixels = self._pixels(work, own)
            cpu = time.perf_counter() - started
            gpu = graph.result()
        self.share.note((len(own), cpu) if share > 0 else (0, 0.0), (len(rest), gpu))
        self._store(work, own, *pixels)

    def decode_path(self) -> str:
        where = self._memory.place
        if not supports(self._program):
            return f"{self._executor.name}; converted on {where}"
        if self._program.decode is None:
            return f"DALI on {where}"
        share = self.share
        if share.value >= 1:
            return f"{self._executor.name}; converted on {where}"
        others = "files it shows otherwise"
        if share.value > 0:
            others += (
                f", and {share.value:.0%} of JPEGs{'' if share.measured else ' (being measured)'}"
            )
        return f"DALI on {where}; {others}: {self._executor.name}"

    def _by_graph(self, work: _RenderCall, rows: list[int]) -> float:
        """Render rows by a pipeline, failed ones by the engine; returns the pipeline's seconds."""
        if not rows:
            return 0.0
        with self.device_context():
            return self._run_on_lane(work, rows)

    def _run_on_lane(self, work: _RenderCall, rows: list[int]) -> float:
        pipeline = self._pipelines.get()
        started = time.perf_counter()
        try:
            if pipeline is None:
                pipeline = RenderPipeline(self._graph)
            refused = self._run_halving(work, rows, pipeline)
        finally:
            self._pipelines.put(pipeline)
        seconds = time.perf_counter() - started
        self._by_engine(work, [row for row, _ in refused])
        errors = [
            error for row, error in refused if error is not None and work.results[row] is None
        ]
        if (
            len(errors) == len(rows) >= _ALL
        ):  # DALI is at fault, and the CPU must not take over silently
            raise DeviceError(f"DALI: {errors[0]}") from errors[0]
        good = sum(work.results[row] is None for row, _ in refused)
        if not errors and good == len(rows) >= _STATUS and not work.stop.is_set():
            raise DeviceError(refused_all("DALI", good))
        return seconds

    def _run_halving(
        self, work: _RenderCall, rows: list[int], pipeline: RenderPipeline
    ) -> list[tuple[int, Exception | None]]:
        """Fill these rows; returns the rows that failed, with DALI's reason if it has one."""
        if work.stop.is_set():
            return []
        request = work.request(rows, self._program.filter)
        part = work.work[rows]
        try:
            with self._timeline.span("dali", work.number):
                images, rendered_rows = pipeline.run(request.blobs, request.headers, part)
                if rendered_rows:
                    work.in_flight.append(images)
                    self._scatter(
                        work,
                        [rows[k] if k >= 0 else -1 for k in rendered_rows],
                        self._memory.as_array(images),
                    )
        except (
            Exception
        ) as error:  # DALI has no specific exception for bad bytes, so any may mean that
            self._memory.check_room(error)
            if self._program.decode is None:
                raise
            if len(rows) == 1:
                return [(rows[0], error)]
            middle = len(rows) // 2
            return self._run_halving(work, rows[:middle], pipeline) + self._run_halving(
                work, rows[middle:], pipeline
            )
        rendered_set = set(rendered_rows)
        return [(row, None) for k, row in enumerate(rows) if k not in rendered_set]

    @staticmethod
    def _scatter(work: _RenderCall, rows: list[int], images: Any) -> None:
        if rows == list(range(len(work.out))):
            work.out[...] = images
            return
        good = [k for k, row in enumerate(rows) if row >= 0]
        work.out[[rows[k] for k in good]] = images if len(good) == len(rows) else images[good]

    def _by_engine(self, work: _RenderCall, rows: list[int]) -> None:
        if rows:
            self._store(work, rows, *self._pixels(work, rows))

    def _pixels(
        self, work: _RenderCall, rows: list[int]
    ) -> tuple[np.ndarray, list[DecodeFailure | None]]:
        """Render these rows on the CPU, on all threads."""
        results = np.empty(
            (len(rows), *(side or 0 for side in self._program.augmented.shape)), np.uint8
        )
        names = [work.headers[row].name for row in rows]
        samples = self._executor.borrow(
            [work.blobs[row] for row in rows], work.stop, names.__getitem__
        )
        skip = np.zeros(len(rows), bool)
        skip[list(samples.bad)] = True
        bad = samples.bad | self._native.run(
            samples, skip, work.work[rows], results, work.stop, work.number
        )
        return results, [bad.get(k) for k in range(len(rows))]

    def _store(
        self,
        work: _RenderCall,
        rows: list[int],
        pixels: np.ndarray,
        failures: list[DecodeFailure | None],
    ) -> None:
        """Convert rows into the batch; bad ones become black."""
        for row, bad in zip(rows, failures, strict=True):
            work.results[row] = bad
        work.in_flight.append(pixels)
        self._memory.store(self._program.convert, pixels, work.out, rows)
        bad_rows = [row for row, bad in zip(rows, failures, strict=True) if bad is not None]
        if bad_rows:
            black = self.xp.asarray(self._black)
            work.out[bad_rows] = (
                black[:, None, None] if self._program.spec.layout == "CHW" else black
            )


def compile(
    program: Program,
    executor: Executor,
    timeline: Timeline,
    batch: int,
    gpu: int = 0,
    decode: str | GpuDecode = "auto",
) -> DaliBackend:
    """The entry point of BACKENDS["dali"]."""
    if decode in ("gpu", "hybrid") and not gpu_count():
        why = f" ({reason})" if (reason := no_gpu()) else ""
        raise ConfigError(
            f'decode="{decode}" needs an NVIDIA GPU and its driver, none is here{why}; use'
            ' decode="cpu"',
            field="decode",
        )
    return DaliBackend(program, executor, timeline, batch, gpu, as_gpu_decode(decode, "dali"))


def engine(decode: str | GpuDecode) -> Literal["auto", "pillow"]:
    """The `decode` argument of `open_executor`, for the files that DALI does not decode."""
    return "pillow" if decode == "auto" and not gpu_count() else "auto"
