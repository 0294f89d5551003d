"""Subsets of a source: what they keep, under every order, resume, faults and other sources."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.feeds import NUMBERS, equal, feed, joined
from helpers.photos import broken, folder
from helpers.remotes import uploaded
from helpers.shards import shard_folder

import fastfeed as ff
from fastfeed.errors import ConfigError, FastfeedError
from fastfeed.storage.fingerprint import difference

FLOWERS = ff.Arrays(NUMBERS, np.arange(50) // 10, classes=("a", "b", "c", "d", "e"))
ODD = np.arange(1, 50, 2)


def ids_of(source: Any, **more: Any) -> np.ndarray:
    """What the images of an epoch say they are."""
    with feed(source, [], **({"batch": 5} | more)) as batches:
        return np.concatenate([batch.images[:, 0, 0, 0] for batch in batches.batches(epochs=1)])


def test_an_epoch_is_the_subset():
    for shuffle in (True, False, ff.Blocks(4)):
        ids = ids_of(ff.take(FLOWERS, ODD), shuffle=shuffle)
        assert sorted(ids.tolist()) == ODD.tolist()
    assert ids_of(ff.take(FLOWERS, [9, 3, 7, 1, 5]), shuffle=False).tolist() == [9, 3, 7, 1, 5]


def test_methods_are_the_functions():
    assert FLOWERS.take(3).uris([2]) == ["array[2]"]
    sides = FLOWERS.split({"train": 0.8, "val": 0.2}, by="stratified")
    assert np.bincount(sides["val"].label(np.arange(10))).tolist() == [2] * 5
    assert len(sides["train"].folds(4)) == 4
    assert len(FLOWERS.where(lambda columns: columns["label"] == 2)) == 10


def test_blocks_read_few_shards(tmp_path: Path):
    shards = ff.TarShards(shard_folder(tmp_path, (8, 8, 8, 8)), label=None)
    part = ff.take(shards, np.concatenate([np.arange(0, 8, 2), np.arange(16, 32, 2)]))
    assert part.bounds.tolist() == [0, 4, 8, 12]
    assert [part.shard(k) for k in range(3)] == [shards.shard(k) for k in (0, 2, 3)]
    order = ff.Blocks(window=1, lanes=1)
    with feed(part, [ff.Resize((8, 8))], batch=4, shuffle=order) as batches:
        for batch in batches.batches(epochs=1):
            assert len({uri.partition("#")[0] for uri in part.uris(batch.ids)}) == 1


def test_balancing_is_over_the_classes_that_have_samples():
    part = ff.take(FLOWERS, np.concatenate([np.arange(10), np.arange(40, 43)]))
    assert part.classes == FLOWERS.classes
    assert part.notes == ["no image here of 3 classes, such as b"]
    with feed(part, [], batch=10, shuffle=ff.Balanced()) as batches:
        labels = next(iter(batches)).labels
    assert np.bincount(labels, minlength=5).tolist() == [5, 0, 0, 0, 5]


def test_positions_resume_and_fit_any_number_of_ranks():
    part = ff.take(FLOWERS, ODD[:24])

    def epochs(rank: int, size: int) -> list[Any]:
        world = ff.World(rank, size)
        with feed(part, [], global_batch=4, world=world, seed=1) as batches:
            return list(batches.batches(epochs=2))

    alone = epochs(0, 1)
    assert joined([epochs(0, 2), epochs(1, 2)]) == joined([alone])
    with feed(part, [], batch=4, seed=1) as batches:
        walk = iter(batches)
        for _ in range(4):
            next(walk)
        state = batches.state()
    with feed(pickle.loads(pickle.dumps(part)), [], batch=4, seed=1) as batches:
        batches.restore(state)
        rest = iter(batches)
        assert equal([next(rest) for _ in range(2)], alone[4:6])
    for other in (ff.take(FLOWERS, ODD[1:]), ff.take(FLOWERS, 24)):
        with feed(other, [], batch=4, seed=1) as batches, pytest.raises(FastfeedError):
            batches.restore(state)


def test_a_difference_says_what_changed():
    parts = [ff.take(FLOWERS, ids).fingerprint for ids in ([1, 2], [1, 3])]
    images = ff.take(ff.Arrays(NUMBERS), [1, 2]).fingerprint
    mixed = ff.take(ff.Mixture([FLOWERS, FLOWERS]), [1, 99])
    say = lambda one, other: difference(one, other, 2, str)  # noqa: E731
    assert say(*parts) == "changed: the samples that are taken"
    assert say(parts[0], images) == "changed: the source that they are taken from"
    assert say(parts[1], images).endswith("are taken and the source that they are taken from")
    assert say(mixed.fingerprint, mixed.fingerprint) == "nothing changed"


def test_substitutes_are_of_the_subset(tmp_path: Path):
    root = folder(tmp_path, {"a": 8, "b": 8}, (8, 8))
    (root / "a" / "0001.jpg").write_bytes(broken("truncated"))
    part = ff.take(ff.ImageFolder(root), np.arange(8))
    with feed(part, [ff.Resize((8, 8))], batch=4, prefetch=0) as batches:
        found = list(batches.batches(epochs=3))
        assert {failure.uri for failure in batches.stats().bad} == {part.uri(1)}
    assert all((batch.labels == 0).all() for batch in found)


@pytest.mark.parametrize("remote", [False, True])
def test_failures_have_the_id_here(tmp_path: Path, remote: bool):
    root = folder(tmp_path, {"a": 4}, (8, 8))
    source = ff.ImageFolder(uploaded(root) if remote else root)
    (root / "a" / "0003.jpg").write_bytes(b"")
    if remote:
        source = ff.ImageFolder(uploaded(root))
    part = ff.take(source, [3, 0])
    bad, good = part.read([0, 1])
    assert (bad.id, bad.reason, bad.uri) == (0, "empty", source.uri(3)) and isinstance(good, bytes)
    if remote:
        assert part.remote and part.fetch([0])[0].result().id == 0


def test_a_subset_of_a_subset_is_one():
    inner = ff.take(FLOWERS, ODD)
    outer = ff.take(inner, [3, 0])
    assert outer.source is FLOWERS and outer.uris([0, 1]) == ["array[7]", "array[1]"]
    assert str(outer).startswith("2 images (chosen by id, of chosen by id) of Arrays: 50 images")
    assert outer.fingerprint == ff.take(FLOWERS, [7, 1]).fingerprint


def test_a_sample_costs_four_bytes():
    many = ff.Arrays(np.broadcast_to(np.zeros((1, 1, 1, 3), np.uint8), (100_000, 1, 1, 3)))
    part = ff.take(many, np.arange(50_000))
    assert len(pickle.dumps(part)) - len(pickle.dumps(many)) < 201_000


def test_a_mixture_keeps_its_shares():
    few, many = ff.Arrays(NUMBERS[:10]), ff.Arrays(NUMBERS[10:])
    mixture = ff.Mixture({"few": few, "many": many}, {"few": 1, "many": 3})
    part = ff.take(mixture, [40, 30, 20, 9, 8])
    assert part.uris(range(5)) == ["array[8]", "array[9]", "array[10]", "array[20]", "array[30]"]
    assert (part.shares, part.starts.tolist()) == ((1, 3), [0, 2, 5])
    ids = ids_of(ff.Objects(part, [[]] * 5), batch=4)
    assert np.count_nonzero(ids < 10) == 1
    with pytest.raises(ConfigError, match="got none of number 0, which has 1 of 4; make the Mix"):
        ff.take(mixture, [40, 30])


def test_a_mixture_without_weights_has_the_shares_that_are_left():
    parts = [ff.Arrays(NUMBERS[k : k + 10]) for k in (0, 10, 20)]
    part = ff.take(ff.Mixture(parts), [0, 1, 2, 25])
    assert (part.shares, part.starts.tolist()) == ((3, 1), [0, 3, 4])
    assert sorted(ids_of(part, batch=2).tolist()) == [0, 1, 2, 25]


def test_subsets_in_other_sources():
    part = ff.take(FLOWERS, [10, 20])
    mixture = ff.Mixture([part, FLOWERS])
    assert len(mixture) == 52 and mixture.label(np.array([1, 2])).tolist() == [2, 0]
    boxes = ff.Objects(part, [[[0, 0, 4, 4]], []], classes=("x",))
    again = ff.take(boxes, [1])
    found = again.objects(np.array([0]))
    assert found is not None and found.counts.tolist() == [0]
    assert (again.most, again.object_classes) == (1, ("x",))
    assert boxes.label(np.arange(2)).tolist() == [1, 2]


def test_samples_of_several_images():
    other = ff.Arrays(np.ascontiguousarray(NUMBERS + np.uint8(100)))
    part = ff.take(ff.Together({"left": FLOWERS, "right": other}), [9, 3, 7])
    with feed(part, [], batch=3, shuffle=False) as batches:
        batch = next(iter(batches))
    assert batch["left"][:, 0, 0, 0].tolist() == [9, 3, 7]
    assert batch["right"][:, 0, 0, 0].tolist() == [109, 103, 107]
    sides = ff.split(part.source, {"train": 0.5, "val": 0.5}, by="stratified")
    assert np.bincount(sides["val"].label(np.arange(25))).tolist() == [5] * 5


def test_printing_reads_no_items():
    class Items:
        read = 0

        def __len__(self) -> int:
            return 50

        def __getitem__(self, i: int) -> tuple[Any, int]:
            self.read += 1
            return NUMBERS[i], i % 2

    items = Items()
    part = ff.take(ff.Mapped(items, image=0, label=1, size=(8, 8), classes=("a", "b")), [8, 6])
    before = items.read
    str(part)
    assert items.read == before
    assert ids_of(part, batch=2, shuffle=False).tolist() == [8, 6]


REFUSED = [
    ([], "take: ids must be at least one, got none"),
    ([1, 2, 1], "take: ids must be different, got 1 2 times; pass each once, or Weighted"),
    ([50], "take: ids must be in [0, 50), got 50; pass ids of this source"),
    ([-1], "take: ids must be in [0, 50), got -1"),
    ([0.5], "take: ids must be a list of integers, got float64[1]"),
    (np.ones(50, bool), "got bool[50]; pass np.flatnonzero(mask)"),
    (0, "a number of samples must be in [1, 50], got 0"),
    (51, "a number of samples must be in [1, 50], got 51"),
]


@pytest.mark.parametrize(("ids", "text"), REFUSED, ids=[text[:60] for _, text in REFUSED])
def test_refuses(ids: Any, text: str):
    with pytest.raises(ConfigError) as error:
        ff.take(FLOWERS, ids)
    assert text in str(error.value)
