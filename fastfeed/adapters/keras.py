"""A feed for Keras 3's `fit`, `evaluate` and `predict`, on any of its backends."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fastfeed.adapters.keras_epochs import Epochs
from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.feed.feed import Feed

try:
    keras: Any = importlib.import_module("keras")  # its names appear at run time: nothing for a type checker
except ImportError as error:
    raise MissingExtra.of("to_keras", "Keras 3", "keras") from error

__all__ = ["to_keras"]


def to_keras(feed: Feed, class_weight: Mapping[int, float] | None = None) -> Any:
    """A Keras `DataAdapter`, which `fit` takes as it is.

    Keras keeps that class to itself, so what this version does with one is tried out first. Where it is refused,
    TensorFlow gets a `tf.data.Dataset` and the other backends a `PyDataset`: the same batches by a longer way.

    class_weight: factors of the loss by label, 1 for labels that are not named; a soft label has the mean of its
    classes' factors. If given to `fit` together with a feed, Keras would silently ignore it, as it does with
    `sample_weight` and `y`: those are refused there.
    """
    epochs = Epochs(feed, _factors(class_weight), _peeks())
    backend = BACKENDS[keras.backend.backend()](epochs)
    adapter = _adapter(epochs, backend)
    if adapter is not None:
        return adapter
    if keras.backend.backend() == "tensorflow":
        return backend.data()
    return _py_dataset(epochs)


def _peeks() -> bool:
    """Older versions look at a batch in `fit` itself, where it cannot be told from one to train on."""
    look = getattr(keras.Model, "_symbolic_build", None)
    return look is None or "iterator" not in inspect.signature(look).parameters


def _factors(class_weight: Mapping[int, float] | None) -> np.ndarray | None:
    if not class_weight:
        return None
    try:
        labels, factors = zip(*((int(label), float(factor)) for label, factor in class_weight.items()), strict=True)
        if min(labels) < 0 or not np.isfinite(factors).all() or min(factors) < 0:
            raise ValueError("a label or a factor is negative or not finite")
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"class_weight must be like {{0: 1.0, 1: 2.5}}, got {class_weight!r}: {error}") from error
    table = np.ones(max(labels) + 1, np.float32)
    table[list(labels)] = factors
    return table


class _TensorFlow:
    """A dataset; on a GPU two batches are there ahead, under a strategy each device gets a piece of each batch."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._tf: Any = importlib.import_module("tensorflow")
        self._adapter: Any = importlib.import_module("fastfeed.adapters.tfdata")
        self._strategies: Any = importlib.import_module("fastfeed.adapters.tf_strategies")
        self._strategy = self._tf.distribute.get_strategy()

    def data(self, strategy: Any = None) -> Any:
        epochs, tf = self._epochs, self._tf
        strategy = self._strategy if strategy is None else strategy
        dataset = self._adapter.build_dataset(epochs.feed, epochs, Epochs.walk, epochs.tuples)
        if self._strategies.is_chosen(strategy):
            return self._strategies.distributed(dataset, epochs, strategy)
        world = epochs.feed.plan.world
        if world.size > 1 and world.found_by.startswith("TF_CONFIG"):
            raise self._strategies.several_workers(f"rank {world.rank} of {world.size} (TF_CONFIG)")
        if tf.config.list_logical_devices("GPU"):
            return self._adapter.on_device(dataset, "/GPU:0", epochs)
        return dataset


class _Jax:
    """Arrays that are on the device, or the devices of a distribution, before their turn."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs, self._jax = epochs, importlib.import_module("fastfeed.adapters.jax")

    def data(self) -> Iterator[tuple[Any, ...]]:
        feed, distribution = self._epochs.feed, keras.distribution.distribution()
        self._jax.check(feed)
        if distribution is None:
            placement = self._jax.JaxPlacement(None, feed.prefetch + 2)
        else:
            shape = (feed.plan.batch, *feed.program.shape)
            sharding = distribution.get_data_layout(shape).backend_layout
            placement = self._jax.JaxPlacement(sharding, feed.prefetch + 2)
            placement.check(feed.plan.batch, feed.plan.global_batch)
            if not sharding.is_fully_addressable:
                return self._epochs.walk()  # Keras puts together what the processes have
        self._epochs.use(placement)
        return self._epochs.walk()


class _Torch:
    """Tensors on Keras's device."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs, self._torch = epochs, importlib.import_module("fastfeed.adapters.torch")

    def data(self) -> Any:
        device = importlib.import_module("keras.src.backend.torch.core").get_device()
        place = "cpu" if device == "meta" else device
        self._torch.check(self._epochs.feed)
        self._epochs.use(self._torch.TorchPlacement(place, self._epochs.feed.prefetch + 2))
        return _Again(self._epochs)


BACKENDS = {"tensorflow": _TensorFlow, "jax": _Jax, "torch": _Torch}


def _adapter(epochs: Epochs, backend: Any) -> Any:
    try:
        from keras.src.trainers import data_adapters
        from keras.src.trainers.data_adapters.data_adapter import DataAdapter
    except ImportError:  # moved, in a version yet to come
        return None
    feed = epochs.feed

    class FeedAdapter(DataAdapter):
        """A fastfeed feed inside Keras."""

        def get_numpy_iterator(self) -> Iterator[tuple[Any, ...]]:
            return epochs.walk()

        def get_jax_iterator(self) -> Iterator[tuple[Any, ...]]:
            return backend.data()

        def get_tf_dataset(self) -> Any:
            return backend.data(sys._getframe(1).f_locals.get("distribute_strategy"))  # the model's, which decides

        def get_torch_dataloader(self) -> Any:
            return backend.data()

        @property
        def num_batches(self) -> int:
            _refuse(sys._getframe(1).f_locals)
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


def _refuse(caller: Mapping[str, Any]) -> None:
    """Keras drops other arguments of `fit` that gets an adapter; its iterator, which asks us first, still has them."""
    for name, instead in _IGNORED.items():
        if caller.get(name) is not None and "steps_per_execution" in caller:
            raise ConfigError(
                f"{name} must not be given to fit or evaluate together with a feed: Keras would ignore it; {instead}"
            )


_IGNORED = {
    "class_weight": "use feed.to_keras(class_weight={...})",
    "sample_weight": "put weights into the source, as in ff.Table(weight=...)",
    "y": "labels come from the feed's source",
}


class _Again:
    """Iterable any number of times."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._epochs.walk()


def _py_dataset(epochs: Epochs) -> Any:
    class FeedDataset(keras.utils.PyDataset):
        """Gives the batches in the feed's own order and ignores the index that Keras passes."""

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
