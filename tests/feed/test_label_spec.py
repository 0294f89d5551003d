"""Labels that are no class numbers: a source says so with `label_spec`."""

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.adapters.batch_tuples import BatchTuples
from fastfeed.errors import ConfigError
from fastfeed.feed.session import FeedSession
from fastfeed.sources.base import Optionals
from fastfeed.spec import CLASS_NUMBER

PIXELS = (np.arange(12, dtype=np.uint8) * 20).reshape(12, 1, 1, 1).repeat(4, 1).repeat(4, 2)


class Targets(ff.Arrays):
    """Twelve images, each of the gray 20 * i, with targets."""

    def __init__(self, targets):
        super().__init__(PIXELS)
        self.targets = targets
        kind = "str" if targets.dtype == object else str(targets.dtype)
        self.label_spec = (targets.shape[1:], kind)

    def label(self, ids):
        return self.targets[ids]


VALUES = np.arange(12, dtype=np.float32) * 20
VECTORS = np.stack([VALUES, -VALUES], axis=1)
TEXTS = np.array([f"a caption of {i}" for i in range(12)], object)


def test_absent_it_is_a_class_number():
    source = ff.Arrays(PIXELS)
    assert Optionals(source).label_spec == CLASS_NUMBER == ((), "int64")
    assert FeedSession.of(ff.Feed(source, [], batch=4)).program.label == ((), "int64")


@pytest.mark.parametrize("targets", [VALUES, VECTORS, TEXTS, VECTORS.reshape(12, 2, 1)])
def test_targets_reach_the_batch_as_they_are(targets):
    feed = ff.Feed(Targets(targets), [ff.RandomFlip()], batch=4)
    for batch in feed:
        np.testing.assert_array_equal(batch.labels, targets[batch.ids])
        assert batch.labels.dtype == targets.dtype
    spec = FeedSession.of(feed).program.label
    assert spec.shape == targets.shape[1:]


def test_print_names_targets_with_their_shape():
    text = str(ff.Feed(Targets(VECTORS), [], batch=4))
    assert "label float32[4, 2]" in text


@pytest.mark.parametrize("op", [ff.MixUp(), ff.CutMix(), ff.Mosaic()])
@pytest.mark.parametrize("targets", [VALUES, VECTORS])
def test_float_targets_are_mixed_as_pixels_are(op, targets):
    """The mean gray of each mixed image is its target, which is the gray of an unmixed one."""
    feed = ff.Feed(Targets(targets), [op, ff.Normalize(mean=(0.0,), std=(1 / 255,))], batch=6)
    mixed = 0
    for batch in feed:
        gray = batch.images.mean(axis=(1, 2, 3))
        first = batch.labels if batch.labels.ndim == 1 else batch.labels[:, 0]
        np.testing.assert_allclose(first, gray, atol=0.6)
        mixed += np.count_nonzero(first % 20)
        if batch.labels.ndim == 2:
            np.testing.assert_allclose(batch.labels[:, 1], -first, atol=1e-3)
    assert mixed


@pytest.mark.parametrize("op", [ff.OneHot(3), ff.LabelSmoothing(0.1, classes=3)])
@pytest.mark.parametrize("targets", [VALUES, TEXTS])
def test_ops_that_need_classes_refuse_other_targets(op, targets):
    with pytest.raises(ConfigError, match=f"{type(op).__name__} needs class numbers as labels"):
        ff.Feed(Targets(targets), [op], batch=4)


def test_texts_cannot_be_mixed():
    with pytest.raises(ConfigError, match="MixUp needs class numbers as labels, got texts"):
        ff.Feed(Targets(TEXTS), [ff.MixUp()], batch=4)


@pytest.mark.parametrize("targets", [VALUES, VECTORS, TEXTS])
def test_balanced_needs_class_numbers(targets):
    with pytest.raises(
        ConfigError, match=r"Balanced\(\) needs class numbers as labels, got (float|texts)"
    ):
        ff.Feed(Targets(targets), [], batch=4, shuffle=ff.Balanced())


@pytest.mark.parametrize("targets", [VALUES, VECTORS, TEXTS])
def test_class_weight_needs_class_numbers(targets):
    session = FeedSession.of(ff.Feed(Targets(targets), [], batch=4))
    with pytest.raises(ConfigError, match="class_weight needs class numbers as labels, got"):
        BatchTuples.of(session, factors=np.ones(3, np.float32))


def test_a_masked_sample_has_a_finite_target():
    class Missing(Targets):
        def read(self, ids):
            return [
                ff.Failure(i, self.uri(i), "read", "label_missing") if i == 3 else PIXELS[i]
                for i in map(int, ids)
            ]

    values = VALUES.copy()
    values[3] = np.nan
    feed = ff.Feed(Missing(values), [], batch=4, shuffle=False, on_bad="mask")
    first = next(iter(feed))
    assert first.weights.tolist() == [1, 1, 1, 0]
    assert first.labels.tolist() == [0, 20, 40, 0]
    assert np.isnan(values[3])
