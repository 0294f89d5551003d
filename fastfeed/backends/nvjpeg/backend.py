"""NVIDIA's JPEG engine without a library between: decoded planes, then one CUDA kernel for all that is left.

The engine decodes baseline JPEGs; the kernel (`fastfeed._native`) asks it, without the GIL, which of a batch it takes.
All other files, damaged ones and a share that is asked for are the CPU's, at the same time, and are copied to the GPU.
A file that the engine refuses later is decoded by the CPU, which decides whether it is bad. Python does nothing per
image.

What differs from the cpu backend: the engine's inverse DCT (2 levels of 255), sums (one level), and JPEGs shrunk to
less than a third, which the cpu backend shrinks in the DCT domain first.
"""

from __future__ import annotations

import importlib
import logging
import math
import queue
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fastfeed.backends.cpu.mixing import mix
from fastfeed.backends.cpu.native_program import NativeProgram
from fastfeed.backends.decode_share import DecodeShare, kept_file
from fastfeed.backends.gpu_memory import GpuMemory
from fastfeed.backends.nvjpeg.library import DRIVER, find_nvjpeg
from fastfeed.backends.nvjpeg.windows import LAYOUT, WindowKernel
from fastfeed.backends.options import GpuDecode
from fastfeed.decode.base import Bad, DecodeEngine, Header, Stop
from fastfeed.decode.executor import Executor, Samples
from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.ops.convert import Convert
from fastfeed.ops.mix_plan import MixPlan
from fastfeed.ops.program.program import Program, Work
from fastfeed.proven import runs_on_gpu
from fastfeed.runtime.timeline import Timeline

__all__ = ["NvjpegBackend", "compile", "engine", "native_threads", "whole_batches"]

_log = logging.getLogger("fastfeed")

native_threads = True
whole_batches = True

_DECODERS = 2  # of a lane: four at once were the fastest on an H200's seven engines, and two lanes are the default
_BYTES = 1 << 30  # of decoded planes at a time, in each lane
_STEP = 64 << 20  # bytes by which memory grows
_ALL = 4  # if so many are all refused and the CPU decodes them, the GPU is at fault


