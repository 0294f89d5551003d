"""A feed for Keras 3's `fit`, `evaluate` and `predict`, on any of its backends."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fastfeed.adapters.batch_tuples import refusal
from fastfeed.adapters.keras.checks import (
    check_whole,
    ends_by_steps,
    follow_fit,
    refuse_ignored,
    refuse_same_feed,
)
from fastfeed.adapters.keras.epochs import Epochs
from fastfeed.adapters.versions import framework
from fastfeed.errors import ConfigError
from fastfeed.feed.fields import Yields
from fastfeed.feed.session import FeedSession
from fastfeed.sources.label_values import MOST_CLASSES

keras: Any = framework("keras", "to_keras")


def to_keras(
    session: FeedSession,
    class_weight: Mapping[int, float] | None = None,
    yields: Yields | None = None,
) -> Any:
    """A Keras `DataAdapter`, which `fit` takes as it is.

    Keras keeps that class to itself, so what this version does with one is tried out first. Where
    it is refused, TensorFlow gets a `tf.data.Dataset` and the other backends a `PyDataset`: the
    same batches by a longer way.

    class_weight: factors of the loss by label, 1 for labels that are not named; a soft label has
    the mean of its classes' factors. If given to `fit` together with a feed, Keras would silently
    ignore it, as it does with
    `sample_weight` and `y`: those are refused there.
    """
    if session.is_proving:
        importlib.import_module("fastfeed.adapters.no_saving").refuse_keras()
    epochs = Epochs(session, yields, _factors(class_weight), _peeks())
    backend = BACKENDS[keras.backend.backend()](epochs)
    adapter = _adapter(epochs, backend)
    if adapter is not None:
        return adapter
    if keras.backend.backend() == "tensorflow":
        return backend.data()
    return _py_dataset(epochs)


def _peeks() -> bool:
    """True for versions that take a batch in `fit` to learn its shapes."""
    look = getattr(keras.Model, "_symbolic_build", None)
    return look is None or "iterator" not in inspect.signature(look).parameters


def _factors(class_weight: Mapping[int, float] | None) -> np.ndarray | None:
    if not class_weight:
        return None
    try:
        labels, factors = zip(
            *((int(label), float(factor)) for label, factor in class_weight.items()), strict=True
        )
        if min(labels) < 0 or not np.isfinite(factors).all() or min(factors) < 0:
            raise ValueError("a label or a factor is negative or not finite")
        if max(labels) >= MOST_CLASSES:
            raise ValueError(f"class numbers are below {MOST_CLASSES:,}")
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"class_weight must be like {{0: 1.0, 1: 2.5}}, got {class_weight!r}: {error}",
            field="class_weight",
        ) from error
    table = np.ones(max(labels) + 1, np.float32)
    table[list(labels)] = factors
    return table


def _check_no_texts(epochs: Epochs) -> None:
    """Refuse texts, which no layer takes on this backend of Keras."""
    for field in epochs.tuples.fields:
        if not field.is_array:
            backend = keras.backend.backend()
            raise refusal(field, f"it is texts, and Keras on {backend} computes on numbers alone")


class _TensorFlow:
    """Tensors on the first device, or a dataset of two batches ahead if Keras needs one.

    Under a strategy each device gets a piece of each batch.
    """

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._tf: Any = importlib.import_module("tensorflow")
        self._adapter: Any = importlib.import_module("fastfeed.adapters.tfdata")
        self._iterated: Any = importlib.import_module("fastfeed.adapters.keras.tensorflow")
        self._strategy = self._tf.distribute.get_strategy()
        self._adapter.signature(epochs.tuples, None)  # or an error

    def data(self, strategy: Any = None, steps_per_execution: int = 0) -> Any:
        """The data for Keras; `steps_per_execution` is the model's, 0 if unknown."""
        epochs = self._epochs
        session = self._epochs.session
        strategy = self._strategy if strategy is None else strategy
        if self._iterated.is_chosen(strategy):
            return self._iterated.distributed(self._dataset(), epochs, strategy)
        world = session.plan.world
        if world.size > 1 and world.found_by.startswith("TF_CONFIG"):
            raise self._iterated.several_workers(f"rank {world.rank} of {world.size} (TF_CONFIG)")
        gpu = bool(self._tf.config.list_logical_devices("GPU"))
        # a partial batch has another shape, for which Keras would compile the model once more
        if steps_per_execution == 1 and not session.partial and _takes_iterators():
            epochs.use(self._adapter.TfPlacement("GPU:0" if gpu else "CPU:0", session.prefetch + 2))
            return self._iterated.EagerDataset(epochs)
        return (
            self._adapter.on_device(self._dataset(), "/GPU:0", epochs) if gpu else self._dataset()
        )

    def _dataset(self) -> Any:
        return self._adapter.build_dataset(
            self._epochs.session, self._epochs, Epochs.walk, self._epochs.tuples
        )


