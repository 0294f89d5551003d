"""What a sample becomes depends on (seed, epoch, sample) alone: not on ranks, batches, threads or
restarts.

What it is mixed with also depends on its global batch.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from helpers.op_examples import ALL, listed, one_of_each
from helpers.photos import picture

from fastfeed import recipes
from fastfeed.distributed.world import World
from fastfeed.feed.feed import Feed
from fastfeed.ops import CutMix, MixUp, Mosaic, RandomChoice, RandomResize
from fastfeed.sources import Arrays

SOURCE = Arrays(
    np.stack([picture(i, (24, 32)) for i in range(22)]), np.arange(22) % 3, classes=["a", "b", "c"]
)
LISTS = [
    *([*listed(op)] for op in ALL if op.kind != "decode"),
    recipes.imagenet_train(20),
    recipes.imagenet_eval(20),
    recipes.cifar_train(),
    [*recipes.stock_photo_train(20), RandomChoice([MixUp(), CutMix(), Mosaic()])],
]


def types(ops) -> tuple[type, ...]:
    return tuple(map(type, ops))


def sums(
    ops, world: int, total: int, threads: int, epoch: int, start: int = 0, shuffle: bool = True
) -> dict[int, int]:
    """Checksum of image and label by sample, over all ranks, `total` samples per global batch."""
    found: dict[int, int] = {}
    for rank in range(world):
        where = World(rank=rank, size=world)
        how = {"world": where, "threads": threads, "tail": "pad", "seed": 5, "shuffle": shuffle}
        with Feed(SOURCE, ops, global_batch=total, **how) as feed:
            for got in feed.batches(epoch, start):
                for row in np.flatnonzero(got.weights):
                    images = [view[row] for view in got.views] or [got.images[row]]
                    sum = zlib.crc32(got.labels[row].tobytes())
                    for image in images:
                        sum = zlib.crc32(np.ascontiguousarray(image).tobytes(), sum)
                    assert found.setdefault(int(got.ids[row]), sum) == sum
    return found


@pytest.mark.parametrize("ops", one_of_each(LISTS, types), ids=lambda ops: repr(ops[-1]))
def test_samples_are_pure(ops):
    alone = sums(ops, 1, 8, 1, epoch=1)
    assert len(alone) == len(SOURCE)
    total = 8 if any(op.kind == "mix" for op in ops) else 12
    assert sums(ops, 2, total, 3, epoch=1) == alone
    later = sums(ops, 1, 8, 2, epoch=1, start=1)
    assert 0 < len(later) < len(alone) and later.items() <= alone.items()


@pytest.mark.parametrize(
    "ops",
    # a size that is drawn is undone by the Resize behind it
    one_of_each(
        (ops for ops in LISTS if any(op.draws for op in ops if not isinstance(op, RandomResize))),
        types,
    ),
    ids=lambda ops: repr(ops[-1]),
)
def test_epochs_differ(ops):
    """In the same order, so that partners of mixing are the same, too."""
    one, two = (sums(ops, 1, 8, 1, epoch, shuffle=False) for epoch in (0, 1))
    certain = all(
        getattr(op, "p", None) in (0, 1) for op in ops if op.draws and op.kind == "geometry"
    )
    changed = any(one[id] != two[id] for id in one)
    assert changed or (certain and not any(op.draws for op in ops if op.kind != "geometry"))
