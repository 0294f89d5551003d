"""Batch memory: used again when nobody holds it, and never before."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from fastfeed.runtime.buffers import Slots


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


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
    slots = Slots((4, 3), "float32", 2)
    held = HOLDERS[name](slots.take())
    others = [slots.take() for _ in range(3)]
    assert not any(np.shares_memory(other, np.asarray(held)) for other in others)


def test_what_is_dropped_is_used_again():
    slots = Slots((4, 3), "float32", 2)
    first = slots.take()
    where = address(first)
    view = first[1:]
    del first
    assert address(slots.take()) != where
    del view
    assert address(slots.take()) == where


def test_a_steady_consumer_gets_the_same_two():
    slots = Slots((1000, 1000), "uint8", 2)
    seen = set()
    batch = slots.take()
    for _ in range(20):
        following = slots.take()
        seen |= {address(batch), address(following)}
        batch = following
    assert len(seen) == 2


def test_more_than_it_keeps_are_fresh_and_forgotten():
    slots = Slots((1000, 1000), "uint8", 1)
    held = [slots.take() for _ in range(5)]
    assert len(set(map(address, held))) == 5
    kept = address(held[0])
    held.clear()
    assert address(slots.take()) == kept


def test_shape_dtype_and_memory_order():
    array = Slots((2, 3, 4), "float16", 1).take()
    assert (array.shape, array.dtype) == ((2, 3, 4), np.float16)
    assert array.flags.c_contiguous and array.flags.writeable


def test_threads_never_get_the_same():
    slots = Slots((64,), "int64", 8)
    clashes = []

    def use(mark: int) -> None:
        for _ in range(300):
            array = slots.take()
            array[:] = mark
            if not np.all(array == mark):
                clashes.append(mark)

    threads = [threading.Thread(target=use, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes
