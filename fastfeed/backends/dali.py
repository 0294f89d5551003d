"""NVIDIA DALI: the whole program as one graph, on the GPU of this rank or, where there is none, on the processor.

Every sample gets the pixels it would get alone, whatever else is in its batch. What DALI's decoder would show otherwise
than the cpu backend, or cannot decode, is decoded, cut and scaled by the cpu backend's engine, and handed to the graph
as an uncompressed image of the final size. DALI says that a batch failed, not which sample: such a batch is halved
until the sample is alone, and the engine's word on it is final.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.backends.dali_ops import FILTERS, build, gpus, plain, rois
from fastfeed.decode.base import Bad, Engine, Header, Request, Stop
from fastfeed.ops.fuse import Program, Windows
from fastfeed.timeline import Timeline

__all__ = ["DaliBackend", "compile"]


@dataclass(slots=True)
class _Batch:
    """One call of render."""

    blobs: Sequence[Any]
    headers: Sequence[Header]
    windows: Windows
    out: np.ndarray
    stop: Stop
    number: int
    data: list[np.ndarray]  # what the graph is fed, per row
    rois: np.ndarray
    finished: set[int]  # rows that the engine has made
    done: list[Bad | None]


class DaliBackend:
    """Renders whole batches, one at a time, from any thread. The graph is built with the first."""

    name = "dali"
    whole = True

    def __init__(
        self, program: Program, engine: Engine, timeline: Timeline, batch: int, threads: int, gpu: int
    ) -> None:
        self._program, self._engine, self._timeline = program, engine, timeline
        self._batch, self._threads = batch, threads
        count = gpus()
        # a launcher that shows each process its own GPU alone leaves one, number 0
        self._device = gpu % count if count else None
        self._pipe: Any = None
        self._black = program.convert.table()[0]

    def render(
        self,
        blobs: Sequence[Any],
        headers: Sequence[Header],
        windows: Windows,
        out: np.ndarray,
        stop: Stop,
        batch: int = 0,
    ) -> list[Bad | None]:
        n = len(blobs)
        direct = [plain(self._program, blob, header) for blob, header in zip(blobs, headers, strict=True)]
        data = [_array(blob) if fit else _NOTHING for blob, fit in zip(blobs, direct, strict=True)]
        work = _Batch(blobs, headers, windows, out, stop, batch, data, rois(windows), set(), [None] * n)
        self._finish(work, [row for row in range(n) if not direct[row]])
        self._settle(work, [row for row in range(n) if work.done[row] is None])
        return work.done

    def path(self) -> str:
        where = "the processor" if self._device is None else f"GPU {self._device}"
        if self._program.filter not in FILTERS:
            return f"{self._engine.name} (DALI has no {self._program.filter} filter) -> DALI on {where}"
        if self._program.decode is None:
            return f"DALI on {where}"
        return f"DALI on {where}; files it shows otherwise: {self._engine.name} -> DALI"

    def _settle(self, work: _Batch, rows: list[int]) -> None:
        """Fill these rows of `out`; where DALI refuses them, in halves, and at last by the engine."""
        if not rows or work.stop.is_set():
            return
        if self._pipe is None:
            self._pipe = self._built()
        shapes = None
        try:
            shapes = self._run(work, rows)
        except Exception:  # DALI has no error of its own for bad bytes, so any may be one; what is not is raised later
            if work.finished.issuperset(rows):
                raise
        if shapes is None and len(rows) > 1:
            middle = len(rows) // 2
            self._settle(work, rows[:middle])
            self._settle(work, rows[middle:])
            return
        # the window was made for the size that the header told us
        sizes = [None] if shapes is None else shapes
        wrong = [row for row, size in zip(rows, sizes, strict=True) if not self._expected(work, row, size)]
        if wrong:
            self._finish(work, wrong)
            self._settle(work, [row for row in wrong if work.done[row] is None])

    def _run(self, work: _Batch, rows: list[int]) -> np.ndarray:
        """Through the graph; the decoded sizes."""
        with self._timeline.span("dali", work.number):
            self._pipe.feed_input("roi", work.rois[rows])
            self._pipe.feed_input("data", [work.data[row] for row in rows])
            images, shapes = self._pipe.run()
            if self._device is not None:
                images = images.as_cpu()
            everything = len(rows) == len(work.out)
            work.out[slice(None) if everything else rows] = np.asarray(images.as_tensor())
            return np.asarray(shapes.as_tensor())

    def _expected(self, work: _Batch, row: int, size: np.ndarray | None) -> bool:
        header = work.headers[row]
        return row in work.finished or (size is not None and (header.height, header.width) == (size[0], size[1]))

    def _finish(self, work: _Batch, rows: list[int]) -> None:
        """Have the engine make these rows' pixels; a bad one turns black and is done."""
        if not rows:
            return
        shape = tuple(side or 0 for side in self._program.pixels.shape)
        pixels = np.empty((len(rows), *shape), np.uint8)

        def one(k: int) -> Bad | None:
            row = rows[k]
            window = work.windows[row : row + 1]
            request = Request([work.blobs[row]], [work.headers[row]], window, self._program.filter)
            return self._engine.decode(request, pixels[k : k + 1], work.stop)[0]

        with self._timeline.span("decode", work.number):
            if min(len(rows), self._threads) == 1:
                found = [one(k) for k in range(len(rows))]
            else:  # threads of its own for a moment: nothing to close, and a start costs less than an image
                with ThreadPoolExecutor(min(len(rows), self._threads), "fastfeed-dali") as pool:
                    found = list(pool.map(one, range(len(rows))))
        for row, image, bad in zip(rows, pixels, found, strict=True):
            work.finished.add(row)
            work.done[row] = bad
            if bad is None:
                work.data[row] = _ppm(image) if self._program.decode is not None else image
                work.rois[row] = (0, 0, *shape[:2])
            else:
                work.out[row] = self._black[:, None, None] if self._program.spec.layout == "CHW" else self._black

    def _built(self) -> Any:
        op = self._program.decode
        with _size_limit(3 * op.max_pixels if op is not None else 0):
            return build(self._program, self._batch, self._threads, self._device)


_NOTHING = np.empty(0, np.uint8)


def _array(blob: Any) -> np.ndarray:
    return np.ascontiguousarray(blob) if isinstance(blob, np.ndarray) else np.frombuffer(blob, np.uint8)


def _ppm(pixels: np.ndarray) -> np.ndarray:
    """RGB pixels as an uncompressed file, which DALI's decoder reads as it is."""
    head = b"P6 %d %d 255\n" % (pixels.shape[1], pixels.shape[0])
    return np.frombuffer(head + pixels.tobytes(), np.uint8)


@contextmanager
def _size_limit(bytes: int) -> Iterator[None]:
    """DALI's decoder has no limit of its own and reads one from the environment while it is built."""
    name = "DALI_MAX_IMAGE_SIZE"
    if name in os.environ or not bytes:
        yield
        return
    os.environ[name] = str(bytes)
    try:
        yield
    finally:
        del os.environ[name]


def compile(
    program: Program, engine: Engine, timeline: Timeline, batch: int, threads: int, gpu: int = 0
) -> DaliBackend:
    """What BACKENDS["dali"] stands for."""
    return DaliBackend(program, engine, timeline, batch, threads, gpu)
