"""Batch memory: reused when no batch refers to it, and never before."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from fastfeed.runtime.buffers import BufferPool


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.fixture(autouse=True, params=[True, False], ids=["with GIL", "without"])
def lock(request, monkeypatch):
    """Both ways to know what is in use."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: request.param, raising=False)


HOLDERS = {
    "itself": lambda a: a,
    "a view": lambda a: a[1:3],
    "a view of a view": lambda a: a[1:].reshape(-1)[::2],
    "one element's array": lambda a: a[2:3, 1:2],
    "a memoryview": memoryview,
    "another dtype": lambda a: a.view(np.uint8),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_what_is_held_is_left_alone(name):
    pool = BufferPool((4, 3), "float32", 2)
    held = HOLDERS[name](pool.take())
    others = [pool.take() for _ in range(3)]
    assert not any(np.shares_memory(other, np.asarray(held)) for other in others)


def test_what_is_dropped_is_used_again():
    pool = BufferPool((4, 3), "float32", 2)
    first = pool.take()
    where = address(first)
    view = first[1:]
    del first
    assert address(pool.take()) != where
    del view
    assert address(pool.take()) == where


def test_a_steady_consumer_gets_the_same_two():
    pool = BufferPool((1000, 1000), "uint8", 2)
    seen = set()
    batch = pool.take()
    for _ in range(20):
        following = pool.take()
        seen |= {address(batch), address(following)}
        batch = following
    assert len(seen) == 2


def test_more_than_it_keeps_are_fresh_and_forgotten():
    pool = BufferPool((1000, 1000), "uint8", 1)
    held = [pool.take() for _ in range(5)]
    assert len(set(map(address, held))) == 5
    kept = address(held[0])
    held.clear()
    assert address(pool.take()) == kept


def test_shape_dtype_and_memory_order():
    array = BufferPool((2, 3, 4), "float16", 1).take()
    assert (array.shape, array.dtype) == ((2, 3, 4), np.float16)
    assert array.flags.c_contiguous and array.flags.writeable


def test_threads_never_get_the_same():
    pool = BufferPool((64,), "int64", 8)
    clashes = []

    def use(mark: int) -> None:
        for _ in range(300):
            array = pool.take()
            array[:] = mark
            if not np.all(array == mark):
                clashes.append(mark)

    threads = [threading.Thread(target=use, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes


def test_arrays_that_numpy_cannot_see_are_not_lent():
    """CuPy's have no __array_interface__: they are given as they are, and their own pool reuses
    their memory.
    """

    class DeviceArray:
        base = None

        def view(self):
            return self

    pool = BufferPool((4, 3), "float32", 2, lambda shape, dtype: DeviceArray())
    assert all(isinstance(pool.take(), DeviceArray) for _ in range(3))
