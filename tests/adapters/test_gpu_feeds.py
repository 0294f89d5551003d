"""A feed that decodes on a GPU, and each framework that computes on the processor: one copy, in
order.
"""

import numpy as np
import pytest
from helpers.late_dali import install
from helpers.late_gpu import LateGpu
from helpers.needs import needs
from helpers.side_by_side import needs_dali

import fastfeed as ff
from fastfeed.backends.options import GpuDecode
from fastfeed.feed.session import FeedSession

pytestmark = needs_dali
PIXELS = np.random.default_rng(0).integers(0, 256, (16, 24, 32, 3), dtype=np.uint8)
FRAMEWORKS = {
    "torch": lambda feed: feed.to_torch("cpu"),
    "jax": lambda feed: feed.to_jax(),
    "tensorflow": lambda feed: feed.to_tfdata(),
}


@pytest.fixture
def feed(monkeypatch):
    install(LateGpu(), monkeypatch)
    source = ff.Arrays(PIXELS, np.arange(16))
    with ff.Feed(
        source, [], batch=4, threads=1, backend="dali", decode=GpuDecode(), shuffle=False
    ) as made:
        assert "GPU 0" in str(made)
        yield made


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in FRAMEWORKS])
def test_batches_arrive_as_they_were_made(feed, name):
    got = [(np.asarray(images), np.asarray(labels)) for images, labels in FRAMEWORKS[name](feed)]
    assert np.array_equal(np.concatenate([images for images, _ in got]), PIXELS)
    assert np.array_equal(np.concatenate([labels for _, labels in got]), np.arange(16))


@needs("torch")
def test_single_views_arrive_as_they_were_made(monkeypatch):
    install(LateGpu(), monkeypatch)
    ops = [ff.MultiCrop((ff.View(8, 2),))]
    with ff.Feed(
        ff.Arrays(PIXELS), ops, batch=4, threads=1, backend="dali", decode=GpuDecode()
    ) as made:
        for first, views, second in made.to_torch("cpu", yields=("view_0", "image", "view_1")):
            np.testing.assert_array_equal(first, views[:, 0])
            np.testing.assert_array_equal(second, views[:, 1])


@needs("keras")
def test_epochs_that_keras_makes_a_dataset_of_are_numpys(feed):
    """Under a strategy of several devices, or with several steps per execution."""
    from fastfeed.adapters.keras.epochs import Epochs

    got = [images for images, _ in Epochs(FeedSession.of(feed)).walk()]
    assert all(isinstance(images, np.ndarray) for images in got) and np.array_equal(
        np.concatenate(got), PIXELS
    )


def test_work_that_is_queued_on_a_batch_reads_it_after_it_was_dropped(feed):
    """A loop that takes batches as they are, and CuPy's default stream: as with any array of
    CuPy.
    """
    import cupy

    rounded = []
    for batch in feed.batches(0, epochs=3):
        rounded.append(cupy.rint(batch.images))
        del batch
    cupy.cuda.get_current_stream().synchronize()
    got = np.concatenate([images.values for images in rounded])
    assert np.array_equal(got, np.concatenate([PIXELS] * 3))
