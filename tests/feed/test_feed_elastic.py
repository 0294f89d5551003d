"""Saved on 8 ranks, resumed on 1, 2, 6 and 64: the same global batches, with all features at
once.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from helpers.feeds import feed

import fastfeed as ff
from fastfeed.distributed.world import World
from fastfeed.runtime.batch import Batch

GLOBAL, SIZES = 96, (1, 2, 6, 64)


class Flawed:
    """Images that are all alike, their weights, and a sample in every `each` that cannot be
    read.
    """

    classes = ()

    def __init__(self, count: int, each: int, shard: int) -> None:
        images = np.random.default_rng(count).integers(0, 256, (count, 12, 12, 3), np.uint8)
        self._arrays, self._each, self._count = ff.Arrays(images, np.arange(count)), each, count
        self.spec, self.fingerprint = self._arrays.spec, f"flawed {count}"
        self.bounds = np.unique([*range(0, count, shard), count])

    def __len__(self) -> int:
        return self._count

    def uri(self, i: int) -> str:
        return f"{self._count}/{i}"

    def label(self, ids: np.ndarray) -> np.ndarray:
        return self._arrays.label(ids)

    def read(self, ids: Any) -> list[Any]:
        images = self._arrays.read(ids)
        return [
            ff.Failure(i, self.uri(i), "read", "corrupt") if i % self._each == 3 else image
            for i, image in zip(map(int, ids), images, strict=True)
        ]

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        return np.full(len(ids), 432)

    def shard(self, unit: int) -> str:
        return f"{self._count} {unit}"

    def weights(self, ids: np.ndarray) -> np.ndarray:
        return (1 + np.asarray(ids) % 4).astype(np.float32)

    def boxes(self, ids: np.ndarray) -> None:
        return None

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        return {"twice": np.asarray(ids) * 2}


def rank(r: int, size: int, shuffle: Any, on_bad: str, prefetch: int) -> ff.Feed:
    source = ff.Mixture({"a": Flawed(300, 17, 30), "b": Flawed(130, 11, 13)}, {"a": 0.6, "b": 0.4})
    return feed(
        source,
        [ff.RandomResizedCrop(6), ff.RandomFlip()],
        global_batch=GLOBAL,
        world=World(r, size),
        seed=11,
        shuffle=shuffle,
        on_bad=on_bad,
        prefetch=prefetch,
        threads=1,
    )


def content(batches: list[Batch]) -> list[bytes]:
    """All that a step gives, put together from its ranks."""
    arrays = [[b.ids, b.labels, b.weights, b.images, b.columns["twice"]] for b in batches]
    return [np.concatenate(column).tobytes() for column in zip(*arrays, strict=True)]


@pytest.mark.parametrize(
    ("shuffle", "on_bad", "prefetch"),
    [
        ("full", "substitute", 2),
        pytest.param(
            ff.Blocks(window=2, lanes=8), "mask", 0, marks=pytest.mark.slow
        ),  # test_feed_orders resumes every order
        pytest.param(ff.Weighted(), "substitute", 3, marks=pytest.mark.slow),
    ],
    ids=["full", "blocks", "weighted"],
)
def test_eight_ranks_become_others(shuffle: Any, on_bad: str, prefetch: int):
    with rank(0, 1, shuffle, on_bad, 1) as alone:
        want = [content([batch]) for batch in alone.batches(0, epochs=2)]
        assert alone.stats().bad
        steps = len(alone)
    with rank(5, 8, shuffle, on_bad, prefetch) as one:
        walk = iter(one)
        for _ in range(2):
            next(walk)
        saved = json.loads(json.dumps(one.state()))
    for size in SIZES:
        walks = []
        for r in range(size):
            with rank(r, size, shuffle, on_bad, prefetch) as other:
                other.restore(saved)
                rest = list(other)  # of the epoch
                if size < 64:
                    rest += list(other)  # and the next one
                walks.append(rest)
        got = [content(list(step)) for step in zip(*walks, strict=True)]
        assert got == want[2 : 2 + len(got)]
        assert len(got) == steps - 2 + (steps if size < 64 else 0)
