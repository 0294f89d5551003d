"""Shared memory: nothing that is held is overwritten, what is not held is used again, and nothing
has a name.
"""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.feeds import NUMBERS
from helpers.helper_feeds import helper, shared_bytes, side

from fastfeed.feed.helper_process.server import SharedBuffers
from fastfeed.feed.session import FeedSession
from fastfeed.runtime.buffers import BufferPool
from fastfeed.sources import Arrays
from fastfeed.system.shared_memory import anonymous, mapped

PAGE = 4096
BATCH = 10 * 64 * 64 * 3  # bytes
LARGE = Arrays(np.broadcast_to(np.arange(50, dtype=np.uint8)[:, None, None, None], (50, 64, 64, 3)))


@pytest.fixture
def others() -> int:
    """Shared memory that earlier tests of this process still hold."""
    gc.collect()
    return shared_bytes()


def right(images: np.ndarray, ids: np.ndarray) -> bool:
    return bool((images == ids[:, None, None, None].astype(np.uint8)).all())


def test_memory_does_not_grow(others: int):
    with side(LARGE) as data:
        walk = data.batches(epochs=None)
        batch = next(walk)
        bound = 4 * (BATCH + PAGE)  # prefetch + 2
        for _ in range(200):
            batch = next(walk)
            assert right(batch.images, batch.ids)
        assert 0 < shared_bytes() - others <= bound
        assert 0 < shared_bytes(helper(data)) <= bound
        del batch


def test_a_consumer_may_keep_all_batches(others: int):
    with side(LARGE, prefetch=1) as data:
        kept = list(data.batches(epochs=8))
        assert len(kept) == 40
        assert all(right(batch.images, batch.ids) for batch in kept)
        assert len({batch.images.ctypes.data for batch in kept}) == 40
        assert shared_bytes() - others >= 40 * BATCH
        descriptors = len(os.listdir("/proc/self/fd"))
        kept.clear()
        for _ in range(2):
            for batch in data:
                assert right(batch.images, batch.ids)
        del batch
        assert shared_bytes() - others <= 3 * (BATCH + PAGE)
        assert shared_bytes(helper(data)) <= 4 * (BATCH + PAGE)
        assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_kept_batches_hold_no_file_descriptors():
    with side(LARGE) as data:
        first = next(iter(data))
        before = len(os.listdir("/proc/self/fd"))
        kept = list(data.batches(epochs=8))
        assert len(os.listdir("/proc/self/fd")) <= before
        assert right(first.images, first.ids)
        assert kept


def test_views_outlive_what_the_feed_does_and_the_feed():
    with side(LARGE, prefetch=0) as data:
        walk = data.batches(epochs=4)
        batch = next(walk)
        row, ids = memoryview(batch.images[3]), batch.ids
        flat = batch.images.reshape(-1)[::7]
        expected = flat.copy()
        del batch
        for other in walk:
            assert right(other.images, other.ids)
        del other
    del data, walk
    gc.collect()
    assert set(np.asarray(row).ravel().tolist()) == {int(ids[3])}
    assert np.array_equal(flat, expected)


def test_closing_a_walk_frees_its_slots(others: int):
    with side(LARGE) as data:
        for _ in range(12):
            walk = data.batches()
            next(walk)
            walk.close()
        for _ in range(12):
            next(data.batches(2))
        list(data)
        assert shared_bytes() - others <= 8 * (BATCH + PAGE)
        assert shared_bytes(helper(data)) <= 8 * (BATCH + PAGE)


def test_two_walks_at_once():
    with side(LARGE) as data, side(LARGE, side_process=False) as alone:
        mine, aside = iter(data), data.batches(4)
        for one, other, expected in zip(mine, aside, alone.batches(4), strict=True):
            assert right(one.images, one.ids)
            assert right(other.images, other.ids)
            assert np.array_equal(other.ids, expected.ids)


def _named() -> set[str]:
    """Shared memory that has a name; a profiler that another test runs at the same time has some,
    too.
    """
    return {
        name for name in os.listdir("/dev/shm") if not re.search("nsys|quadd", name, re.IGNORECASE)
    }


def test_memory_has_no_name():
    before = _named()
    with side(LARGE) as data:
        next(iter(data))
        assert _named() <= before
        links = [
            os.readlink(f"/proc/self/fd/{fd.name}")
            for fd in Path("/proc/self/fd").iterdir()
            if fd.is_symlink()
        ]
        assert sum("memfd:fastfeed" in link for link in links) <= 1 + len(links)


def test_large_arrays_travel_next_to_the_pickle():
    images = np.zeros((50, 64, 64, 3), np.uint8)
    with side(Arrays(images)) as data:
        sizes = FeedSession.of(data).producer._job.sizes
        assert images.nbytes in sizes
        assert sizes[0] < 20_000
        assert len(list(data)) == 5


# -- the parts


def test_mapped_memory_is_shared_and_private_memory_is_not():
    fd = anonymous(5000)
    one, other, own = (
        mapped(fd, 5000),
        mapped(fd, 5000, populate=True),
        mapped(fd, 5000, private=True),
    )
    os.close(fd)
    one[4999] = 7
    assert other[4999] == 7
    own[0] = 3
    assert (one[0], other.ctypes.data % PAGE) == (0, 0)


def test_lent_slots_are_not_used_until_they_are_back():
    shared = SharedBuffers(False)
    pool = BufferPool((10, 8, 8, 3), "uint8", 2, shared.allocate)
    first = pool.take()
    slot, fds = shared.lend(first)
    assert slot == (False, 0)
    assert len(fds) == 1
    shared.mark_sent(first)
    address = first.ctypes.data
    assert shared.lend(first) == (slot, [])
    del first
    assert pool.take().ctypes.data != address
    shared.release(slot)
    assert pool.take().ctypes.data == address


def test_memory_that_is_not_kept_is_unmapped():
    before = shared_bytes()
    shared = SharedBuffers(True)
    pool = BufferPool(NUMBERS.shape, "uint8", 0, shared.allocate)
    array = pool.take()
    assert shared_bytes() > before
    del array
    assert shared_bytes() == before
    assert not shared._by_address
