"""DALI graphs with the steps before them, for one batch at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fastfeed.backends.dali.graph import Graph, build
from fastfeed.backends.dali.windows import resize_inputs
from fastfeed.decode.base import Header
from fastfeed.decode.padding import inner_windows
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.program.compile import Program, Work

_BUILDING = threading.Lock()  # it sets an environment variable, which is global to the process


class _Pipe:
    """A graph built when first fed, and again after a batch that it took in part or late."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._pipe: Any = None

    def run(self, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """Run one batch: (DALI's tensors of the samples, the sizes of the decoded images).

        The first input is compared with the one that comes back, to notice a late batch.
        """
        images, shapes, fed, *_ = self._fed(inputs)
        if not np.array_equal(np.asarray(fed.as_tensor()), next(iter(inputs.values()))):
            self._pipe = None
            raise RuntimeError("DALI returned the previous batch; its graph is rebuilt")
        return images, shapes

    def build(self) -> Any:
        op = self._graph.program.decode
        with (
            _BUILDING,
            _size_limit(3 * op.max_pixels if op is not None and self._graph.encoded else 0),
        ):
            self._pipe = build(self._graph)
        return self._pipe

    def _fed(self, inputs: dict[str, Any]) -> Any:
        """The outputs for these inputs; the graph is dropped if DALI refuses one of them.

        DALI queues inputs one by one: if one is refused, for example for lack of memory, the others
        would stay queued and be taken for the next batch's.
        """
        pipe = self._pipe or self.build()
        try:
            for name, value in inputs.items():
                pipe.feed_input(name, value)
        except BaseException:  # also Ctrl-C; the error is raised as it is
            self._pipe = None
            raise
        return pipe.run()


@runs_on_gpu("dali")
class RenderPipeline:
    """Turns files or pixels into finished samples on its device."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._pipe = _Pipe(graph)
        self._chain = graph.chain
        self._pipe.build()

    def run(
        self, blobs: Sequence[Any], headers: Sequence[Header], work: Work
    ) -> tuple[Any, list[int]]:
        """(DALI's tensors of the rows that came out, the indices of these rows).

        A row is -1 if DALI decoded a different size than its header has. DALI has no special error
        for bad bytes: any exception may be one.
        """
        if not blobs:
            return None, []
        sizes = np.array([(h.height, h.width) for h in headers], np.int64)
        program = self._graph.program
        windows, places = inner_windows(work.windows, program.border, program.pixels.size)
        inputs = {
            "window": resize_inputs(windows, places),
            **self._chain.feed(work),
            "data": [_array(blob) for blob in blobs],
        }
        images, shapes = self._pipe.run(inputs)
        same = (np.asarray(shapes.as_tensor())[:, :2] == sizes).all(axis=1)
        return images, np.where(same, np.arange(len(blobs)), -1).tolist()


@runs_on_gpu("dali")
class OpPipeline:
    """The ops after decoding: takes windows from another decoder and returns finished samples."""

    def __init__(self, program: Program, batch: int, threads: int, device: int) -> None:
        """batch: the most windows in one call."""
        graph = Graph(program, batch, threads, device, cut=True)
        self._pipe = _Pipe(graph)
        self._chain = graph.chain

    def run(self, windows: Any, work: Work) -> Any:
        """DALI's tensors of the samples.

        windows: uint8 (n, height, width, channels) on the device, in the order of `work`; they have
        been read when this returns.
        """
        return self._pipe.run({**self._chain.feed(work), "data": windows})[0]


def _array(blob: Any) -> Any:
    if hasattr(blob, "__cuda_array_interface__"):
        return blob
    return (
        np.ascontiguousarray(blob)
        if isinstance(blob, np.ndarray)
        else np.frombuffer(blob, np.uint8)
    )


@contextmanager
def _size_limit(bytes: int) -> Iterator[None]:
    """Set the size limit of DALI's decoder while it is built.

    The decoder has no default limit and reads one from the environment at that time.
    """
    name = "DALI_MAX_IMAGE_SIZE"
    if name in os.environ or not bytes:
        yield
        return
    os.environ[name] = str(bytes)
    try:
        yield
    finally:
        del os.environ[name]
