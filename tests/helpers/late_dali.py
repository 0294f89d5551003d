"""DALI on a `LateGpu`: pixels are those of the processor, bytes are moved as a GPU
would.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from helpers.late_cupy import LateCupy
from helpers.late_gpu import DeviceArray, LateGpu, Library, Memory, Stream


class _OnHost:
    """An output on the processor."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def as_tensor(self) -> np.ndarray:
        return self._values


class _OnGpu:
    """An output on the GPU.

    Once no one refers to it, its memory is the next batch's, on DALI's own stream.
    """

    def __init__(self, gpu: LateGpu, shape: tuple[int, ...], dtype: Any) -> None:
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self._memory = Memory.recycled_at_once(gpu.bytes(count))
        self._array = DeviceArray(
            Library(gpu), self._memory.raw.view(dtype).reshape(shape), self._memory
        )

    @property
    def values(self) -> np.ndarray:
        return self._array.values

    def as_tensor(self) -> _OnGpu:
        return self

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        how = self._array.__cuda_array_interface__
        # as DALI's
        return {key: value for key, value in how.items() if key != "stream"} | {"version": 2}


class LatePipeline:
    """What `graph.build` gives for a GPU.

    `feed_input` reads pixels on CuPy's current stream, later; `run()` waits for DALI's stream,
    `run(stream)` lets that stream wait and returns at once.
    """

    def __init__(self, cupy: LateCupy, graph: Any, build: Callable[[Any], Any]) -> None:
        self._cupy, self._graph = cupy, graph
        self._processor = build(dataclasses.replace(graph, device=None))
        self._stream = Stream(cupy.gpu)
        self._inputs: dict[str, Any] = {}

    def feed_input(self, name: str, value: Any) -> None:
        if isinstance(value, DeviceArray):
            value = [value[k] for k in range(len(value))]
        if isinstance(value, list) and isinstance(value[0], DeviceArray):
            raws, copied = [one.values for one in value], []
            stream = self._cupy.library.current
            stream.enqueue(lambda: copied.extend(raw.copy() for raw in raws))
            self._stream.wait_stream(stream)
            self._inputs[name] = (copied, [raw.shape for raw in raws])
        else:
            self._inputs[name] = value

    def run(self, cuda_stream: Stream | None = None) -> tuple[Any, ...]:
        inputs, self._inputs = self._inputs, {}
        if isinstance(inputs["data"], tuple):
            copied, shapes = inputs["data"]
            program = self._graph.program
            images = _OnGpu(self._cupy.gpu, (len(shapes), *program.shape[-3:]), program.spec.dtype)
            pixels = lambda: np.asarray(self._ran(inputs | {"data": copied})[0].as_tensor())  # noqa: E731
            fed = [
                _OnHost(np.array(value))
                for name, value in inputs.items()
                if name in ("window", "chain")
            ]
            others = [_OnHost(np.array(shapes)), *fed]
        else:
            made, *others = self._ran(inputs)
            there = np.array(made.as_tensor())
            images = _OnGpu(self._cupy.gpu, there.shape, there.dtype)
            pixels = lambda: there  # noqa: E731
        target = images.values
        self._stream.enqueue(lambda: np.copyto(target, pixels()))
        if cuda_stream is None:
            self._stream.synchronize()
        else:
            cuda_stream.wait_stream(self._stream)
        return (images, *others)

    def _ran(self, inputs: dict[str, Any]) -> Any:
        for name, value in inputs.items():
            self._processor.feed_input(name, value)
        return self._processor.run()


def install(gpu: LateGpu, monkeypatch: Any) -> LateCupy:
    """Give this process one GPU, with CuPy and DALI; those for the processor stay as
    they are.
    """
    cupy = LateCupy(gpu)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    graph, pipeline, backend = (
        importlib.import_module(f"fastfeed.backends.dali.{name}")
        for name in ("graph", "pipeline", "backend")
    )

    def build(of: Any) -> Any:
        return graph.build(of) if of.device is None else LatePipeline(cupy, of, graph.build)

    monkeypatch.setattr(backend, "gpu_count", lambda: 1)
    monkeypatch.setattr(pipeline, "build", build)
    return cupy
