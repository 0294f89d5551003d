"""NVIDIA's JPEG engine, called directly: decoded planes, then one CUDA kernel for all other work.

The engine decodes baseline JPEGs; the native extension (`fastfeed._native`) asks it, without the
GIL, which of a batch it takes. All other files, damaged ones and a share that is asked for are the
CPU's, at the same time, and are copied to the GPU. A file that the engine refuses later is decoded
by the CPU, which decides whether it is bad. Python does nothing per image.

What differs from the cpu backend: the engine's inverse DCT (2 levels of 255), sums (one level), and
JPEGs shrunk to less than a third, which the cpu backend shrinks in the DCT domain first.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import queue
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.backends.cpu.mixing import mix
from fastfeed.backends.cpu.native_program import NativeProgram
from fastfeed.backends.decode_share import DecodeShare, measurements_file
from fastfeed.backends.gpu_memory import GpuMemory, find_cupy, refused_all
from fastfeed.backends.nvjpeg.decoder_stream import DecoderStream, RenderRequest
from fastfeed.backends.nvjpeg.windows import WindowKernel
from fastfeed.backends.options import GpuDecode, as_gpu_decode
from fastfeed.decode.base import DecodeFailure, Stop
from fastfeed.decode.executor import Executor, Samples
from fastfeed.errors import ConfigError, DeviceError, MissingExtra
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.convert import Convert
from fastfeed.ops.mix import MixPlan
from fastfeed.ops.program.program import Program, Work
from fastfeed.printable import log
from fastfeed.runtime.timeline import Timeline

native_threads = True
whole_batches = True

# of a stream: four at once were the fastest on an H200's seven engines, and two streams are the
# default
_DECODERS = 2
_ALL = 4  # if at least this many are all refused, but the CPU decodes them, the GPU is at fault


@runs_on_gpu("nvjpeg")
class NvjpegBackend:
    """Renders whole batches from any thread, one per stream at a time.

    A stream is built with its first batch.
    """

    def __init__(
        self,
        program: Program,
        executor: Executor,
        timeline: Timeline,
        batch: int,
        gpu: int,
        cuda: int,
        how: GpuDecode,
    ) -> None:
        if program.decode is None:
            raise ConfigError(
                'engine="nvjpeg" decodes files, got a source of arrays; use engine="dali"',
                field="engine",
            )
        self._program = program
        self._timeline = timeline
        self._others = executor.name
        self.rendered = program
        self._native = NativeProgram(replace(program, mix=None), executor, timeline)
        self._decoder = partial(
            executor.native.NvjpegDecoder, find_nvjpeg(cuda), DRIVER, gpu, _DECODERS
        )
        self._memory = GpuMemory(gpu, "nvjpeg")
        self.memory_name = self._memory.name
        self.xp = self._memory.xp
        self.empty = self._memory.empty
        self.synchronize = self._memory.synchronize
        self.device_context = self._memory.device_context
        where = (
            f"nvjpeg on {gpu}, {executor.threads} threads,"
            f" {'x'.join(map(str, program.pixels.size))}"
        )
        self.share = DecodeShare(measurements_file(), f"cpu share alongside {where}", how.cpu_share)
        self._chain: Any = None
        program.refuse_per_image('engine="nvjpeg"')
        if program.layers:  # DALI has these ops; without them it is not needed
            pipeline = importlib.import_module("fastfeed.backends.dali.pipeline")
            importlib.import_module("fastfeed.backends.dali.chain").check(program)
            self._chain = partial(
                pipeline.OpPipeline, program, batch * max(1, program.views), executor.threads, gpu
            )
        convert = Convert.of([], 3) if self._chain else program.convert
        with self.device_context():
            self._windows = WindowKernel(program, convert, self.xp)
        # decoded: images, by the engine
        self.decoded = 0
        self._warned = False
        self._streams: queue.SimpleQueue[DecoderStream | None] = queue.SimpleQueue()
        self._streams.put(self._make_stream())  # now, so that an error comes from the constructor
        for _ in range(how.lanes - 1):
            self._streams.put(None)

    def render_native(
        self, samples: Samples, skip: np.ndarray, work: Work, out: Any, stop: Stop, batch: int = 0
    ) -> dict[int, DecodeFailure]:
        """`render` of samples held by native threads, except those in `skip` (bool (n,))."""
        call = RenderRequest(samples, work, out, stop, batch)
        stream = self._streams.get()
        try:
            stream = stream or self._make_stream()
            bad = self._fill(call, skip, stream)
            self.synchronize()  # buffers may be overwritten once they are released
            return bad
        except (
            BaseException
        ):  # also Ctrl-C: buffers are released only when the GPU is done with them; raised again
            with suppress(Exception):  # of a GPU that is lost: the first error says more
                self.synchronize()
            raise
        finally:
            self._streams.put(stream)

    def mix(
        self, samples: Any, members: np.ndarray, plan: MixPlan, out: Any, stop: Stop, batch: int = 0
    ) -> None:
        with self._timeline.span("mix", batch), self.device_context():
            mix(samples, members, plan, out, self.xp, self._program.spec.layout)
        self.synchronize()  # `samples` may be released

    def decode_path(self) -> str:
        share = self.share
        others = "files that it does not take"
        if share.value > 0:
            others += (
                f", and {share.value:.0%} of JPEGs{'' if share.measured else ' (being measured)'}"
            )
        return f"the JPEG engine of {self._memory.place} -> CUDA; {others}: {self._others}"

    def _make_stream(self) -> DecoderStream:
        try:
            chain = None if self._chain is None else self._chain()
            return DecoderStream(
                self._decoder(), self._windows, chain, self._memory, self._timeline
            )
        except RuntimeError as error:  # no driver, GPU or engine, in the native extension's words
            self._memory.check_room(error)
            raise ConfigError(
                f'engine="nvjpeg" cannot start: {error}; use engine="dali" or decode="cpu"',
                field="engine",
            ) from error

    def _fill(
        self, call: RenderRequest, skip: np.ndarray, stream: DecoderStream
    ) -> dict[int, DecodeFailure]:
        share = self.share.value
        with self._engine_errors():
            layouts, asked = stream.plan(call, skip, share)
        rows = np.flatnonzero(layouts["bytes"])
        if asked >= _ALL and not len(rows):
            self._warn_refused(asked)
        by_cpu = ~skip
        by_cpu[rows] = False
        if not by_cpu.any():
            refused, seconds = self._by_gpu(call, rows, layouts, stream)
            self.share.note((0, 0.0), (len(rows), seconds))
            bad: dict[int, DecodeFailure] = {}
        else:
            with ThreadPoolExecutor(1, "fastfeed-nvjpeg") as pool:  # both at the same time
                cpu = pool.submit(self._by_cpu, call, by_cpu)
                refused, seconds = self._by_gpu(call, rows, layouts, stream)
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
                raise DeviceError(refused_all("nvJPEG", len(rows)))
            bad |= found
        return bad

    @contextmanager
    def _engine_errors(self) -> Iterator[None]:
        """Turn errors of the engine or the driver into DeviceError: no sample is at fault."""
        try:
            yield
        except RuntimeError as error:
            self._memory.check_room(error)  # nvJPEG's own words for it
            raise DeviceError(str(error)) from error

    def _by_gpu(
        self, call: RenderRequest, rows: np.ndarray, layouts: np.ndarray, stream: DecoderStream
    ) -> tuple[np.ndarray, float]:
        """Fill these rows; returns those that the engine refused after all, and the seconds."""
        started = time.perf_counter()
        with self._engine_errors():
            refused = stream.fill(call, rows, layouts)
        self.decoded += len(rows) - len(refused)
        return refused, time.perf_counter() - started

    def _by_cpu(
        self, call: RenderRequest, chosen: np.ndarray
    ) -> tuple[np.ndarray, dict[int, DecodeFailure], float]:
        """Render these samples (bool (n,)) on the CPU's threads.

        Returns (a batch with their rows, bad ones, seconds).
        """
        started = time.perf_counter()
        host = np.empty(call.out.shape, call.out.dtype)  # only pages that are written to exist
        bad = self._native.run(call.samples, ~chosen, call.work, host, call.stop, call.number)
        return host, bad, time.perf_counter() - started

    def _store(
        self,
        call: RenderRequest,
        chosen: np.ndarray,
        host: np.ndarray,
        bad: dict[int, DecodeFailure],
    ) -> None:
        """Copy rows that the CPU made to the GPU."""
        good = chosen.copy()
        good[list(bad)] = False
        rows = np.flatnonzero(good).tolist()
        if rows and not call.stop.is_set():
            with self.device_context():
                call.out[rows] = self.xp.asarray(host[rows])
                self.synchronize()  # `host` goes

    def _warn_refused(self, count: int) -> None:
        if not self._warned:
            log.warning(
                "The JPEG engine takes none of %d baseline JPEGs of a batch, and the CPU decodes"
                ' them; is its driver older than nvJPEG? decode="cpu" does the same, and needs no'
                " memory of the GPU.",
                count,
            )
        self._warned = True


def _gpu(rank_gpu: int) -> tuple[int, int]:
    """The number of this rank's GPU, and the newest version of CUDA that its driver runs."""
    runtime = find_cupy().cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except Exception as error:  # CuPy's class of it
        raise ConfigError(
            f'engine="nvjpeg" needs an NVIDIA GPU and its driver, none is here ({error})',
            field="engine",
        ) from error
    if not count:
        raise ConfigError(
            'engine="nvjpeg" needs an NVIDIA GPU, this process sees none; use decode="cpu"',
            field="engine",
        )
    # if the launcher makes one GPU visible per process, that is number 0
    return rank_gpu % count, runtime.driverGetVersion() // 1000


