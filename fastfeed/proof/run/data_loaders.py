"""DataLoaders of an unchanged PyTorch trainer: the one whose batch an optimizer steps on is
measured.

`fastfeed prove` has these functions called in the trainer when it has imported PyTorch's modules.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

from fastfeed.proof.measure.loaders import Begin, LoaderSession
from fastfeed.proof.run import trainer

__all__ = ["AFTER_IMPORT", "count_steps", "watch_loaders"]

AFTER_IMPORT = {  # module of the trainer -> what to call with it
    "torch.optim.optimizer": "fastfeed.proof.run.data_loaders:count_steps",
    "torch.utils.data.dataloader": "fastfeed.proof.run.data_loaders:watch_loaders",
}


def count_steps(module: Any, choice: Choice | None = None) -> Any:
    """Tell the choice of every step of an optimizer; returns PyTorch's handle of the hook.

    Args:
        module: `torch.optim.optimizer`.
        choice: Told of the steps; None: that of this process.
    """
    chosen = choice or _CHOICE
    torch = sys.modules["torch"]

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not torch.compiler.is_compiling():  # a compiled step does not call hooks
            chosen.stepped()

    return module.register_optimizer_step_post_hook(stepped)


def watch_loaders(module: Any, choice: Choice | None = None) -> None:
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


class Choice:
    """The loader that is measured: the first one whose batch an optimizer has stepped on."""

    def __init__(self) -> None:
        self.last: Epoch | None = None  # that gave the newest batch
        self._loader: Any = None
        self._session: LoaderSession | None = None
        self._is_made = False

    def begin(self, loader: Any, begin: Begin) -> Iterator[Any]:
        """Start an epoch of a loader, or continue the proof, if it is of this loader."""
        if self._session is None:
            return begin() if self._is_made else Epoch(self, loader, begin)
        if loader is self._loader:
            return trainer.measured(self._session)
        self._session.cut()
        return begin()

    def stepped(self) -> None:
        """Make the choice, if an optimizer has stepped for the first time on a loader's batch."""
        epoch = self.last
        if epoch is None or self._is_made:
            return
        self._is_made = True
        self.last = None
        self._loader = epoch.loader
        self._session = trainer.measure(epoch.loader, epoch.begin, epoch.batches)
        if self._session is not None:
            epoch.batches = trainer.measured(self._session)


class Epoch:
    """An epoch of a DataLoader, which becomes the proof's when its loader is chosen."""

    def __init__(self, choice: Choice, loader: Any, begin: Begin) -> None:
        self.loader = loader
        self.begin = begin
        self.batches = begin()
        self._choice = choice

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._choice.last = self
        return next(self.batches)


_CHOICE = Choice()
