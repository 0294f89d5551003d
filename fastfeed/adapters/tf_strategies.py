"""A feed for Keras under a TensorFlow strategy of one process: a piece of each batch for each of its devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from fastfeed.adapters.keras_epochs import Epochs, is_keras_peeking
from fastfeed.errors import ConfigError

__all__ = ["distributed", "is_chosen"]


def is_chosen(strategy: Any) -> bool:
    """Whether the user chose this strategy: it is not TensorFlow's default."""
    with strategy.scope():
        return bool(tf.distribute.has_strategy())


def distributed(dataset: Any, epochs: Epochs, strategy: Any) -> Any:
    """What Keras iterates instead of the dataset of these epochs."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and strategy.num_replicas_in_sync > 1:
        raise several_workers(f"a strategy of {strategy.num_replicas_in_sync}")
    return _Distributed(strategy.experimental_distribute_dataset(dataset), epochs)


def several_workers(got: str) -> ConfigError:
    """Keras 3 ends in errors of its own there, whatever its data: it reduces each worker's values as several."""
    return ConfigError(
        f"to_keras can feed one TensorFlow worker, got {got}: Keras 3 does not run under MultiWorkerMirroredStrategy "
        "(github.com/keras-team/keras/issues/20585), and without it each worker would train alone; write the loop "
        "yourself, over strategy.distribute_datasets_from_function(lambda context: feed.to_tfdata()), or train by "
        "Keras on JAX, with keras.distribution.DataParallel"
    )


class _Distributed(tf.distribute.DistributedDataset):
    """A distributed dataset that Keras may look at without taking batches from the feed.

    It does so before every `fit` and `evaluate`, and TensorFlow draws more of them meanwhile, for each device.
    """

    def __init__(self, dataset: Any, epochs: Epochs) -> None:
        self._dataset, self._epochs = dataset, epochs

    def __iter__(self) -> Iterator[Any]:
        return iter([self._epochs.zeros()] if is_keras_peeking() else self._dataset)

    @property
    def element_spec(self) -> Any:
        return self._dataset.element_spec

    def reduce(self, initial_state: Any, reduce_func: Any) -> Any:
        return self._dataset.reduce(initial_state, reduce_func)