def compile(
    program: Program,
    executor: Executor,
    timeline: Timeline,
    batch: int,
    gpu: int = 0,
    decode: Any = "auto",
) -> NvjpegBackend:
    """The entry point of BACKENDS["nvjpeg"]."""
    how = as_gpu_decode(decode, "nvjpeg")
    return NvjpegBackend(program, executor, timeline, batch, *_gpu(gpu), how)


def engine(decode: Any) -> Any:
    """The `decode` argument of `open_executor`, for files that the engine does not take."""
    return "auto"


DRIVER = "libcuda.so.1"  # the CUDA driver's own library


_VERSIONS = (13, 12)  # of CUDA, newest first


def find_nvjpeg(cuda: int) -> str:
    """Path of the first library that loads: NVIDIA's Python packages, then CUDA's installation.

    Args:
        cuda: the newest version of CUDA that the driver runs; newer libraries load and then fail.

    Raises:
        MissingExtra: If no library loads, with the reason for each that was found.
    """
    reasons = []
    names = [f"libnvjpeg.so.{version}" for version in _VERSIONS if version <= cuda]
    for path in [*_packaged(names), *names]:
        try:
            ctypes.CDLL(path)
        except OSError as error:
            if "cannot open shared object file" not in str(error):
                reasons.append(str(error))
        else:
            return path
    why = f" ({'; '.join(reasons)})" if reasons else ""
    raise MissingExtra(
        f"decoding by the JPEG engine needs nvJPEG, which is not here{why}: pip install"
        " 'fastfeed[cuda13]', or 'fastfeed[cuda12]' for an older driver"
    )


def _packaged(names: list[str]) -> list[str]:
    """Paths in nvidia-nvjpeg and nvidia-nvjpeg-cu12.

    They share a namespace with NVIDIA's other packages.
    """
    found = importlib.util.find_spec("nvidia")
    folders = (
        [] if found is None else [Path(folder) for folder in found.submodule_search_locations or ()]
    )
    return [
        str(path)
        for name in names
        for folder in folders
        for path in sorted(folder.glob(f"*/lib/{name}"))
    ]
