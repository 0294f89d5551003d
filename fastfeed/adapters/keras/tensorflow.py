"""Iterables for Keras on TensorFlow instead of a `tf.data.Dataset`.

Keras takes a `tf.distribute.DistributedDataset` as it is. One of ours yields tensors straight from
the feed; under a strategy of one process, one of TensorFlow's own gives each device a piece of each
batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from fastfeed.adapters.batch_tuples import BatchTuples
from fastfeed.adapters.keras.epochs import Epochs, is_keras_peeking
from fastfeed.adapters.tfdata import build_dataset, elements, signature
from fastfeed.errors import ConfigError, StateError
from fastfeed.feed.fields import Yields
from fastfeed.feed.session import FeedSession


def whole_epochs(session: FeedSession, yields: Yields, unbatched: bool = False) -> Any:
    """A dataset whose length is known, of batches or samples, with Keras's element spec."""
    tuples = BatchTuples.of(session, yields, lists=False)

    def epoch(session: FeedSession) -> Iterator[Any]:
        for number, batch in enumerate(session.placed(None)):
            if batch.step != number:
                raise StateError(
                    f"this data set yields whole epochs, and its feed stands at step {batch.step} of"
                    " one; call feed.seek(epoch), or pass feed.to_keras() to fit to resume there"
                )
            yield elements(batch, tuples)

    dataset = build_dataset(session, session, epoch, tuples, any_length=True)
    plan = session.plan
    length = plan.steps
    if unbatched:
        dataset = dataset.unbatch()
        length = plan.own_length
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(length))
    setattr(dataset, "_fastfeed", session)  # noqa: B010
    return dataset


def is_chosen(strategy: Any) -> bool:
    """True if the user chose this strategy: it is not TensorFlow's default."""
    with strategy.scope():
        return bool(tf.distribute.has_strategy())


def distributed(dataset: Any, epochs: Epochs, strategy: Any) -> Any:
    """The dataset of these epochs as Keras iterates it under a strategy."""
    if (
        isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        and strategy.num_replicas_in_sync > 1
    ):
        raise several_workers(f"a strategy of {strategy.num_replicas_in_sync}")
    return _Distributed(strategy.experimental_distribute_dataset(dataset), epochs)


def several_workers(got: str) -> ConfigError:
    """The error for several TensorFlow workers, under which Keras 3 does not run."""
    return ConfigError(
        f"to_keras can feed one TensorFlow worker, got {got}: Keras 3 does not run under"
        " MultiWorkerMirroredStrategy (github.com/keras-team/keras/issues/20585), and without it"
        " each worker would train alone; write the loop yourself, over"
        " strategy.distribute_datasets_from_function(lambda context: feed.to_tfdata()), or train"
        " by Keras on JAX, with keras.distribution.DataParallel"
    )


class EagerDataset(tf.distribute.DistributedDataset):
    """Eager tensors on TensorFlow's first device, without a dataset before the trainer.

    For Keras from 3.7, which takes any iterator, and one step per execution: more are one graph,
    which needs a dataset.
    """

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def __iter__(self) -> Iterator[Any]:
        return _Steps(self._epochs.walk())

    @property
    def element_spec(self) -> Any:
        tuples = self._epochs.tuples
        return signature(tuples, None if tuples.loose else self._epochs.session.plan.batch)


class WatchedDataset(tf.distribute.DistributedDataset):
    """A dataset taken eagerly, one batch at a time, each timed by `loader.walk`."""

    def __init__(self, loader: Any, dataset: Any) -> None:
        self._loader = loader
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return (
            iter(self._dataset) if is_keras_peeking() else _Steps(self._loader.walk(self._dataset))
        )

    @property
    def element_spec(self) -> Any:
        return self._dataset.element_spec


class _Steps:
    """An iterator that ends with OutOfRangeError, as TensorFlow's do."""

    def __init__(self, walk: Iterator[Any]) -> None:
        self._walk = walk

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        for item in self._walk:
            return item
        raise tf.errors.OutOfRangeError(None, None, "the epoch has ended")


class _Distributed(tf.distribute.DistributedDataset):
    """A distributed dataset that Keras may look at without taking batches from the feed.

    It does so before every `fit` and `evaluate`, and TensorFlow draws more of them meanwhile, for
    each device.
    """

    def __init__(self, dataset: Any, epochs: Epochs) -> None:
        self._dataset = dataset
        self._epochs = epochs

    def __iter__(self) -> Iterator[Any]:
        return iter([self._epochs.zeros()] if is_keras_peeking() else self._dataset)

    @property
    def element_spec(self) -> Any:
        return self._dataset.element_spec

    def reduce(self, initial_state: Any, reduce_func: Any) -> Any:
        return self._dataset.reduce(initial_state, reduce_func)
