"""Samples put together, in a feed: images and labels of the same partners, whatever the batches and
the bad files.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from helpers.photos import broken, folder

from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError, SpecError
from fastfeed.feed.feed import Feed
from fastfeed.feed.session import FeedSession
from fastfeed.ops import (
    CutMix,
    Invert,
    LabelSmoothing,
    MixUp,
    Mosaic,
    MultiCrop,
    Normalize,
    OneHot,
    RandomChoice,
    Resize,
    ToFloat,
    ToLayout,
    View,
)
from fastfeed.sampling import Buckets, ClassBatches, Repeated
from fastfeed.sources import Arrays, ImageFolder

N = 20
# image i is all 12 i
LEVELS = np.broadcast_to((np.arange(N, dtype=np.uint8) * 12)[:, None, None, None], (N, 8, 8, 3))
SOURCE = Arrays(LEVELS, np.arange(N), classes=[str(i) for i in range(N)])


def shown(batch, row) -> np.ndarray:
    """Share of every sample in an image, from its levels."""
    return np.bincount(batch.images[row, :, :, 0].ravel() // 12, minlength=N)[:N] / 64


@pytest.mark.parametrize("batch", [3, 4, 8])
@pytest.mark.parametrize("op", [CutMix(), Mosaic()], ids=repr)
def test_labels_are_what_is_seen(op, batch):
    with Feed(SOURCE, [op], batch=batch, threads=2) as feed:
        for got in feed:
            assert got.labels.dtype == np.float32 and got.labels.shape == (batch, N)
            for row in range(batch):
                np.testing.assert_allclose(got.labels[row], shown(got, row), atol=1e-6)


def test_mixup_is_a_weighted_mean_of_two():
    with Feed(SOURCE, [MixUp(1.0)], batch=4, shuffle=False) as feed:
        for step, got in enumerate(feed):
            assert sorted(got.ids) == list(range(4 * step, 4 * step + 4))
            level = got.images[:, 0, 0, 0].astype(float)
            np.testing.assert_allclose(level, got.labels @ (np.arange(N) * 12), atol=0.51)
            for row, label in enumerate(got.labels):
                assert set(np.flatnonzero(label)) <= {int(got.ids[row]), int(got.ids[row ^ 1])}
            np.testing.assert_allclose(got.labels.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    "end", [[ToFloat()], [Normalize.imagenet(), ToLayout("CHW")], [ToLayout("CHW")]], ids=str
)
def test_conversion_comes_last_wherever_it_stands(end):
    mix = RandomChoice([MixUp(), CutMix()])
    with Feed(SOURCE, [*end, mix], batch=6) as one, Feed(SOURCE, [mix, *end], batch=6) as two:
        for a, b in zip(one, two, strict=True):
            assert a.images.dtype == FeedSession.of(two).program.spec.dtype
            np.testing.assert_array_equal(a.images, b.images)
            np.testing.assert_array_equal(a.labels, b.labels)


def test_ranks_agree_on_a_group_that_lies_between_them():
    ops = [Mosaic()]
    with Feed(SOURCE, ops, batch=20) as feed:
        (alone,) = feed
    for rank in range(4):
        with Feed(SOURCE, ops, global_batch=20, world=World(rank=rank, size=4)) as feed:
            (part,) = feed
        rows = slice(5 * rank, 5 * rank + 5)
        assert part.ids.tolist() == alone.ids[rows].tolist()
        np.testing.assert_array_equal(part.images, alone.images[rows])
        np.testing.assert_array_equal(part.labels, alone.labels[rows])


@pytest.fixture
def photos(tmp_path):
    root = folder(tmp_path / "photos", {"a": 8, "b": 8})
    for name in ("a/0003.jpg", "b/0001.jpg"):
        (root / name).write_bytes(broken("truncated"))
    return ImageFolder(root)


def test_a_masked_sample_is_mixed_into_none(photos):
    ops = [Resize((8, 8)), MixUp(1.0)]
    with Feed(photos, ops, batch=16, shuffle=False, on_bad="mask") as feed:
        (got,) = feed
    bad = np.flatnonzero(np.isin(got.ids, [3, 9]))
    assert np.flatnonzero(got.weights == 0).tolist() == bad.tolist()
    assert not got.images[bad].any()
    partners = np.setdiff1d(bad ^ 1, bad)
    assert (got.labels[partners].max(axis=1) == 1).all()
    assert (np.delete(got.labels, bad, axis=0).sum(axis=1) > 0.999).all()


def test_a_substitute_is_mixed_as_itself(photos):
    with Feed(photos, [Resize((8, 8)), MixUp(1.0)], batch=16, shuffle=False) as feed:
        (got,) = feed
    assert len(got.ids) == 16 and set(got.ids).isdisjoint({3, 9})
    np.testing.assert_allclose(got.labels.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("ops", "source", "error", "text"),
    [
        (
            [MixUp(), Invert()],
            SOURCE,
            SpecError,
            "MixUp works on finished samples; put it after Invert",
        ),
        (
            [MixUp(), CutMix()],
            SOURCE,
            ConfigError,
            "got MixUp and CutMix; write RandomChoice([MixUp(), CutMix()])",
        ),
        ([MixUp(), MixUp(2.0)], SOURCE, ConfigError, "got MixUp and MixUp; leave one of them out"),
        (
            [MultiCrop([View(8)]), MixUp()],
            SOURCE,
            SpecError,
            "MixUp does not go with ops that make several views",
        ),
        ([MixUp()], Arrays(LEVELS, np.arange(N)), ConfigError, "put OneHot(1000) before it"),
        ([LabelSmoothing()], Arrays(LEVELS), ConfigError, "LabelSmoothing(classes=1000)"),
        (
            [OneHot(9)],
            Arrays(LEVELS),
            ConfigError,
            "20 images, HWC uint8[8, 8, 3] has no labels, but the ops make",
        ),
        (
            [OneHot(9)],
            Arrays(LEVELS, np.arange(N)),
            ConfigError,
            "labels must be in [0, 9) to become soft, got 19 for",
        ),
        (
            [OneHot(5)],
            SOURCE,
            ConfigError,
            "OneHot classes must be at least the 20 that the source names, got 5",
        ),
    ],
)
def test_refuses(ops, source, error, text):
    with pytest.raises(error) as refused:
        Feed(source, ops, batch=4)
    assert text in str(refused.value)


def test_refuses_to_mix_samples_with_themselves():
    with pytest.raises(
        ConfigError,
        match=r"MixUp would mix samples with themselves: under Repeated\(times=2, together=True\) it"
        " needs a global batch of at least 4, got 2; raise batch, or write together=False",
    ):
        Feed(SOURCE, [MixUp()], batch=2, shuffle=Repeated(2, together=True))


@pytest.mark.parametrize(("op", "batch"), [(MixUp(), 12), (MixUp(), 3), (Mosaic(), 6)])
def test_refuses_to_mix_buckets(op, batch):
    """Also in groups that reach into the next step."""
    run = min(batch, 6)
    name = type(op).__name__
    with pytest.raises(
        ConfigError,
        match=rf"{name} mixes any {op.group} samples of a global batch and would mix buckets of"
        rf" Buckets\(.*\), got {batch} samples per step; make Buckets.batch a multiple of {op.group}"
        rf" and global_batch equal to it, or leave {name} out",
    ):
        Feed(SOURCE, [op], batch=batch, shuffle=Buckets(np.arange(N) % 2, run))


def test_mixes_within_a_bucket():
    buckets = np.arange(N) % 2
    options = {"global_batch": 4, "shuffle": Buckets(buckets, 4)}
    for rank in range(2):
        with Feed(SOURCE, [MixUp(1.0)], world=World(rank, 2), **options) as feed:
            for got in feed:
                assert len(np.unique(buckets[np.nonzero(got.labels)[1]])) == 1


def test_refuses_to_scatter_the_classes_of_class_batches():
    source = Arrays(LEVELS, np.arange(N) % 4, classes=("a", "b", "c", "d"))
    with pytest.raises(
        ConfigError,
        match=r"MixUp mixes any 2 samples of a global batch and would undo ClassBatches\(classes=2,"
        r" per_class=2, length=None\), which puts samples of a class next to each other; leave MixUp"
        r" out, or pass another order",
    ):
        Feed(source, [MixUp()], batch=4, shuffle=ClassBatches(2, 2))


def test_repeated_augmentation_mixes():
    """Three occurrences of a sample per batch, and partners from all of it."""
    with Feed(SOURCE, [MixUp(1.0)], batch=12, shuffle=Repeated(3, together=True)) as feed:
        labels = np.concatenate([got.labels for got in feed])
    assert (labels.max(axis=1) < 1).mean() > 0.5


def test_refuses_to_mix_alone():
    with pytest.raises(
        ConfigError, match=r"MixUp mixes neighbors of a batch and needs batch >= 2, got 1 per rank"
    ):
        Feed(SOURCE, [MixUp()], batch=1)
    with pytest.raises(ConfigError, match=r"got 1.5 per rank"):
        Feed(SOURCE, [MixUp()], global_batch=3, world=World(rank=0, size=2))


def own_shares(feed, epoch=0):
    """The share of each sample in its own image, by id; a list per global batch."""
    return [
        dict(zip(got.ids.tolist(), got.labels[range(len(got.ids)), got.ids].tolist(), strict=True))
        for got in feed.batches(epoch)
    ]


@pytest.mark.parametrize("op", [MixUp(1.0), RandomChoice([MixUp(1.0), MixUp(0.2)])], ids=repr)
def test_one_draw_for_a_batch_on_any_number_of_ranks(op):
    """Groups of two: every sample has the same share of its image, at each step another."""
    batched = dataclasses.replace(op, per="batch")
    with Feed(SOURCE, [batched], batch=10, seed=3) as feed:
        alone = own_shares(feed)
        again = own_shares(feed, 1)
    shares = [np.array(list(step.values())) for step in [*alone, *again]]
    assert all(np.ptp(step) < 1e-6 for step in shares)
    assert len({round(float(step[0]), 4) for step in shares}) == 4, "at each step another"
    ranks: list[dict[int, float]] = [{}, {}]
    for rank in range(2):
        world = World(rank, 2)
        with Feed(SOURCE, [batched], global_batch=10, seed=3, world=world) as feed:
            for step, found in enumerate(own_shares(feed)):
                ranks[step] |= found
    assert ranks == alone
    with Feed(SOURCE, [op], batch=10, seed=3) as feed:
        assert all(np.ptp(list(step.values())) > 0.01 for step in own_shares(feed))


@pytest.mark.parametrize("op", [MixUp(off_epoch=2), Mosaic(off_epoch=2), CutMix(off_epoch=0)])
def test_nothing_is_mixed_from_an_epoch_on(op):
    with Feed(SOURCE, [op], batch=4, seed=1) as feed:
        assert f"before epoch {op.off_epoch}" in str(feed)
        for epoch in (0, 1, 2, 7):
            for got in feed.batches(epoch):
                alone = got.labels[range(4), got.ids] == 1
                assert got.labels.dtype == np.float32
                assert alone.all() == (epoch >= op.off_epoch)
                level = got.images[alone].reshape(-1, 8 * 8 * 3)
                assert (level == got.ids[alone, None] * 12).all()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: MixUp(per="step"), 'MixUp per must be "sample" or "batch", got \'step\''),
        (lambda: CutMix(off_epoch=-1), "CutMix off_epoch must be an integer >= 0 or None, got -1"),
        (
            lambda: RandomChoice([MixUp(per="batch"), CutMix()]),
            "RandomChoice ops must be ops without per and off_epoch",
        ),
    ],
)
def test_refuses_other_times_of_mixing(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert text in str(error.value)
