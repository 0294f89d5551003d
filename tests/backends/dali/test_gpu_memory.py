"""Batches in memory of a GPU, by a stand-in for CuPy that keeps count: what is said where there is
no room.
"""

import contextlib
import gc
import sys
import threading
import types

import numpy as np
import pytest
from helpers.opencv_ops.reference import convert

from fastfeed.backends.gpu_memory import GpuMemory, HostMemory
from fastfeed.errors import DeviceMemory, MissingExtra
from fastfeed.feed.session import FeedSession
from fastfeed.ops.program.compile import fuse
from fastfeed.runtime.buffers import BufferPool
from fastfeed.spec import Spec


class OutOfMemoryError(MemoryError):
    pass


class Stream(contextlib.nullcontext):
    def __init__(self, cupy) -> None:
        super().__init__()
        self.cupy = cupy

    def synchronize(self) -> None:
        self.cupy.synchronized += 1


class Cupy(types.ModuleType):
    """NumPy's functions, and a device of so many bytes."""

    def __init__(self, free: int, total: int) -> None:
        super().__init__("cupy")
        self.free, self.synchronized = free, 0
        self.cuda = types.SimpleNamespace(
            Device=lambda index: contextlib.nullcontext(index),
            Stream=lambda non_blocking: Stream(self),
            runtime=types.SimpleNamespace(memGetInfo=lambda: (self.free, total)),
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        )
        self.asarray = np.asarray

    def empty(self, shape, dtype):
        made = np.empty(shape, dtype)
        if made.nbytes > self.free:
            raise OutOfMemoryError("out of memory")
        self.free -= made.nbytes
        return made


@pytest.fixture
def cupy(monkeypatch):
    made = Cupy(free=10**6, total=4 * 10**6)
    monkeypatch.setitem(sys.modules, "cupy", made)
    return made


def test_a_slot_is_used_again_once_no_one_holds_it(cupy):
    pool = BufferPool((100, 100), "uint8", 2, GpuMemory(0).empty)
    for _ in range(20):
        view = pool.take()[3:]
        del view
    assert cupy.free == 10**6 - 10_000


@pytest.mark.parametrize(("capability", "load"), [("90", 0.9), ("80", 0.65), (None, 0.65)])
def test_a_gpu_of_many_engines_gives_them_more(cupy, capability, load):
    class Device(contextlib.nullcontext):
        compute_capability = capability

    cupy.cuda.Device = Device
    assert GpuMemory(0).hw_load == load and HostMemory().hw_load == 0.65


def test_print_says_that_no_gpu_has_run_it(cupy):
    assert GpuMemory(0).place == "GPU 0 (experimental: crashed once on a GPU)"
    assert HostMemory().place == "the CPU"


def test_no_room_says_how_much_is_free_and_who_may_hold_it(cupy):
    with pytest.raises(DeviceMemory) as caught:
        GpuMemory(3).empty((1200, 1000), "float32")
    text = str(caught.value)
    assert text.startswith(
        "the memory of GPU 3 has no room for a batch of 4.8 MB, 0.0 of 0.0 GB are free; lower the"
    )
    assert "set_memory_growth" in text and "XLA_PYTHON_CLIENT_PREALLOCATE=false" in text


def test_a_gpu_that_is_nearly_full_is_worth_a_word_at_the_start(cupy):
    cupy.free = 10**5
    with pytest.warns(
        UserWarning,
        match=r"GPU 0 has 0\.0 of 0\.0 GB free\. TensorFlow takes all that is free, unless",
    ):
        GpuMemory(0)


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16"])
def test_finished_pixels_are_converted_as_on_the_host(cupy, layout, dtype):
    import fastfeed as ff

    ops = (
        [ff.Normalize.imagenet()]
        if dtype == "float32"
        else [ff.ToFloat("float16")]
        if dtype == "float16"
        else []
    )
    how = fuse([*ops, ff.ToLayout(layout)], Spec((6, 5, 3), "uint8", "HWC")).convert
    pixels = np.random.default_rng(0).integers(0, 256, (3, 6, 5, 3), dtype=np.uint8)
    shape = (5, 6, 5, 3) if layout == "HWC" else (5, 3, 6, 5)
    outs = [np.zeros(shape, dtype) for _ in range(3)]
    for memory, out in zip((HostMemory(), GpuMemory(0)), outs, strict=False):
        memory.store(how, pixels, out, [4, 0, 2])
        memory.synchronize()
    convert(how, pixels, part := np.empty((3, *shape[1:]), dtype))
    outs[2][[4, 0, 2]] = part
    assert np.array_equal(outs[0], outs[2])
    np.testing.assert_allclose(
        outs[1].astype(np.float32), outs[2].astype(np.float32), rtol=0, atol=2e-3
    )
    assert cupy.synchronized == 1


def test_without_cupy_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        MissingExtra, match=r"batches on a GPU need CuPy: pip install 'fastfeed\[cuda13\]'"
    ):
        GpuMemory(0)


def test_slots_of_a_gpu_are_taken_by_several_threads(cupy):
    pool = BufferPool((10, 10), "uint8", 4, GpuMemory(0).empty)
    choices: list[int] = []

    def take() -> None:
        for _ in range(200):
            slot = pool.take()
            slot[...] = 1
            choices.append(len(slot))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(choices) == 800


def test_a_placement_does_not_move_a_gpus_batches_to_the_host(cupy):
    """Adapters ask for memory that they copy from fast; what a GPU has made lies there already."""
    import fastfeed as ff

    with ff.Feed(ff.Arrays(np.zeros((8, 4, 4, 3), np.uint8)), [], batch=4) as feed:
        made, gpu = FeedSession.of(feed).producer._builder.branches[0], GpuMemory(0)
        made.backend.xp, made.backend.empty = gpu.xp, gpu.empty
        made.buffers = BufferPool((4, 4, 4, 3), "uint8", 2, gpu.empty)
        before = made.buffers._allocate
        FeedSession.of(feed).producer.use_memory(
            lambda shape, dtype: pytest.fail("host memory for a GPU's batches")
        )
        assert made.buffers._allocate == before
        made.buffers.take()


def test_a_stream_outlives_whatever_was_to_be_freed_on_it(cupy):
    """CuPy destroys a stream once it is garbage: in a cycle before anything else there is freed."""
    destroyed = []

    class Mortal(Stream):
        def __init__(self, non_blocking: bool) -> None:
            super().__init__(cupy)

        def __del__(self) -> None:
            destroyed.append(self)

    cupy.cuda.Stream = Mortal
    first, second = GpuMemory(0), GpuMemory(0)
    streams = [memory._stream for memory in (first, second)]
    assert streams[0] is not streams[1]
    cycle = [first, second]
    cycle.append(cycle)
    names = [id(stream) for stream in streams]
    del first, second, streams, cycle
    gc.collect()
    assert not destroyed
    again = [GpuMemory(0) for _ in range(3)]
    assert sorted(id(memory._stream) for memory in again[:2]) == sorted(names), "used again"
    assert id(again[2]._stream) not in names
    assert id(GpuMemory(1)._stream) not in names, "of another GPU"