class _Room:
    """Memory on the GPU that grows, in large steps: CuPy keeps what is given back."""

    def __init__(self) -> None:
        self._held: Any = None

    def take(self, count: int, memory: GpuMemory) -> Any:
        """At least so many bytes, until the next call; nothing that was queued before uses them."""
        if self._held is None or self._held.nbytes < count:
            self._held = None  # given back first
            self._held = memory.empty((-(-count // _STEP) * _STEP,), "uint8")
            memory.synchronize()  # the engine writes at once, whatever a stream has left to do
        return self._held


@dataclass(slots=True)
class _Lane:
    """Decoders, and memory for what they decode. For one batch at a time."""

    decoder: Any
    chain: Any  # DALI's ops, or None
    planes: _Room = field(default_factory=_Room)
    windows: _Room = field(default_factory=_Room)


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of render."""

    samples: Samples
    work: Work
    out: Any
    stop: Stop
    number: int


@runs_on_gpu("nvjpeg")
class NvjpegBackend:
    """Renders whole batches from any thread, one per lane at a time. A lane is built with its first batch."""

    def __init__(
        self,
        program: Program,
        timeline: Timeline,
        batch: int,
        executor: Executor,
        gpu: int,
        cuda: int,
        how: GpuDecode,
        engine: str,
    ) -> None:
        if program.decode is None:
            raise ConfigError('engine="nvjpeg" decodes files, got a source of arrays; use engine="dali"')
        self._program, self._timeline, self._engine, self.rendered = program, timeline, engine, program
        self._native = NativeProgram(replace(program, mix=None), program.convert, executor)
        self._decoder = partial(executor.native.NvjpegDecoder, find_nvjpeg(cuda), DRIVER, gpu, _DECODERS)
        self._memory = GpuMemory(gpu, "nvjpeg")
        self.memory_name, self.xp, self.empty = self._memory.name, self._memory.xp, self._memory.empty
        self.synchronize, self.device_context = self._memory.synchronize, self._memory.device_context
        where = f"nvjpeg on {gpu}, {executor.threads} threads, {'x'.join(map(str, program.pixels.size))}"
        self.share = DecodeShare(kept_file(), f"cpu share alongside {where}", how.cpu_share)
        self._chain: Any = None
        if program.layers:  # DALI has these ops; without them it is not needed
            pipeline = importlib.import_module("fastfeed.backends.dali.pipeline")
            importlib.import_module("fastfeed.backends.dali.chain").check(program)
            self._chain = partial(pipeline.ChainLane, program, batch * max(1, program.views), executor.threads, gpu)
        convert = Convert.of([], 3) if self._chain else program.convert
        with self.device_context():
            self._windows = WindowKernel(program, convert, self.xp)
        self.lanes, self.decoded, self._warned = how.lanes, 0, False  # decoded: images, by the engine
        self._lanes: queue.SimpleQueue[_Lane | None] = queue.SimpleQueue()
        self._lanes.put(self._made())  # now, so that an error comes from the constructor
        for _ in range(self.lanes - 1):
            self._lanes.put(None)

    def render(
        self, blobs: Sequence[Any], headers: Sequence[Header], work: Work, out: Any, stop: Stop, batch: int = 0
    ) -> list[Bad | None]:
        raise AssertionError("native threads hold the samples of this backend")

    def render_native(
        self, samples: Samples, skip: np.ndarray, work: Work, out: Any, stop: Stop, batch: int = 0
    ) -> dict[int, Bad]:
        """`render` of samples that native threads hold, but for those to be skipped (bool (n,))."""
        call = _Call(samples, work, out, stop, batch)
        lane = self._lanes.get()
        try:
            lane = lane or self._made()
            bad = self._fill(call, skip, lane)
            self.synchronize()  # buffers may be overwritten once they are released
            return bad
        except BaseException as error:
            with suppress(Exception):  # of a GPU that is lost: the first error says more
                self.synchronize()
            if isinstance(error, RuntimeError):
                self._memory.check_room(error)  # nvJPEG's own words for it
            raise
        finally:
            self._lanes.put(lane)

    def mix(self, samples: Any, members: np.ndarray, plan: MixPlan, out: Any, stop: Stop, batch: int = 0) -> None:
        with self._timeline.span("mix", batch), self.device_context():
            mix(samples, members, plan, out, self.xp, self._program.spec.layout)
        self.synchronize()  # `samples` may be released

    def decode_path(self) -> str:
        share = self.share
        others = "files that it does not take"
        if share.value > 0:
            others += f", and {share.value:.0%} of JPEGs{'' if share.measured else ' (being measured)'}"
        return f"the JPEG engine of {self._memory.place} -> CUDA; {others}: {self._engine}"

    def _made(self) -> _Lane:
        try:
            return _Lane(self._decoder(), self._chain and self._chain())
        except RuntimeError as error:  # no driver, GPU or engine, in the kernel's words
            self._memory.check_room(error)
            raise ConfigError(f'engine="nvjpeg" cannot start: {error}; use engine="dali" or decode="cpu"') from error

    def _fill(self, call: _Call, skip: np.ndarray, lane: _Lane) -> dict[int, Bad]:
        layouts = np.zeros(len(call.samples), LAYOUT)
        with self._timeline.span("parse", call.number):
            share = self.share.value
            asked = lane.decoder.plan(call.samples.handle, skip, share, _numbers(layouts))
        rows = np.flatnonzero(layouts["bytes"])
        if asked >= _ALL and not len(rows):
            self._warn_refused(asked)
        by_cpu = ~skip
        by_cpu[rows] = False
        if not by_cpu.any():
            refused, seconds = self._by_gpu(call, rows, layouts, lane)
            self.share.note((0, 0.0), (len(rows), seconds))
            bad: dict[int, Bad] = {}
        else:
            with ThreadPoolExecutor(1, "fastfeed-nvjpeg") as pool:  # both at the same time
                cpu = pool.submit(self._by_cpu, call, by_cpu)
                refused, seconds = self._by_gpu(call, rows, layouts, lane)
                host, bad, spent = cpu.result()
            self._store(call, by_cpu, host, bad)
            own = (int(by_cpu.sum()), spent) if share > 0 else (0, 0.0)
            self.share.note(own, (len(rows), seconds))
        if len(refused):
            again = np.zeros_like(by_cpu)
            again[refused] = True
            host, found, _ = self._by_cpu(call, again)
            self._store(call, again, host, found)
            if len(refused) == len(rows) >= _ALL and not found and not call.stop.is_set():
                raise RuntimeError(
                    f"nvJPEG decoded none of {len(rows)} images that the CPU decodes; its GPU may have no memory left, "
                    'or its driver be too old: nvidia-smi shows both. decode="cpu" does without it'
                )
            bad |= found
        return bad

    def _by_gpu(self, call: _Call, rows: np.ndarray, layouts: np.ndarray, lane: _Lane) -> tuple[np.ndarray, float]:
        """Fill these rows; returns those that the engine refused after all, and the seconds it took."""
        started, refused = time.perf_counter(), [rows[:0]]
        with self.device_context():
            for part in _parts(rows, layouts["bytes"]):
                if call.stop.is_set():
                    break
                ends = np.cumsum(layouts["bytes"][part])
                first = int(lane.planes.take(int(ends[-1]), self._memory).__cuda_array_interface__["data"][0])
                begins = (first + ends - layouts["bytes"][part]).astype(np.uint64)
                failed = np.zeros(len(part), bool)
                with self._timeline.span("decode", call.number):
                    lane.decoder.decode(call.samples.handle, part, begins, _numbers(layouts), failed)
                refused.append(part[failed])
                self.decoded += int((~failed).sum())
                if not failed.all():
                    with self._timeline.span("augment", call.number):
                        self._cut(call, part[~failed], layouts, begins[~failed], lane)
        return np.concatenate(refused), time.perf_counter() - started

    def _cut(self, call: _Call, rows: np.ndarray, layouts: np.ndarray, begins: np.ndarray, lane: _Lane) -> None:
        """From planes to finished samples."""
        if not call.out.flags.c_contiguous:
            raise ValueError("a batch on the GPU must be contiguous")
        tasks = self._windows.tasks(rows, call.work.windows, layouts, begins)
        if lane.chain is None:
            self._windows.run(tasks, call.out)
            self.synchronize()  # before the planes are written again
            return
        shape = (len(tasks), *(side or 0 for side in self._program.pixels.shape))
        windows = lane.windows.take(math.prod(shape), self._memory)[: math.prod(shape)].reshape(*shape)
        target = call.out.reshape(-1, *call.out.shape[call.out.ndim - 3 :])
        every, tasks["row"] = tasks["row"].tolist(), np.arange(len(tasks))
        self._windows.run(tasks, windows)
        self.synchronize()
        try:
            images = lane.chain.run(windows, call.work[rows])
        except Exception as error:  # DALI has no class for it
            self._memory.check_room(error)
            raise
        target[every] = self._memory.as_array(images)
        self.synchronize()  # before DALI has these images back

    def _by_cpu(self, call: _Call, chosen: np.ndarray) -> tuple[np.ndarray, dict[int, Bad], float]:
        """Render these samples (bool (n,)) on the CPU's threads: (a batch with their rows, bad ones, seconds)."""
        started = time.perf_counter()
        host = np.empty(call.out.shape, call.out.dtype)  # only pages that are written to exist
        record = partial(self._timeline.record_native, call.number, ("decode", "augment", "convert"))
        bad = self._native.run(call.samples, ~chosen, call.work, host, call.stop, record)
        return host, bad, time.perf_counter() - started

    def _store(self, call: _Call, chosen: np.ndarray, host: np.ndarray, bad: dict[int, Bad]) -> None:
        """Copy rows that the CPU made to the GPU."""
        rows = [row for row in np.flatnonzero(chosen).tolist() if row not in bad]
        if rows and not call.stop.is_set():
            with self.device_context():
                call.out[rows] = self.xp.asarray(host[rows])
                self.synchronize()  # `host` goes

    def _warn_refused(self, count: int) -> None:
        if not self._warned:
            _log.warning(
                "The JPEG engine takes none of %d baseline JPEGs of a batch, and the CPU decodes them; is its driver "
                'older than nvJPEG? decode="cpu" does the same, and needs no memory of the GPU.',
                count,
            )
        self._warned = True


def _numbers(layouts: np.ndarray) -> np.ndarray:
    return layouts.view(np.int64).reshape(len(layouts), -1)


def _parts(rows: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Runs of rows that fit into a lane's memory; at least one row each."""
    parts, first, held = list[np.ndarray](), 0, 0
    for k, size in enumerate(sizes[rows].tolist()):
        if held and held + size > _BYTES:
            parts.append(rows[first:k])
            first, held = k, 0
        held += size
    return [*parts, rows[first:]] if len(rows) else []


def _gpu(rank_gpu: int) -> tuple[int, int]:
    """The number of this rank's GPU, and the newest version of CUDA that its driver runs."""
    try:
        runtime = importlib.import_module("cupy").cuda.runtime
    except ImportError as error:
        raise MissingExtra(
            "batches on a GPU need CuPy: pip install 'fastfeed[cuda13]', or 'fastfeed[cuda12]' for an older driver"
        ) from error
    try:
        count = runtime.getDeviceCount()
    except Exception as error:  # CuPy's class of it
        raise ConfigError(f'engine="nvjpeg" needs an NVIDIA GPU and its driver, none is here ({error})') from error
    if not count:
        raise ConfigError('engine="nvjpeg" needs an NVIDIA GPU, this process sees none; use decode="cpu"')
    # if the launcher makes one GPU visible per process, that is number 0
    return rank_gpu % count, runtime.driverGetVersion() // 1000


def compile(
    program: Program,
    engine: DecodeEngine,
    timeline: Timeline,
    batch: int,
    threads: int,
    gpu: int = 0,
    decode: Any = "auto",
    executor: Executor | None = None,
) -> NvjpegBackend:
    """The entry point of BACKENDS["nvjpeg"]."""
    if executor is None:
        raise ConfigError('engine="nvjpeg" needs the kernel, which is not built: `fastfeed doctor` says how')
    shares = {"auto": 0.0, "cpu": 1.0, "gpu": 0.0, "hybrid": None}
    how = decode if isinstance(decode, GpuDecode) else GpuDecode("nvjpeg", cpu_share=shares[decode])
    return NvjpegBackend(program, timeline, batch, executor, *_gpu(gpu), how, engine.name)


def engine(decode: Any) -> Any:
    """The `decode` argument for `decode.engine_for`: what decodes the files that the engine does not take."""
    return "auto"
