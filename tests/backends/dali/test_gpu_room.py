"""A GPU without room, once and always: by DALI's real graph on the processor, and stand-ins for
what a GPU says.
"""

import contextlib
import copy
import importlib
import sys
import threading
import types

import numpy as np
import pytest
from helpers.engines import engine_for
from helpers.side_by_side import encoded, needs_dali, picture

import fastfeed as ff
from fastfeed.errors import ConfigError, DeviceMemory
from fastfeed.ops.program.compile import Windows, Work, fuse
from fastfeed.runtime.timeline import Timeline
from fastfeed.spec import ENCODED

pytestmark = needs_dali
BLOBS = [encoded(picture(60 + k, 70, k), "JPEG", quality=90) for k in range(4)]


class OutOfMemoryError(MemoryError):
    """CuPy's."""


class CUDARuntimeError(RuntimeError):
    """CuPy's, of what is not an allocation of its own."""


@pytest.fixture
def cupy(monkeypatch):
    """Its devices and streams; `free` is what a GPU has."""
    module = types.ModuleType("cupy")
    module.cuda = types.SimpleNamespace(
        Device=contextlib.nullcontext,
        Stream=lambda non_blocking: contextlib.nullcontext(),
        runtime=types.SimpleNamespace(memGetInfo=lambda: (2 * 10**9, 10**10)),
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@pytest.fixture
def parts():
    """(a lane on the processor, headers of the files)."""
    lane = importlib.import_module("fastfeed.backends.dali.pipeline")
    graph = importlib.import_module("fastfeed.backends.dali.graph")
    program = fuse([ff.Resize((48, 64))], ENCODED)
    return lane.RenderPipeline(graph.Graph(program, 4, 1, None)), engine_for(
        program, "pillow"
    ).probe(BLOBS)


def work(top: int) -> Work:
    """Windows that begin at this row: what a batch looks like depends on them."""
    boxes = np.tile([float(top), 0, 30, 40], (4, 1))
    return Work(Windows(boxes, np.zeros((4, 2), bool), np.full((4, 2), (48, 64))))


def pixels(lane, headers, top: int) -> np.ndarray:
    images, rows = lane.run(BLOBS, headers, work(top))
    assert rows == [0, 1, 2, 3]
    return np.asarray(images.as_tensor()).copy()


def test_a_batch_that_was_fed_in_part_does_not_shift_the_next_ones(parts, monkeypatch):
    """DALI queues inputs one by one: what was fed before the error would meet the next batch's
    files.
    """
    lane, headers = parts
    want = [pixels(lane, headers, top) for top in (0, 10, 20)]
    assert not np.array_equal(want[1], want[2])
    pipe = importlib.import_module("nvidia.dali").Pipeline
    real = pipe.feed_input

    def refuse(self, name, *given, **how):
        if name == "data":
            raise MemoryError("CUDA allocation failed\nCurrent pool size: 12345")
        return real(self, name, *given, **how)

    monkeypatch.setattr(pipe, "feed_input", refuse)
    with pytest.raises(MemoryError, match="CUDA allocation failed"):
        lane.run(BLOBS, headers, work(0))
    monkeypatch.setattr(pipe, "feed_input", real)
    for k, top in enumerate((0, 10, 20)):
        assert np.array_equal(pixels(lane, headers, top), want[k])


def test_a_graph_that_gives_another_batch_is_noticed_and_built_again(parts):
    lane, headers = parts
    want = pixels(lane, headers, 10)
    # as if one batch were too many in its queue
    lane._pipe._pipe.feed_input("window", np.zeros((4, 4), np.float32))
    with pytest.raises(RuntimeError, match="DALI returned the previous batch"):
        lane.run(BLOBS, headers, work(10))
    assert np.array_equal(pixels(lane, headers, 10), want)


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("Out of memory allocating 1,234,567 bytes (allocated so far: 0 bytes)."),
        CUDARuntimeError("cudaErrorMemoryAllocation: out of memory"),
    ],
)
def test_no_room_for_what_the_processor_decoded_says_what_to_lower(cupy, monkeypatch, error):
    """The share of the processor, mixing and black rows are CuPy's work, not DALI's."""
    from fastfeed.decode.executor import open_executor

    backend = importlib.import_module("fastfeed.backends.dali.backend")
    monkeypatch.setattr(backend, "gpu_count", lambda: 0)
    program = fuse([ff.Resize((48, 64))], ENCODED)
    engine = engine_for(program, "pillow")
    executor = open_executor(program, "pillow", 1)
    runner = backend.compile(program, executor, Timeline(None), 4, decode="cpu")
    memory = importlib.import_module("fastfeed.backends.gpu_memory").GpuMemory(0)
    errors = [error]

    def store(*_):
        if errors:
            raise copy.copy(errors.pop())  # its traceback would hold the backend

    memory.store, memory.synchronize, runner._memory = store, lambda: None, memory
    runner.device_context, runner.synchronize = memory.device_context, memory.synchronize
    out = np.empty((4, 48, 64, 3), np.uint8)
    with pytest.raises(
        DeviceMemory, match=r"the memory of GPU 0 has no room to .*2\.0 of 10\.0 GB are free"
    ):
        runner.render(BLOBS, engine.probe(BLOBS), work(0), out, threading.Event())
    assert (
        runner.render(BLOBS, engine.probe(BLOBS), work(0), out, threading.Event()) == [None] * 4
    ), "room again"


def test_the_hosts_memory_is_not_taken_for_a_gpus(cupy):
    memory = importlib.import_module("fastfeed.backends.gpu_memory").GpuMemory(0)
    with pytest.raises(MemoryError, match="Unable to allocate") as caught, memory.device_context():
        raise MemoryError("Unable to allocate 12.9 GiB for an array")
    assert not isinstance(caught.value, DeviceMemory)
    with pytest.raises(DeviceMemory, match="a batch of 4") as said, memory.device_context():
        raise DeviceMemory("a batch of 4")
    assert str(said.value) == "a batch of 4"


def test_a_gpu_too_full_to_start_on(cupy):
    def full(non_blocking):
        raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")

    cupy.cuda.Stream = full
    with pytest.raises(
        DeviceMemory,
        match=r"GPU 3 has no room to start on it \(cudaErrorMemoryAllocation: out of mem",
    ):
        importlib.import_module("fastfeed.backends.gpu_memory").GpuMemory(3)


@pytest.mark.parametrize("code", ["cudaErrorInsufficientDriver (35)", "cudaErrorNoDevice (100)"])
def test_a_driver_that_dali_cannot_use_is_said_in_its_words(monkeypatch, code):
    """DALI counts GPUs by a call that raises where the driver is too old, or shows none."""
    graph = importlib.import_module("fastfeed.backends.dali.graph")

    def count():
        raise RuntimeError(
            f"CUDA runtime API error {code}:\nCUDA driver version is insufficient\nStacktrace"
            " (7):\n[f]"
        )

    monkeypatch.setattr(graph, "GetCUDADeviceCount", count)
    assert graph.gpu_count() == 0
    source = ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8))
    with pytest.raises(ConfigError) as caught:
        ff.Feed(source, [], batch=2, decode="gpu")
    assert (
        str(caught.value) == 'decode="gpu" needs an NVIDIA GPU and its driver, none is here '
        f'(CUDA runtime API error {code}: CUDA driver version is insufficient); use decode="cpu"'
    )
    with ff.Feed(source, [], batch=2, backend="dali") as feed:
        assert "DALI on the CPU" in str(feed)
