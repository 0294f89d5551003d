"""Views of several sizes: a tuple of arrays in the place of the images.

JAX, which forks badly, is in jax_checks.py.
"""

from __future__ import annotations

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.runtime.placement import flatten

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 20, 24, 3), dtype=np.uint8)
OPS = [ff.MultiCrop((ff.View(16, 2), ff.View(8, 3))), ff.ToFloat()]


@pytest.fixture
def feed():
    with ff.Feed(ff.Arrays(IMAGES, np.arange(12)), OPS, batch=4, threads=2) as made:
        yield made


def check(feed, got):
    """What a framework gives is what plain iteration gives."""
    want = next(iter(feed.batches(0)))
    views, labels = got
    assert isinstance(views, tuple) and len(views) == 2
    for view, other in zip(views, want.views, strict=True):
        np.testing.assert_array_equal(np.asarray(view), other)
    np.testing.assert_array_equal(np.asarray(labels), want.labels)


def test_torch(feed):
    pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
    loader = feed.to_torch(device="cpu")
    check(feed, next(iter(loader)))


def test_tfdata_and_keras(feed):
    pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'fastfeed[tf]'")
    data = feed.to_tfdata()
    views, labels = data.element_spec
    assert [tuple(view.shape) for view in views] == [
        (4, 2, 16, 16, 3),
        (4, 3, 8, 8, 3),
    ] and labels.shape == (4,)
    check(feed, next(iter(data)))


def test_all_views_are_placed(feed):
    batch = next(iter(feed))
    arrays, rebuild = flatten(batch)
    assert len(arrays) == 4, "the first views are the images: once"
    again = rebuild(iter([array + 1 for array in arrays]))
    assert again.images is again.views[0]
    for view, other in zip(again.views, batch.views, strict=True):
        np.testing.assert_array_equal(view, other + 1)


def test_plain_batches_say_both_sizes(feed):
    assert "a batch is float32[4, 2, 16, 16, 3] and float32[4, 3, 8, 8, 3], 33.9 kB" in str(feed)
