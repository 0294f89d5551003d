"""A Keras callback that saves the model and the position in the data together, and goes on from both."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path
from typing import Any

from fastfeed.checkpoint import load_state, save_state
from fastfeed.errors import ConfigError, MissingExtra, StateError
from fastfeed.feed import Feed

try:
    keras: Any = importlib.import_module("keras")
except ImportError as error:
    raise MissingExtra.of("keras_backup", "Keras 3", "keras") from error

__all__ = ["keras_backup"]

_STATE = "state.json"


def keras_backup(feed: Feed, folder: str | Path, save_freq: str | int = "epoch", delete_checkpoint: bool = True) -> Any:
    """See Feed.keras_backup."""
    if save_freq != "epoch" and (isinstance(save_freq, bool) or not isinstance(save_freq, int) or save_freq < 1):
        raise ConfigError(f'save_freq must be "epoch" or a number of batches >= 1, got {save_freq!r}')
    return _backup_class()(feed, Path(folder), save_freq, delete_checkpoint)


def _backup_class() -> Any:
    class FeedBackup(keras.callbacks.Callback):
        """Written by rank 0 alone, read by all: the folder must be one that every rank sees.

        Weights go into a new file; then one small file that names it and holds the position replaces the last one,
        whole or not at all. A run that is killed at any moment goes on from the newest pair. The position is that of
        the trainer: batches that a framework has taken ahead of it do not count.
        """

        def __init__(self, feed: Feed, folder: Path, save_freq: str | int, delete_checkpoint: bool) -> None:
            super().__init__()
            self._feed, self._folder = feed, folder
            self._every, self._delete = save_freq, delete_checkpoint
            self._start = (0, 0)  # where the feed stood when training began
            self._epoch = 0  # of Keras
            self._before = 0  # batches since then, in Keras epochs that are over
            self._done = 0  # batches since then, in all
            self._saved = 0

        def on_train_begin(self, logs: Any = None) -> None:
            path = self._folder / _STATE
            if path.exists():
                self._restore(load_state(path))
            state = self._feed.state()
            self._start = (state["epoch"], state["step"])
            self._before = self._done = self._saved = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._done = self._before + batch + 1
            if self._every != "epoch" and self._done - self._saved >= int(self._every):
                self._save(self._epoch)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._before = self._done
            if self._every == "epoch":
                self._save(epoch + 1)

        def on_train_end(self, logs: Any = None) -> None:
            if self._delete and self._feed.plan.world.main:
                shutil.rmtree(self._folder, ignore_errors=True)

        def _save(self, epoch: int) -> None:
            self._saved = self._done
            if not self._feed.plan.world.main:
                return
            steps = len(self._feed)
            at = divmod(self._start[0] * steps + self._start[1] + self._done, steps)
            self._folder.mkdir(parents=True, exist_ok=True)
            weights = f"{at[0]:06}-{at[1]:09}.weights.h5"
            self.model.save_weights(self._folder / weights, overwrite=True)
            with open(self._folder / weights, "rb") as file:
                os.fsync(file.fileno())
            state = {"keras_epoch": epoch, "weights": weights, "feed": self._feed.state(at)}
            save_state(self._folder / _STATE, state)
            for old in self._folder.glob("*.weights.h5"):
                if old.name != weights:
                    old.unlink(missing_ok=True)

        def _restore(self, saved: dict[str, Any]) -> None:
            if not self.model.built:
                raise ConfigError(
                    "the model must be built before training goes on from a backup; give it an Input layer, or call it "
                    "on a batch before fit"
                )
            if {"keras_epoch", "weights", "feed"} - saved.keys():
                raise StateError(f"{self._folder / _STATE} is no backup of keras_backup; choose another folder")
            self._feed.restore(saved["feed"])
            optimizer = self.model.optimizer
            if optimizer is not None and not optimizer.built:
                optimizer.build(self.model.trainable_variables)
            self.model.load_weights(self._folder / saved["weights"])
            # as Keras's own BackupAndRestore; a key into `fit`, which has read its argument by now
            self.model._initial_epoch = saved["keras_epoch"]

    return FeedBackup