def _takes_iterators() -> bool:
    """True since Keras 3.7, which no longer compiles training together with its iterator."""
    trainer = importlib.import_module("keras.src.backend.tensorflow.trainer")
    return hasattr(trainer.TensorFlowTrainer, "_make_function")


class _Jax:
    """Arrays that are on the device, or the devices of a distribution, before their turn."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._jax = importlib.import_module("fastfeed.adapters.jax")
        _check_no_texts(epochs)
        self._jax.check_fields(epochs.tuples.fields)

    def data(self) -> Iterator[Any]:
        session = self._epochs.session
        distribution = keras.distribution.distribution()
        self._jax.check(session)
        if distribution is None:
            placement = self._jax.JaxPlacement(None, session.prefetch + 2)
        else:
            shape = (session.plan.batch, *session.program.shape)
            sharding = distribution.get_data_layout(shape).backend_layout
            placement = self._jax.JaxPlacement(sharding, session.prefetch + 2)
            placement.check(session.plan)
            if not sharding.is_fully_addressable:
                return self._epochs.walk()  # Keras puts together what the processes have
        self._epochs.use(placement)
        return self._epochs.walk()


class _Torch:
    """Batches as PyTorch tensors on Keras's device."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._torch = importlib.import_module("fastfeed.adapters.torch")
        _check_no_texts(epochs)
        self._torch.check_fields(epochs.tuples.fields)

    def data(self) -> Any:
        device = importlib.import_module("keras.src.backend.torch.core").get_device()
        place = "cpu" if device == "meta" else device
        self._torch.check(self._epochs.session)
        self._epochs.use(self._torch.TorchPlacement(place, self._epochs.session.prefetch + 2))
        return _Reiterable(self._epochs)


BACKENDS = {"tensorflow": _TensorFlow, "jax": _Jax, "torch": _Torch}


def _adapter(epochs: Epochs, backend: Any) -> Any:
    try:
        from keras.src.trainers import data_adapters
        from keras.src.trainers.data_adapters.data_adapter import DataAdapter
    except ImportError:  # moved, in a version yet to come
        return None
    session = epochs.session

    class FeedAdapter(DataAdapter):
        """A fastfeed feed inside Keras."""

        _fastfeed = session
        _is_endless = property(lambda _: epochs.endless)

        def get_numpy_iterator(self) -> Iterator[Any]:
            return epochs.walk()

        def get_jax_iterator(self) -> Iterator[Any]:
            return backend.data()

        def get_tf_dataset(self) -> Any:
            caller = sys._getframe(
                1
            ).f_locals  # the model's strategy, which decides, and what else `fit` asks for
            steps = caller.get("kwargs", {}).get("steps_per_execution", 0)
            return backend.data(caller.get("distribute_strategy"), steps)

        def get_torch_dataloader(self) -> Any:
            return backend.data()

        @property
        def num_batches(self) -> int | None:
            caller = sys._getframe(1).f_locals
            refuse_ignored(session, caller)
            refuse_same_feed(session)
            check_whole(session)
            epochs.endless = ends_by_steps(session, caller)
            follow_fit(session)
            # of a proof, an epoch lasts as long as that
            return None if session.is_proving or epochs.endless else len(session)

        batch_size = property(lambda _: session.plan.batch)
        has_partial_batch = property(lambda _: session.partial)
        partial_batch_size = property(lambda _: session.plan.left if session.partial else None)

        def on_epoch_begin(self) -> None:
            follow_fit(session)  # again: a callback may have restored Keras's epoch

        def on_epoch_end(self) -> None:
            session.cursor.epoch_ended()

        def __repr__(self) -> str:
            return f"{session!r}.to_keras()"

    adapter = FeedAdapter()
    try:
        return adapter if data_adapters.get_data_adapter(adapter) is adapter else None
    except (
        ValueError,
        TypeError,
    ):  # "Unrecognized data type": before Keras took adapters from outside
        return None


class _Reiterable:
    """Iterable any number of times."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def __iter__(self) -> Iterator[Any]:
        return self._epochs.walk()


def _py_dataset(epochs: Epochs) -> Any:
    class FeedDataset(keras.utils.PyDataset):
        """Gives the batches in the feed's own order and ignores the index that Keras passes."""

        def __init__(self) -> None:
            super().__init__(workers=1, use_multiprocessing=False)
            self._walk: Iterator[Any] = iter(())

        _fastfeed = epochs.session

        def __len__(self) -> int:
            refuse_same_feed(epochs.session)
            check_whole(epochs.session)
            follow_fit(epochs.session)
            return len(epochs.session)

        def __getitem__(self, index: int) -> Any:
            item = next(self._walk, None)
            if item is None:
                self._walk = epochs.walk()
                item = next(self._walk)
            return item

    return FeedDataset()
