"""Random numbers of functions on fields depend on (seed, epoch, sample) alone, as those of ops do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.feeds import NUMBERS

import fastfeed as ff
from fastfeed.errors import SampleError
from fastfeed.sampling.rng import SLOT_MAP, _uniform

N = 24
GLOBAL = 6
IMAGES = NUMBERS[:N]
BAD_PIXELS = 7
BAD_FIELD = 9  # in the global batch of the other one
SEED = 5


def refused(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    if image[0, 0, 0] == BAD_PIXELS:
        raise ValueError("pixels")
    return image


def drawn(ids: np.ndarray, u: np.ndarray) -> np.ndarray:
    if BAD_FIELD in ids:
        raise SampleError("field", rows=np.flatnonzero(ids == BAD_FIELD).tolist())
    return u


def plain(u: np.ndarray) -> np.ndarray:
    return u[:, 0]


FIRST = ff.Map(drawn, "id", out="first", draws=3)
SECOND = ff.Map(plain, out="second", draws=1)
OPS = [FIRST, ff.Function(refused, draws=0), ff.Brightness((0.5, 1.5)), SECOND]


def samples(
    world: int, state: Any = None, steps: int = N, **more: Any
) -> tuple[dict[int, Any], Any]:
    """Id, numbers and pixels by position of epoch 1, and the state after some steps."""
    found: dict[int, Any] = {}
    after = None
    for rank in range(world):
        options = {"global_batch": GLOBAL, "seed": SEED, "on_error": "bad", "threads": 1} | more
        source = ff.Arrays(IMAGES, (np.arange(N) < 4).astype(int))
        with ff.Feed(source, OPS, world=ff.World(rank, world), **options) as feed:
            if state is None:
                feed.seek(1)
            else:
                feed.restore(state)
            for batch in feed:
                first = batch.step * GLOBAL + rank * len(batch)
                for row, id in enumerate(batch.ids.tolist()):
                    numbers = *batch["first"][row].tolist(), float(batch["second"][row])
                    found[first + row] = (id, numbers, int(batch.images[row, 0, 0, 0]))
                if batch.step + 1 == steps:
                    break
            after = feed.state()
    return found, after


@pytest.mark.parametrize("shuffle", [False, True])
def test_numbers_of_maps_are_pure(shuffle):
    whole, _ = samples(1, shuffle=shuffle)
    assert len(whole) == N
    for id, numbers, _ in whole.values():
        assert id not in (BAD_PIXELS, BAD_FIELD)
        keys = np.array([id])
        first = _uniform(SEED, 1, keys, SLOT_MAP, 3)
        second = _uniform(SEED, 1, keys, SLOT_MAP - 1, 1)
        assert numbers == (*first[0].tolist(), second[0, 0])
    for world in (2, 3, 6):
        assert samples(world, shuffle=shuffle)[0] == whole
    begun, state = samples(1, steps=2, shuffle=shuffle)
    resumed, _ = samples(3, state, shuffle=shuffle)
    assert begun | resumed == whole and len(begun) == len(resumed) == N // 2


def test_a_sample_that_occurs_again_draws_other_numbers():
    order = ff.Balanced()
    whole, _ = samples(1, shuffle=order)
    assert samples(2, shuffle=order)[0] == whole
    ids = [id for id, _, _ in whole.values()]
    assert len({numbers for _, numbers, _ in whole.values()}) > len({*ids})


def test_maps_leave_the_numbers_of_ops_and_views_alone():
    views = ff.MultiCrop((ff.View(4), ff.View(6, ops=[ff.Brightness((0.5, 1.5))])))
    source = ff.Arrays(IMAGES)

    def views_with(*maps: ff.Map) -> list[np.ndarray]:
        with ff.Feed(source, [*maps, views, ff.Invert()], batch=N) as feed:
            return list(next(iter(feed)).views)

    for one, other in zip(views_with(), views_with(SECOND), strict=True):
        np.testing.assert_array_equal(one, other)
