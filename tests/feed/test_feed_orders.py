"""Feeds in other orders than every sample once: what comes, how often, and the same again at
another world size.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.feeds import NUMBERS, equal, feed, joined, numbers
from helpers.photos import broken, folder
from helpers.shards import shard_folder

import fastfeed as ff
from fastfeed.distributed.world import World

LABELS = np.repeat([0, 1, 2], [30, 15, 5])
GLOBAL, STEP = 6, 3


def mixture(root: Path) -> ff.Mixture:
    """A folder with a broken file, and tar shards."""
    if not root.exists():
        folder(root / "folder", {"0": 9, "1": 8})
        (root / "folder" / "0" / "0003.jpg").write_bytes(broken("truncated"))
        shard_folder(root / "shards", (7, 5, 6))
    photos = ff.ImageFolder(root / "folder")
    return ff.Mixture(
        {"photos": photos, "shards": ff.TarShards(root / "shards", classes=("0", "1", "2"))},
        [0.3, 0.7],
    )


def drawn(epoch: int, positions: np.ndarray) -> np.ndarray:
    return np.random.default_rng((5, epoch)).permutation(len(positions))


def sources(root: Path) -> dict[str, tuple[Any, Any]]:
    arrays = ff.Arrays(NUMBERS, LABELS)
    return {
        "balanced": (arrays, ff.Balanced()),
        "buckets": (arrays, ff.Buckets(LABELS, 6, leftovers="fill")),
        "class batches": (arrays, ff.ClassBatches(3, 2)),
        "curriculum": (arrays, ff.Curriculum(np.arange(50) % 7, start=0.3, epochs=2)),
        "custom": (arrays, ff.CustomOrder(drawn)),
        "weighted": (arrays, ff.Weighted(np.arange(50))),
        "repeated": (arrays, ff.Repeated(3)),
        "together": (arrays, ff.Repeated(2, together=True)),
        "mixture": (mixture(root), "full"),
        "mixture in blocks": (mixture(root), ff.Blocks(window=1, lanes=2)),
        "blocks": (mixture(root).sources[1], ff.Blocks(window=2, lanes=2)),
    }


NAMES = [
    "balanced",
    "buckets",
    "class batches",
    "curriculum",
    "custom",
    "weighted",
    "repeated",
    "together",
    "mixture",
    "mixture in blocks",
    "blocks",
]


@pytest.mark.parametrize(
    ("name", "prefetch"),
    [
        *((name, 3) for name in NAMES),
        (NAMES[0], 0),
        *(pytest.param(name, 0, marks=pytest.mark.slow) for name in NAMES[1:]),
    ],
)
def test_resumes_at_another_world_size(tmp_path: Path, name: str, prefetch: int):
    source, shuffle = sources(tmp_path / "data")[name]

    def rank(r: int, size: int) -> ff.Feed:
        return feed(
            source,
            global_batch=GLOBAL,
            shuffle=shuffle,
            world=World(r, size),
            prefetch=prefetch,
            seed=3,
        )

    with rank(0, 1) as alone:
        want = [batch for epoch in (0, 1) for batch in alone.batches(epoch)]
    steps = len(want) // 2
    with rank(1, 2) as one:
        walk = iter(one)
        for _ in range(STEP):
            next(walk)
        saved = json.loads(json.dumps(one.state()))
    for size in (1, 2, 3, 6):
        ranks = []
        for r in range(size):
            with rank(r, size) as other:
                other.restore(saved)
                got = list(other)
                if got[-1].epoch == 0:
                    got += list(other)
                ranks.append(got)
        assert joined(ranks) == joined([want[STEP:]])
        assert len(ranks[0]) == 2 * steps - STEP


def test_repeats_are_augmented_again():
    with feed(
        ff.Arrays(NUMBERS + np.arange(8, dtype=np.uint8)[:, None, None], LABELS),
        [ff.RandomResizedCrop(4)],
        batch=50,
        shuffle=ff.Repeated(2, together=True),
    ) as made:
        batch = next(iter(made))
    pairs = batch.ids.reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()
    same = [np.array_equal(a, b) for a, b in batch.images.reshape(25, 2, 4, 4, 3)]
    assert sum(same) < 5, "both times the same crop"


def test_repeat_number_zero_is_as_without_repeats():
    with numbers(shuffle="none") as plain, numbers(shuffle=ff.Repeated(1)) as once:
        for one, other in ((plain, plain), (once, once)):
            assert equal(list(one.batches(2)), list(other.batches(2)))
        assert sorted(np.concatenate([b.ids for b in once.batches()]).tolist()) == list(range(50))


def test_balanced_classes_come_equally_often():
    with numbers_of(LABELS, shuffle=ff.Balanced()) as made:
        for epoch in range(3):
            counts = np.bincount(np.concatenate([batch.labels for batch in made.batches(epoch)]))
            assert counts.max() - counts.min() <= 1


def numbers_of(labels: np.ndarray, **more: Any) -> ff.Feed:
    return feed(ff.Arrays(NUMBERS, labels), [], **({"batch": 10} | more))


def test_a_mixture_has_its_shares(tmp_path: Path):
    source = mixture(tmp_path / "data")
    with feed(source, batch=5, on_bad="mask") as made:
        ids = np.concatenate([batch.ids for epoch in range(20) for batch in made.batches(epoch)])
    assert abs((ids >= len(source.sources[0])).mean() - 0.7) < 0.01
    assert {failure.uri for failure in made.stats().bad} == {source.uri(3)}


def test_a_state_of_another_order_is_refused():
    arrays = ff.Arrays(NUMBERS, LABELS)
    with feed(arrays, [], batch=5, shuffle=ff.Weighted(np.arange(50))) as one:
        saved = one.state()
    with feed(arrays, [], batch=5, shuffle=ff.Weighted(np.arange(50)[::-1])) as other:
        with pytest.raises(ff.errors.StateError, match="shuffle was"):
            other.restore(saved)
