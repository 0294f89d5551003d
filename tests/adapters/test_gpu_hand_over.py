"""A batch in a GPU's memory and the framework that takes it: each on streams of its own, as late as
they may be.
"""

import gc
import sys
from typing import Any

import numpy as np
import pytest
from helpers.late_cupy import LateCupy
from helpers.late_frameworks import Tensor, late_jax, late_tensorflow, late_torch
from helpers.late_gpu import LateGpu, Stream
from helpers.needs import needs

from fastfeed.adapters import prefetch_to_device as prefetching
from fastfeed.backends.gpu_memory import GpuMemory
from fastfeed.runtime.buffers import BufferPool

FRAMEWORKS = [
    pytest.param(late_torch, marks=needs("torch"), id="torch"),
    pytest.param(late_jax, marks=needs("jax"), id="jax"),
    pytest.param(late_tensorflow, marks=needs("tensorflow"), id="tensorflow"),
]


@pytest.fixture
def cupy(monkeypatch):
    module = LateCupy(LateGpu())
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def filled(memory, slot, value):
    """As a backend leaves a batch."""
    with memory.device_context():
        slot[...] = memory.xp.asarray(np.full(slot.shape, value, np.float32))
    memory.synchronize()
    return slot


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_slot_that_is_used_again_changes_no_earlier_batch(cupy, monkeypatch, framework):
    placement, _ = framework(cupy.gpu, monkeypatch)
    memory = GpuMemory(0)
    pool = BufferPool((6,), "float32", 1, memory.empty)
    taken, slots = [], set()
    for value in range(4):
        slot: Any = filled(memory, pool.take(), value)
        taken.append(placement.put((slot,)))
        slots.add(id(slot.memory))
        del slot
    assert len(slots) == 1
    for value, placed in enumerate(taken):
        (images,) = placement.take(placed)
        assert images.tolist() == [value] * 6


@needs("torch")
def test_work_that_pytorch_has_queued_reads_its_batch_and_no_later_one(cupy, monkeypatch):
    """The trainer's stream waits for the copy, and memory it has let go waits for the trainer's
    stream.
    """
    placement, torch = late_torch(cupy.gpu, monkeypatch)
    memory, trainer = GpuMemory(0), Stream(cupy.gpu)
    pool = BufferPool((6,), "float32", 2, memory.empty)
    sums = []
    for value in range(6):
        batch = filled(memory, pool.take(), value) if value % 2 else np.full(6, value, np.float32)
        placed = placement.put((batch,))
        del batch
        with torch.on(trainer):
            (images,) = placement.take(placed)
            sums.append(images.clone())
        del images, placed
        gc.collect()
    placement._stream.synchronize()
    with torch.on(trainer):
        assert [one.tolist() for one in sums] == [[value] * 6 for value in range(6)]


@needs("torch")
def test_page_locked_memory_is_held_until_it_has_been_copied(cupy, monkeypatch):
    """No one else refers to it: a batch has gone once it was put."""
    placement, torch = late_torch(cupy.gpu, monkeypatch)
    taken = [placement.put((np.full(6, value, np.float32),)) for value in range(4)]
    gc.collect()
    assert [placement.take(placed)[0].tolist() for placed in taken] == [
        [value] * 6 for value in range(4)
    ]
    torch.current.synchronize()
    placement.put((np.zeros(6, np.float32),))
    assert len(placement._copies) == 1, "what has been copied is let go"


def queued(cupy, count):
    """CuPy's arrays, filled again and again by work that no one has waited for."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        array = cupy.empty((6,), "float32")
        for value in range(count):
            array[...] = cupy.asarray(np.full(6, value, np.float32)) * np.float32(2)
            yield array, value


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_arrays_of_a_users_iterable_are_read_after_they_are_written(cupy, monkeypatch, framework):
    """CuPy's work is queued on a stream of which frameworks know nothing."""
    placement, _ = framework(cupy.gpu, monkeypatch)
    monkeypatch.setattr(prefetching, "_placement", lambda *_: placement)
    items = prefetching.prefetch_to_device(queued(cupy, 4), "cuda")
    got = [(images.tolist(), value) for images, value in items]
    assert got == [([2 * value] * 6, value) for value in range(4)]


@needs("torch")
def test_pytorchs_own_tensors_are_read_after_they_are_written(cupy, monkeypatch):
    """By the thread that draws the items, whose stream another one has to wait for."""
    placement, torch = late_torch(cupy.gpu, monkeypatch)
    monkeypatch.setattr(prefetching, "_placement", lambda *_: placement)

    def items():
        with torch.on(Stream(cupy.gpu)):
            tensor = Tensor(torch.empty((6,), "float32"))
            for value in range(4):
                tensor.fill_(value)
                yield tensor

    assert [one.tolist() for one in prefetching.prefetch_to_device(items(), "cuda")] == [
        [k] * 6 for k in range(4)
    ]


@needs("torch")
def test_copies_of_a_feeds_batches_do_not_wait_for_the_trainer(cupy, monkeypatch):
    """Its step is queued on the default stream, where copies would come too late."""
    placement, _ = late_torch(cupy.gpu, monkeypatch)
    memory, step = GpuMemory(0), []
    cupy.gpu.default.enqueue(lambda: step.append("done"))
    for batch in (filled(memory, memory.empty((6,), "float32"), 1), np.ones(6, np.float32)):
        placement.put((batch,))
    placement.put((np.ones(6, np.float32),), borrowed=True)
    assert not step
