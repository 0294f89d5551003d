"""A feed for Keras 3's `fit`, `evaluate` and `predict`, on any of its backends."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from fastfeed.adapters.tuples import arrays
from fastfeed.batch import Batch
from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.feed import Feed

try:
    keras: Any = importlib.import_module("keras")  # its names appear at run time: nothing for a type checker
except ImportError as error:
    raise MissingExtra.of("to_keras", "Keras 3", "keras") from error

__all__ = ["to_keras"]


def to_keras(feed: Feed) -> Any:
    """A Keras `DataAdapter`, which `fit` takes as it is.

    Keras keeps that class to itself, so what this version does with one is tried out first. Where it is refused,
    TensorFlow gets a `tf.data.Dataset` and the other backends a `PyDataset`: the same batches by a longer way.

    Keras asks an adapter for nothing but batches: `class_weight`, `sample_weight` and `y` given beside it to `fit` have
    no effect.
    """
    epochs = Epochs(feed)
    adapter = _adapter(epochs)
    if adapter is not None:
        return adapter
    if keras.backend.backend() == "tensorflow":
        return _tf_dataset(epochs)
    return _py_dataset(epochs)


class Epochs:
    """Walks of one epoch, as Keras asks for them.

    The first fit may take a batch to build the model and then begin again; that one is given once more, unless the feed
    has been moved since. Any other walk is as iterating the feed: one broken off is followed by the next epoch.
    """

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._live: Iterator[Batch] = iter(())
        self._given = 0  # batches, in all
        self._peeked: Batch | None = None  # the first, while it is the only one
        self._moves = feed.moves

    def walk(self) -> Iterator[tuple[Any, ...]]:
        """One epoch of (images, labels[, weights])."""
        return arrays(self.feed, self._batches())

    def _batches(self) -> Iterator[Batch]:
        if self._peeked is not None and self._moves == self.feed.moves:
            yield self._peeked
        else:
            self._live = iter(self.feed)
        self._peeked = None
        for batch in self._live:
            self._given += 1
            if self._given == 1 and batch.step + 1 < len(self.feed):
                self._peeked, self._moves = batch, self.feed.moves
            yield batch
            self._peeked = None


def _adapter(epochs: Epochs) -> Any:
    try:
        from keras.src.trainers import data_adapters
        from keras.src.trainers.data_adapters import data_adapter_utils
        from keras.src.trainers.data_adapters.data_adapter import DataAdapter
    except ImportError:  # moved, in a version yet to come
        return None
    feed = epochs.feed

    class FeedAdapter(DataAdapter):
        """A fastfeed feed inside Keras."""

        def get_numpy_iterator(self) -> Iterator[tuple[Any, ...]]:
            return epochs.walk()

        def get_jax_iterator(self) -> Iterator[tuple[Any, ...]]:
            return epochs.walk()

        def get_tf_dataset(self) -> Any:
            world = feed.plan.world
            if world.size > 1 and world.found_by.startswith("TF_CONFIG"):
                raise ConfigError(
                    "Keras fit under a multi-worker strategy would cut each worker's batch into one piece per worker, "
                    "since it takes what a worker reads for the batch of all; train in a loop of your own over "
                    "strategy.distribute_datasets_from_function(lambda context: feed.to_tfdata())"
                )
            return _tf_dataset(epochs)

        def get_torch_dataloader(self) -> Any:
            return data_adapter_utils.get_torch_dataloader(_Again(epochs))

        @property
        def num_batches(self) -> int:
            return len(feed)

        @property
        def batch_size(self) -> int:
            return feed.plan.batch

        @property
        def has_partial_batch(self) -> bool:
            return feed.partial

        @property
        def partial_batch_size(self) -> int | None:
            return feed.plan.length % feed.plan.batch if feed.partial else None

        def on_epoch_end(self) -> None:
            feed.epoch_ended()

        def __repr__(self) -> str:
            return f"{feed!r}.to_keras()"

    adapter = FeedAdapter()
    try:
        return adapter if data_adapters.get_data_adapter(adapter) is adapter else None
    except (ValueError, TypeError):  # "Unrecognized data type": before Keras took adapters from outside
        return None


def _tf_dataset(epochs: Epochs) -> Any:
    return importlib.import_module("fastfeed.adapters.tfdata").dataset(epochs.feed, epochs, Epochs.walk)


class _Again:
    """Iterable any number of times."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._epochs.walk()


def _py_dataset(epochs: Epochs) -> Any:
    class FeedDataset(keras.utils.PyDataset):
        """Gives the batches in the feed's own order, whatever index Keras asks for."""

        def __init__(self) -> None:
            super().__init__(workers=1, use_multiprocessing=False)
            self._walk: Iterator[tuple[Any, ...]] = iter(())

        def __len__(self) -> int:
            return len(epochs.feed)

        def __getitem__(self, index: int) -> tuple[Any, ...]:
            item = next(self._walk, None)
            if item is None:
                self._walk = epochs.walk()
                item = next(self._walk)
            return item

    return FeedDataset()
