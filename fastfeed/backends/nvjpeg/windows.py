"""Samples from decoded planes: one CUDA kernel per batch, compiled for the program by CuPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.backends.cpu.native_ops import BORDERS
from fastfeed.decode.padding import inner_windows
from fastfeed.errors import MissingExtra
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.base import FILTERS, shade
from fastfeed.ops.convert import Convert
from fastfeed.ops.program.program import Program
from fastfeed.ops.program.window import Windows

# of a sample, as PlanesLayout of the native extension: see native/nvjpeg_decoder.h
LAYOUT = np.dtype(
    [
        (name, np.int64)
        for name in (
            *("bytes", "luma_bytes", "chroma_bytes"),
            *("width", "height", "pitch", "chroma_width", "chroma_height", "chroma_pitch"),
            *("across", "down", "orientation"),
        )
    ]
)
_PLANES = ("pitch", "chroma_pitch", "height", "width", "chroma_height", "chroma_width")
_SCALES = ("across", "down", "orientation")
# of a window, as Task in windows.cu
TASK = np.dtype(
    [
        *((name, np.uint64) for name in ("luma", "blue", "red")),
        ("box", np.float64, 4),
        *((name, np.int32) for name in (*_PLANES, *_SCALES)),
        *((name, np.int32, 2) for name in ("flip", "inner", "corner")),
        ("row", np.int32),
    ]
)
_SHARED = (*_PLANES, *_SCALES)
_BLOCK = (32, 8)  # threads, each for one pixel: neighbors read neighbors
_MOST = 65_535  # windows of one launch: CUDA's limit for the third axis of a grid
_ENTRIES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int"}


@runs_on_gpu("nvjpeg")
class WindowKernel:
    """The window and border of one program, and a conversion."""

    def __init__(self, program: Program, convert: Convert, xp: Any) -> None:
        """convert: from bytes to the values of `out`.

        xp: CuPy, which compiles on first use and keeps the result on disk.
        """
        self._program = program
        self._xp = xp
        self._views = max(1, program.views)
        # of a window: height, width, 3
        self.shape = tuple(side or 0 for side in program.pixels.shape)
        self._planar = convert.layout == "CHW"
        levels = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
        table = levels if convert.keeps_bytes else convert.table()
        entry = _ENTRIES[table.itemsize]
        self._table = xp.asarray(np.ascontiguousarray(table).view(f"u{table.itemsize}"))
        border = program.border
        how = (
            (0, 0, 0, 0) if border is None else (BORDERS.index(border.mode), *shade(border.fill, 3))
        )
        self._border = tuple(map(np.int32, how))
        # without contraction to fused operations: the same pixels on every GPU
        options = (
            "--std=c++17",
            "--fmad=false",
            f"-DENTRY={entry}",
            f"-DFILTER={FILTERS.index(program.filter)}",
        )
        source = Path(__file__).with_name("windows.cu").read_text("utf-8")
        try:
            self._kernel = xp.RawModule(code=source, options=options).get_function("cut_windows")
        except Exception as error:  # CuPy's classes of it
            why = " ".join(str(error).split())[:200]
            raise MissingExtra(
                f"CuPy cannot compile for the GPU ({why}); its compiler and headers come "
                "with pip install 'fastfeed[cuda13]', or 'fastfeed[cuda12]' for an older driver"
            ) from error

    def tasks(
        self, rows: np.ndarray, windows: Windows, layouts: np.ndarray, addresses: np.ndarray
    ) -> np.ndarray:
        """Tasks of the CUDA kernel, one per window.

        Args:
            rows: int64 (k,), samples of the batch.
            windows: of all samples of the batch, view by view.
            layouts: `LAYOUT` (samples,).
            addresses: uint64 (k,), where each sample's planes begin.

        Returns:
            `TASK` (k * views,).
        """
        every = (rows[:, None] * self._views + np.arange(self._views)).ravel()
        inner, corners = inner_windows(
            windows[every], self._program.border, self._program.pixels.size
        )
        own = np.repeat(layouts[rows], self._views)
        begin = np.repeat(addresses, self._views)
        tasks = np.zeros(len(every), TASK)
        for name in _SHARED:
            tasks[name] = own[name]
        luma, chroma = (own[name].astype(np.uint64) for name in ("luma_bytes", "chroma_bytes"))
        tasks["luma"] = begin
        tasks["blue"] = np.where(own["chroma_width"] > 0, begin + luma, 0)
        tasks["red"] = np.where(own["chroma_width"] > 0, begin + luma + chroma, 0)
        tasks["box"] = inner.boxes
        tasks["flip"] = inner.flips
        tasks["inner"] = inner.sizes
        tasks["row"] = every
        tasks["corner"] = 0 if corners is None else corners
        return tasks

    def run(self, tasks: np.ndarray, out: Any) -> None:
        """Fill rows of a batch, on CuPy's current stream.

        Args:
            tasks: as `tasks` returns them; their `row` counts windows of `out`.
            out: array of this program's samples, contiguous.
        """
        height, width, _ = self.shape
        pixels = height * width
        step = (width, 1, pixels) if self._planar else (3 * width, 3, 1)
        numbers = (
            np.int32(height),
            np.int32(width),
            np.int64(3 * pixels),
            *map(np.int32, step),
            *self._border,
        )
        for first in range(0, len(tasks), _MOST):
            part = tasks[first : first + _MOST]
            grid = (-(-width // _BLOCK[0]), -(-height // _BLOCK[1]), len(part))
            self._kernel(
                grid,
                (*_BLOCK, 1),
                (self._xp.asarray(part.view(np.uint8)), self._table, out, *numbers),
            )
