"""CUDA kernels by the C++ compiler, thread by thread, in the order of a stream: CuPy's RawModule on
a LateGpu.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.late_gpu import DeviceArray, Library

needs_compiler = pytest.mark.skipif(
    not shutil.which("c++"), reason="needs a C++ compiler: apt-get install g++"
)
_C_TYPES: dict[type, Any] = {np.int32: ctypes.c_int, np.int64: ctypes.c_longlong}
_FRAME = """
#include <cmath>
#define __global__
#define __device__
struct Index { unsigned x, y, z; };
static thread_local Index blockIdx, blockDim, threadIdx;
%s
template <class... Arguments>
static void each(void (*kernel)(Arguments...), const Index &grid, Arguments... arguments) {
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
        for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
          for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(arguments...);
}
"""
# what CuPy hands on to a kernel, by its name
_LAUNCHES = {
    "cut_windows": (
        """
extern "C" void launch_cut_windows(Index grid, Index block, const Task *tasks, const ENTRY *table, ENTRY *out,
                                   int height, int width, long long to_row, int to_y, int to_x, int to_channel,
                                   int border, int red, int green, int blue) {
  blockDim = block;
  each(cut_windows, grid, tasks, table, out, height, width, to_row, to_y, to_x, to_channel, border, red, green, blue);
}
"""
    )
}


class _Index(ctypes.Structure):
    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]


@lru_cache(maxsize=64)
def compiled(source: str, options: tuple[str, ...]) -> ctypes.CDLL:
    """A shared library from C++, kept for other test processes; a failure is that of the test."""
    name = hashlib.sha256(repr((source, options)).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"fastfeed-tests-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    library = folder / f"{name}.so"
    if not library.exists():
        own = folder / f"{name}.{os.getpid()}.so"
        flags = (
            "-O1",
            "-std=c++17",
            "-ffp-contract=off",
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Werror",
        )
        command = ["c++", *flags, "-x", "c++", "-", "-o", str(own), *options]
        ended = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
        assert ended.returncode == 0, ended.stderr.decode()[:4000]
        own.rename(library)
    return ctypes.CDLL(str(library))


class CudaOnCpu:
    """CuPy's RawModule."""

    def __init__(self, library: Library, code: str, options: Sequence[str]) -> None:
        self._library = library
        defined = tuple(option for option in options if option.startswith("-D"))
        launches = "\n".join(text for name, text in _LAUNCHES.items() if name in code)
        self._compiled = compiled(_FRAME % code + launches, defined)

    def get_function(
        self, name: str
    ) -> Callable[[Sequence[int], Sequence[int], Sequence[Any]], None]:
        function = self._compiled[f"launch_{name}"]

        def launch(grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any]) -> None:
            assert int(np.prod(block)) <= 1024
            # addresses alone: a kernel that is queued keeps no memory alive
            given = [
                _address(one) if isinstance(one, DeviceArray) else _C_TYPES[type(one)](one)
                for one in arguments
            ]
            self._library.current.enqueue(lambda: function(_Index(*grid), _Index(*block), *given))

        return launch


def _address(array: DeviceArray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.values.__array_interface__["data"][0])
