"""Memory of finished batches on a GPU, or of the host where DALI runs without one."""

from __future__ import annotations

import importlib
import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from fastfeed.errors import DeviceMemory, MissingExtra
from fastfeed.gpu_support import gpu_note, runs_on_gpu
from fastfeed.ops.convert import Convert
from fastfeed.printable import warn
from fastfeed.runtime.buffers import Allocate, aligned

_SCARCE = 0.1  # of a GPU's memory: a warning at the start if less than this is free
# messages of NVIDIA's libraries for it, as DALI 2.4 passes them on
_FULL = ("out of memory", "CUDA allocation failed", "Can't allocate", "ALLOCATOR_FAILURE")
_FULL += (
    "allocator failure",
    "OUT_OF_MEMORY",
)  # nvJPEG's and the driver's, as the native extension does
_REFUSED = "cudaErrorMemoryAllocation"  # CuPy's words if it is not its OutOfMemoryError
_HOLDERS = (
    "TensorFlow takes all that is free, unless tf.config.experimental.set_memory_growth(gpu, True)"
    " comes before its first use; JAX takes three quarters, unless"
    " XLA_PYTHON_CLIENT_PREALLOCATE=false is set before it is imported"
)


# of CuPy, by GPU: streams whose feeds are gone. None is ever destroyed, since libraries may free
# memory on it later: in a garbage cycle CuPy destroys a stream before anything else is freed, even
# the stream's owner
_STREAMS: weakref.WeakKeyDictionary[Any, dict[int, list[Any]]] = weakref.WeakKeyDictionary()
DEFAULT_LOAD = 0.65  # DALI's default: share of JPEGs for the hardware engine
# by compute capability: seven engines, measured on an H200 (benchmarks/results/gpu.md)
_LOADS = {"90": 0.9}


@runs_on_gpu("dali")
class GpuMemory:
    """CuPy arrays on one GPU.

    Only one stream of our own writes to them, inside `device_context`, and `synchronize` waits for
    it, so a batch may be read on any stream at once. It is not the default stream: the trainer uses
    that one, and waiting for it would mean waiting for the step. Adapters copy batches and wait for
    the copy before a slot is reused, so neither an engine that ignores its stream nor work that is
    still queued can write to a slot in use.
    """

    def __init__(self, device: int, path: str = "dali") -> None:
        """path: in `proven.EXPERIMENTAL`, the status of the code that fills batches there."""
        self.xp: Any = find_cupy()
        self.name = f"the memory of GPU {device}"
        self.place = gpu_note(f"GPU {device}", path)
        self._device = self.xp.cuda.Device(device)
        self.hw_load = _LOADS.get(getattr(self._device, "compute_capability", ""), DEFAULT_LOAD)
        try:
            with self._device:
                unused = _STREAMS.setdefault(self.xp, {}).setdefault(device, [])
                try:
                    self._stream = unused.pop()
                except IndexError:
                    self._stream = self.xp.cuda.Stream(non_blocking=True)
                weakref.finalize(self, unused.append, self._stream)
            free, total = self._free()
        except Exception as error:  # CuPy's class of it is known only once a driver is there
            if not is_out_of_memory(error):
                raise
            reason = str(error).strip().split("\n", 1)[0]
            raise DeviceMemory(
                f"GPU {device} has no room to start on it ({reason}); make room there. {_HOLDERS}"
            ) from error
        if free < _SCARCE * total:
            text = f"GPU {device} has {free / 1e9:.1f} of {total / 1e9:.1f} GB free. {_HOLDERS}"
            warn(text, UserWarning, stacklevel=6)

    @contextmanager
    def device_context(self) -> Iterator[None]:
        """Use this GPU and its stream, which every thread has to choose for itself.

        Running out of memory inside raises DeviceMemory.
        """
        with self._device, self._stream:
            try:
                yield
            except (
                MemoryError,
                RuntimeError,
            ) as error:  # not the host's MemoryError, nor DALI's: see check_room
                if isinstance(error, self.xp.cuda.memory.OutOfMemoryError) or _REFUSED in str(
                    error
                ):
                    self.check_room(error)
                raise

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        try:
            with self._device, self._stream:
                return self.xp.empty(shape, dtype)
        except self.xp.cuda.memory.OutOfMemoryError as error:
            need = math.prod(shape) * np.dtype(dtype).itemsize
            (free, total) = self._free()
            raise DeviceMemory(
                f"{self.name} has no room for a batch of {need / 1e6:.1f} MB, {free / 1e9:.1f} of"
                f" {total / 1e9:.1f} GB are free; lower the batch size or prefetch, or make room."
                f" {_HOLDERS}"
            ) from error

    def check_room(self, error: Exception) -> None:
        if isinstance(error, DeviceMemory) or not is_out_of_memory(error):
            return
        free, total = self._free()
        raise DeviceMemory(
            f"{self.name} has no room to decode and augment, {free / 1e9:.1f} of {total / 1e9:.1f}"
            " GB are free; lower the batch size, prefetch or GpuDecode(lanes=...), or make room."
            f" {_HOLDERS}"
        ) from error

    def _free(self) -> tuple[int, int]:
        """Free and total memory of the GPU, in bytes."""
        with self._device:
            return self.xp.cuda.runtime.memGetInfo()

    def as_array(self, tensors: Any) -> Any:
        with self.device_context():
            # by the CUDA array interface, without a copy
            return self.xp.asarray(tensors.as_tensor())

    def store(self, how: Convert, pixels: np.ndarray, out: Any, rows: list[int]) -> None:
        xp = self.xp
        with self.device_context():
            there = how.on_device(xp, xp.asarray(pixels))
            out[rows] = there.transpose(0, 3, 1, 2) if how.layout == "CHW" else there

    def synchronize(self) -> None:
        self._stream.synchronize()


def find_cupy() -> Any:
    """Import CuPy; MissingExtra if it is not installed."""
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise MissingExtra(
            "batches on a GPU need CuPy: pip install 'fastfeed[cuda13]', or 'fastfeed[cuda12]' for"
            " an older driver"
        ) from error


def refused_all(decoder: str, count: int) -> str:
    """Error text for a decoder that returns no image and no reason."""
    return (
        f"{decoder} decoded none of {count} images that the CPU decodes; its GPU may have no memory"
        ' left, or its driver be too old: nvidia-smi shows both. decode="cpu" does without it'
    )


def is_out_of_memory(error: Exception) -> bool:
    """True if an error means that memory is full."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _FULL)


class HostMemory:
    """NumPy arrays in place of a GPU's memory."""

    name = "memory"
    place = "the CPU"
    hw_load = DEFAULT_LOAD
    xp: Any = np
    empty: Allocate = staticmethod(aligned)
    device_context = staticmethod(nullcontext)

    def as_array(self, tensors: Any) -> np.ndarray:
        """DALI's output as an array."""
        return np.asarray(tensors.as_tensor())

    def store(self, how: Convert, pixels: np.ndarray, out: Any, rows: list[int]) -> None:
        """Finished uint8 pixels (n, height, width, channels), converted, into rows of a batch."""
        if not how.keeps_bytes:
            pixels = how.table()[pixels, np.arange(pixels.shape[-1])]
        out[rows] = pixels.transpose(0, 3, 1, 2) if how.layout == "CHW" else pixels

    def check_room(self, error: Exception) -> None:
        """Raise if the error means that no memory is left."""
        if is_out_of_memory(error):
            raise error

    def synchronize(self) -> None:
        """Wait until all writes are visible to every thread."""
