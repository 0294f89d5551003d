"""Feeds handed to what is not made for them: DataLoaders, model.fit, pickle, tuple
unpacking.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError, FeedClosed

pytestmark = pytest.mark.filterwarnings(
    "ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
# JAX, where another test of this process has loaded it, warns of fork(), which DataLoaders use


def _feed(**options):
    images = np.arange(8, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 3), np.uint8)
    return ff.Feed(ff.Arrays(images, np.arange(8)), [], batch=2, threads=1, **options)


def test_a_feed_in_each_worker_of_a_data_loader(capfd):
    data = pytest.importorskip(
        "torch.utils.data", reason="needs PyTorch: make test TORCH=torch==2.13.0"
    )

    class Samples(data.IterableDataset):
        def __init__(self, split):
            self.split = split

        def __iter__(self):
            worker = data.get_worker_info()
            options = (
                {"world": World(rank=worker.id, size=worker.num_workers)} if self.split else {}
            )
            with _feed(**options) as feed:
                yield from (batch.labels.tolist() for batch in feed)

    with pytest.raises(
        ConfigError, match=r"worker 0 of 2 of a torch DataLoader.*feed\.to_torch\(\)"
    ):
        list(data.DataLoader(Samples(False), batch_size=None, num_workers=2))
    for split, workers in ((True, 2), (False, 1)):
        labels = [
            label
            for batch in data.DataLoader(Samples(split), None, num_workers=workers)
            for label in batch
        ]
        assert sorted(labels) == list(range(8))


def test_a_feed_that_workers_inherit():
    data = pytest.importorskip(
        "torch.utils.data", reason="needs PyTorch: make test TORCH=torch==2.13.0"
    )

    class Wrapped(data.IterableDataset):
        def __init__(self, feed):
            self.feed = feed

        def __iter__(self):
            return (batch.labels.tolist() for batch in self.feed)

    with _feed() as feed, pytest.raises(FeedClosed, match=r"create the feed in the child"):
        list(
            data.DataLoader(
                Wrapped(feed), batch_size=None, num_workers=1, multiprocessing_context="fork"
            )
        )


def test_a_data_loader_around_a_feed():
    data = pytest.importorskip(
        "torch.utils.data", reason="needs PyTorch: make test TORCH=torch==2.13.0"
    )
    with _feed(shuffle=False) as feed:
        for wrapped in (feed, feed.to_torch("cpu")):
            with pytest.raises(
                ConfigError,
                match=r"without a DataLoader or .*: for images, labels in feed\.to_torch\(\)",
            ):
                list(data.DataLoader(wrapped, batch_size=None))


def test_print_says_that_channels_come_last():
    pytest.importorskip("torch", reason="needs PyTorch: make test TORCH=torch==2.13.0")
    for ops, said in (([], True), ([ff.ToLayout("CHW")], False)):
        with ff.Feed(ff.Arrays(np.zeros((2, 4, 4, 3), np.uint8)), ops, batch=2, threads=1) as feed:
            first, again = str(feed.to_torch("cpu")), str(feed.to_torch("cpu"))
            assert first == again
            assert ("images are NHWC" in first) == said


def test_pickle_and_copy():
    with _feed() as feed:
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(
                ConfigError, match=r"cannot be pickled or copied; pickle its source"
            ):
                attempt(feed)


def test_images_and_labels_of_a_batch():
    with _feed() as feed:
        with pytest.raises(ConfigError, match=r"batch\.images, batch\.labels.*feed\.to_torch\(\)"):
            for _images, _labels in feed:
                pass


@pytest.mark.slow
def test_keras_fit_of_a_feed():
    keras = pytest.importorskip("keras", reason="needs Keras: pip install 'fastfeed[keras]'")
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(8)])
    model.compile("sgd", "sparse_categorical_crossentropy")
    with (
        _feed() as feed,
        pytest.raises(ConfigError, match=r"pass feed\.to_keras\(\) to model\.fit"),
    ):
        model.fit(feed)
