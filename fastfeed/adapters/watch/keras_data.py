"""Any data that Keras takes, watched where Keras takes it: `ff.watched(data).to_keras()`.

Keras asks a `DataAdapter` for what its trainer iterates. This one asks Keras's own for the data,
and times the iteration from outside, on the thread that trains. Inside of a graph, where TensorFlow
reads a `tf.data` pipeline, and in the thread that TensorFlow runs ahead of a generator, no Python
could.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastfeed.adapters.keras.epochs import is_keras_peeking
from fastfeed.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from fastfeed.adapters.watch.loader import Watched

__all__ = ["watched_adapter"]

_log = logging.getLogger("fastfeed")


def watched_adapter(watched: Watched[Any], data: Any) -> Any:
    """See Watched.to_keras."""
    try:
        adapters: Any = importlib.import_module("keras.src.trainers.data_adapters")
        base: Any = importlib.import_module(
            "keras.src.trainers.data_adapters.data_adapter"
        ).DataAdapter
    except ImportError as error:
        raise MissingExtra.of("to_keras", "Keras 3", "keras") from error
    try:
        inner = adapters.get_data_adapter(data)
    except (ValueError, TypeError) as error:  # "Unrecognized data type"
        raise ConfigError(
            f"Keras does not take a {type(data).__name__}: {error}; pass a tf.data.Dataset, a"
            " PyDataset, a generator"
        ) from error

    class WatchedAdapter(base):
        """Data that ff.watched() watches, inside Keras."""

        _fastfeed = watched

        def get_numpy_iterator(self) -> Any:
            return inner.get_numpy_iterator()

        def get_jax_iterator(self) -> Any:
            return (
                inner.get_jax_iterator()
                if is_keras_peeking()
                else watched.walk(inner.get_jax_iterator())
            )

        def get_torch_dataloader(self) -> Any:
            return _Again(watched, inner.get_torch_dataloader())

        def get_tf_dataset(self) -> Any:
            caller = sys._getframe(1).f_locals  # what `fit` asks for
            dataset, steps = (
                inner.get_tf_dataset(),
                caller.get("kwargs", {}).get("steps_per_execution", 0),
            )
            tensorflow: Any = importlib.import_module("fastfeed.adapters.keras.tensorflow")
            strategy = caller.get("distribute_strategy")
            if steps == 1 and (strategy is None or not tensorflow.is_chosen(strategy)):
                return tensorflow.watched(watched, dataset)
            _log.warning(
                "this data is read in TensorFlow's graph here, so how long training waits for it is"
                " not known"
            )
            return dataset

        @property
        def num_batches(self) -> Any:
            return inner.num_batches

        @property
        def batch_size(self) -> Any:
            return inner.batch_size

        @property
        def has_partial_batch(self) -> Any:
            return inner.has_partial_batch

        @property
        def partial_batch_size(self) -> Any:
            return inner.partial_batch_size

        def on_epoch_begin(self) -> None:
            inner.on_epoch_begin()

        def on_epoch_end(self) -> None:
            # a generator continues in the next epoch; what comes between is no training
            watched.pause()
            inner.on_epoch_end()

    return WatchedAdapter()


class _Again:
    """Iterable any number of times."""

    def __init__(self, watched: Watched[Any], loader: Any) -> None:
        self._watched, self._loader = watched, loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader) if is_keras_peeking() else self._watched.walk(self._loader)
