"""A feed for Keras 3's `fit`, `evaluate` and `predict`, on any of its backends."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from fastfeed.batch import Batch
from fastfeed.errors import MissingExtra
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
    """
    epochs = Epochs(feed)
    adapter = _adapter(epochs)
    if adapter is not None:
        return adapter
    if keras.backend.backend() == "tensorflow":
        return importlib.import_module("fastfeed.adapters.tfdata").dataset(feed, epochs.walk)
    return _py_dataset(epochs)


class Epochs:
    """Walks of one epoch, as Keras asks for them.

    Keras may take the first batch to build a model and then begin again, and it does not always ask for the end of an
    epoch. So an epoch counts once its last batch is given; one broken off before that begins again at its start, and if
    only its first batch was taken, that batch is given once more instead of being made again.
    """

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._start: tuple[int, int] | None = None  # of the walk that has not given its last batch
        self._live: Iterator[Batch] = iter(())
        self._first: Batch | None = None  # given, and nothing after it

    def walk(self) -> Iterator[tuple[Any, ...]]:
        """One epoch of (images, labels[, weights])."""
        feed = self.feed
        if self._first is None:
            if self._start is not None:
                feed.seek(*self._start)
            self._live = iter(feed)
            batch = next(self._live)
            self._start = (batch.epoch, batch.step)
            self._first = batch if self._is_open(batch) else None
        else:
            batch = self._first
        live = self._live
        while True:
            yield (batch.images, batch.labels, batch.weights) if feed.weighted else (batch.images, batch.labels)
            self._first = None
            if self._live is not live or self._start is None:
                return
            batch = next(live)
            self._is_open(batch)

    def _is_open(self, batch: Batch) -> bool:
        """Whether the epoch goes on after this batch."""
        if batch.step + 1 == len(self.feed):
            self._start = None
        return self._start is not None


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
            return importlib.import_module("fastfeed.adapters.tfdata").dataset(feed, epochs.walk)

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
            return False

        @property
        def partial_batch_size(self) -> None:
            return None

        def on_epoch_end(self) -> None:
            feed.epoch_ended()

        def __repr__(self) -> str:
            return f"{feed!r}.to_keras()"

    adapter = FeedAdapter()
    try:
        return adapter if data_adapters.get_data_adapter(adapter) is adapter else None
    except (ValueError, TypeError):  # "Unrecognized data type": before Keras took adapters from outside
        return None


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
