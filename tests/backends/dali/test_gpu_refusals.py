"""A GPU that gives up says so of a whole batch: the processor must not take everything over in
silence.
"""

import importlib
import threading

import numpy as np
import pytest
from helpers.engines import engine_for
from helpers.side_by_side import encoded, needs_dali, picture

import fastfeed as ff
from fastfeed.backends.options import GpuDecode
from fastfeed.decode.executor import open_executor
from fastfeed.errors import DeviceMemory
from fastfeed.ops.program.compile import Windows, Work, fuse
from fastfeed.runtime.timeline import Timeline
from fastfeed.spec import ENCODED

pytestmark = needs_dali


@pytest.fixture
def render(monkeypatch):
    """Renders these blobs by DALI; `decode` changes which rows came out."""
    backend = importlib.import_module("fastfeed.backends.dali.backend")
    lane = importlib.import_module("fastfeed.backends.dali.pipeline").RenderPipeline
    monkeypatch.setattr(backend, "gpu_count", lambda: 0)

    def rendered(blobs, decode):
        program = fuse([ff.Resize((48, 64))], ENCODED)
        engine = engine_for(program, "pillow")
        executor = open_executor(program, "pillow", 1)
        runner = backend.compile(program, executor, Timeline(None), len(blobs), decode=GpuDecode())
        real = lane.run

        def run(self, *given):
            images, rows = real(self, *given)
            return images, decode(rows)

        monkeypatch.setattr(lane, "run", run)
        out = np.empty((len(blobs), 48, 64, 3), np.uint8)
        boxes = np.array(
            [[0, 0, header.height, header.width] for header in engine.probe(blobs)], float
        )
        sizes = np.full((len(blobs), 2), (48, 64))
        work = Work(Windows(boxes, np.zeros((len(blobs), 2), bool), sizes))
        return runner.render(blobs, engine.probe(blobs), work, out, threading.Event()), out

    return rendered


def test_a_decoder_that_decodes_nothing_is_an_error(render):
    """As on a GPU without room: no reason, only that no image came out."""
    blobs = [encoded(picture(60 + k, 70, k), "JPEG", quality=90) for k in range(16)]
    text = 'DALI decoded none of 16 images that the CPU decodes; .*no memory left.*decode="cpu"'
    with pytest.raises(RuntimeError, match=text):
        render(blobs, lambda rows: [-1] * len(rows))


def test_a_few_that_it_does_not_decode_go_to_the_processor(render):
    blobs = [encoded(picture(60 + k, 70, k), "JPEG", quality=90) for k in range(16)]
    results, out = render(blobs, lambda rows: [-1 if k % 2 else k for k in rows])
    assert results == [None] * 16 and out.std(axis=(1, 2, 3)).min() > 1
    few, _ = render(blobs[:3], lambda rows: [-1] * len(rows))
    assert few == [None] * 3, "a handful may be odd files"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("CUDA allocation failed\nCurrent pool size: 12345"),
        RuntimeError(
            "Error in thread 0: CUDA runtime API error cudaErrorMemoryAllocation (2):\nout of"
            " memory"
        ),
        RuntimeError("Can't allocate 1048576 bytes on device 0."),
        RuntimeError(
            "nvJPEG error (5): The user-provided memory allocator has failed,"
            " NVJPEG_STATUS_ALLOCATOR_FAILURE"
        ),
    ],
)
def test_no_room_for_dali_says_what_to_lower(gpu_memory, error):
    with pytest.raises(
        DeviceMemory,
        match=r"the memory of GPU 0 has no room to .* lower the batch size, prefetch or",
    ):
        gpu_memory.check_room(error)
    assert gpu_memory.check_room(RuntimeError("Error when decoding JPEG")) is None


def test_no_room_on_the_host_stays_what_it_is():
    memory = importlib.import_module("fastfeed.backends.gpu_memory").HostMemory()
    with pytest.raises(MemoryError, match="of this machine"):
        memory.check_room(MemoryError("of this machine"))
    assert memory.check_room(RuntimeError("Error when decoding JPEG")) is None


@pytest.fixture
def gpu_memory(monkeypatch):
    import contextlib
    import sys
    import types

    cupy = types.ModuleType("cupy")
    cupy.cuda = types.SimpleNamespace(
        Device=contextlib.nullcontext,
        Stream=lambda non_blocking: contextlib.nullcontext(),
        runtime=types.SimpleNamespace(memGetInfo=lambda: (2 * 10**9, 10**10)),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return importlib.import_module("fastfeed.backends.gpu_memory").GpuMemory(0)
