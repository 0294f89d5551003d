"""CuPy on a `LateGpu`: what fastfeed calls of it, with CuPy's rules of streams and memory."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import numpy as np

from helpers.cuda_on_cpu import CudaOnCpu
from helpers.late_gpu import DeviceArray, LateGpu, Library, Stream


class OutOfMemoryError(MemoryError):
    """CuPy's."""


class LateCupy(types.ModuleType):
    """Put it into `sys.modules` as "cupy"."""

    def __init__(self, gpu: LateGpu) -> None:
        super().__init__("cupy")
        self.gpu = gpu
        self.library = library = Library(gpu)

        class CupyStream(Stream):
            """With `with`, the current one of a thread."""

            def __init__(self, non_blocking: bool = False) -> None:
                super().__init__(gpu, non_blocking)

            def __enter__(self) -> None:
                library.enter(self)

            def __exit__(self, *error: Any) -> None:
                library.leave()

        self.cuda = types.SimpleNamespace(
            Device=contextlib.nullcontext,
            Stream=CupyStream,
            get_current_stream=lambda: library.current,
            runtime=types.SimpleNamespace(
                getDeviceCount=lambda: 1,
                driverGetVersion=lambda: 13_000,
                memGetInfo=lambda: (8 * 10**9, 10**10),
                streamSynchronize=lambda ptr: gpu.stream(ptr).synchronize(),
            ),
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        )
        self.empty = library.empty
        self.RawModule = lambda code, options: CudaOnCpu(library, code, options)

    def asarray(self, given: Any, dtype: Any = None) -> DeviceArray:
        """Host memory is read before this returns, as pageable memory is; its copy on the device is
        written later.
        """
        if isinstance(given, DeviceArray) and given.library is self.library:
            return given
        if hasattr(given, "__cuda_array_interface__"):
            stream = given.__cuda_array_interface__.get("stream")
            if stream is not None:
                self.gpu.stream(stream).synchronize()  # CUPY_CUDA_ARRAY_INTERFACE_SYNC is on
            return self.library.view(given)
        host = np.array(given, dtype)
        made = self.library.empty(host.shape, host.dtype)
        self.library.write(made.values, lambda: host)
        return made

    def ascontiguousarray(self, given: DeviceArray) -> DeviceArray:
        return (
            given
            if given.flags.c_contiguous
            else self.library.computed(np.ascontiguousarray, given)
        )

    def rint(self, given: DeviceArray) -> DeviceArray:
        return self.library.computed(np.rint, given)
