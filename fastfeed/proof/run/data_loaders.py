"""Loaders of an unchanged trainer that are measured.

The first one is: a DataLoader whose batch an optimizer of PyTorch steps on, or the data of Keras's
`fit`.
`fastfeed prove` has these functions called in the trainer when it has imported their modules.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from fastfeed.adapters.watch.loader import Watched
from fastfeed.proof.measure.loaders import Begin, Place
from fastfeed.proof.measure.session import Session
from fastfeed.proof.run import trainer

AFTER_IMPORT = {  # module of the trainer -> what to call with it
    "torch.optim.optimizer": "fastfeed.proof.run.data_loaders:count_steps",
    "torch.utils.data.dataloader": "fastfeed.proof.run.data_loaders:watch_loaders",
    "keras.src.trainers.epoch_iterator": "fastfeed.proof.run.data_loaders:watch_fit",
}


def count_steps(module: Any, choice: LoaderChoice | None = None) -> Any:
    """Report every step of an optimizer to the choice; returns PyTorch's handle of the hook.

    Args:
        module: `torch.optim.optimizer`.
        choice: Receives the steps; None: that of this process.
    """
    chosen = choice or _CHOICE
    torch = sys.modules["torch"]

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not torch.compiler.is_compiling():  # a compiled step does not call hooks
            chosen.stepped()

    return module.register_optimizer_step_post_hook(stepped)


def watch_loaders(module: Any, choice: LoaderChoice | None = None) -> None:
    """Let the choice begin the epochs of every DataLoader.

    Args:
        module: `torch.utils.data.dataloader`.
        choice: Begins them; None: that of this process.
    """
    chosen = choice or _CHOICE
    begin = module.DataLoader.__iter__

    @functools.wraps(begin)
    def begin_watched(self: Any) -> Iterator[Any]:
        return chosen.begin(self, functools.partial(begin, self))

    module.DataLoader.__iter__ = begin_watched


def watch_fit(module: Any, choice: LoaderChoice | None = None) -> None:
    """Let the choice take the data of Keras's `fit`, on any backend.

    Args:
        module: `keras.src.trainers.epoch_iterator`.
        choice: Takes the data; None: that of this process.
    """
    chosen = choice or _CHOICE
    initialize = module.EpochIterator.__init__

    @functools.wraps(initialize)
    def initialize_and_take(self: Any, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        if "class_weight" not in kwargs:  # `evaluate` and `predict` have none
            return
        data = kwargs["x"]
        adapter = self.data_adapter
        owner = getattr(data, "_fastfeed", getattr(adapter, "_fastfeed", None))
        is_feed = owner is not None and not isinstance(owner, Watched)
        if not is_feed and trainer.current().takes_loaders:
            self.data_adapter = _endless(_FitData(chosen, data, adapter))
            self._num_batches = None

    module.EpochIterator.__init__ = initialize_and_take


class LoaderChoice:
    """The loader that is measured: the first one that a trainer has stepped with."""

    def __init__(self) -> None:
        self.last: LoaderEpoch | None = None  # that gave the newest batch
        self._loader: Any = None
        self._session: Session | None = None
        self._is_made = False
        self._is_fit = False  # DataLoaders may then be part of the data that is measured

    def begin(self, loader: Any, begin: Begin) -> Iterator[Any]:
        """Start an epoch of a loader, or continue the proof, if it is of this loader."""
        if self._is_fit or (self._is_made and self._session is None):
            return begin()
        if self._session is None:
            return LoaderEpoch(self, loader, begin)
        if loader is self._loader:
            return trainer.current().measured(self._session)
        self._session.cut()
        return begin()

    def stepped(self) -> None:
        """Make the choice, if an optimizer has stepped for the first time on a loader's batch."""
        epoch = self.last
        if epoch is None or self._is_made:
            return
        self.last = None
        self._choose(epoch.loader, epoch.begin, epoch.batches, None)
        if self._session is not None:
            epoch.batches = trainer.current().measured(self._session)

    def train(self, fit: _FitData, begin: Begin) -> Iterator[Any]:
        """Start an epoch of the data of `fit`, or continue the proof, if it is of this data."""
        if not self._is_made:
            self._is_fit = True
            self._choose(fit.loader, begin, begin(), fit.place)
            if self._session is not None:
                self._session.record.feed["steps"] = fit.adapter.num_batches
        if self._session is not None and fit.loader is self._loader:
            return trainer.current().measured(self._session)
        self.cut()
        return begin()

    def cut(self) -> None:
        """Leave out the block under way: the trainer does something else between two steps."""
        if self._session is not None:
            self._session.cut()

    def _choose(
        self, loader: Any, begin: Begin, under_way: Iterator[Any], place: Place | None
    ) -> None:
        self._is_made = True
        self._loader = loader
        self._session = trainer.current().measure(loader, begin, under_way, place)


class LoaderEpoch:
    """An epoch of a DataLoader, which becomes the proof's when its loader is chosen."""

    def __init__(self, choice: LoaderChoice, loader: Any, begin: Begin) -> None:
        self.loader = loader
        self.begin = begin
        self.batches = begin()
        self._choice = choice

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._choice.last = self
        return next(self.batches)


class _FitData:
    """The data of one `fit`, as Keras's adapter gives it to the backend."""

    def __init__(self, choice: LoaderChoice, loader: Any, adapter: Any) -> None:
        self.loader = loader
        self.adapter = adapter
        self._data = adapter  # for Watched.to_keras, which needs no more of a Watched
        self._choice = choice
        backend = sys.modules["keras.src.backend.config"].backend()
        self.place: Place | None = _put_by_jax if backend == "jax" else None
        self._restart = {  # begins an epoch; TensorFlow's dataset can be iterated again
            "jax": adapter.get_jax_iterator,
            "torch": adapter.get_torch_dataloader,
        }.get(backend)
        self._is_begun = False

    def walk(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Batches to train on, in place of these."""

        def begin() -> Iterator[Any]:
            nonlocal batches
            if self._is_begun:
                self.adapter.on_epoch_end()
                self.adapter.on_epoch_begin()
                batches = self._restart() if self._restart else batches
            self._is_begun = True
            return iter(batches)

        return self._choice.train(self, begin)

    def pause(self) -> None:
        """An epoch of `fit` has ended."""
        self._choice.cut()


def _put_by_jax(batch: Any) -> tuple[Any, bool]:
    return sys.modules["jax"].device_put(batch), True


def _endless(data: Any) -> Any:
    """Keras's adapter with batches of the proof, which end with it and not with an epoch."""
    watched = Watched.to_keras(data)
    watched.__class__ = type("ProofAdapter", (type(watched),), {"num_batches": None})
    return watched


_CHOICE = LoaderChoice()
