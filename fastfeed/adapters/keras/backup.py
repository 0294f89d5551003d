"""A Keras callback that saves and restores the model together with the data position."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fastfeed.adapters.keras.checks import (
    check_fitted,
    is_endless,
    refuse_second_backup,
)
from fastfeed.adapters.versions import framework
from fastfeed.errors import ConfigError, StateError
from fastfeed.feed.session import FeedSession
from fastfeed.sampling.checkpoint import load_state, save_state

keras: Any = framework("keras", "keras.backup")

_STATE = "state.json"
_WEIGHTS = "backup-*.weights.h5"


def backup(
    session: FeedSession,
    folder: str | Path,
    save_freq: str | int = "epoch",
    delete_checkpoint: bool = True,
) -> Any:
    """Implementation of `fastfeed.keras.backup`."""
    if save_freq != "epoch" and (
        isinstance(save_freq, bool) or not isinstance(save_freq, int) or save_freq < 1
    ):
        raise ConfigError.of("save_freq", '"epoch" or a number of batches >= 1', save_freq)
    return _backup_class()(session, Path(folder), save_freq, delete_checkpoint)


def _backup_class() -> Any:
    class FeedBackup(keras.callbacks.Callback):
        """Written by rank 0 alone, read by all: the folder must be one that every rank sees.

        Weights go into a new file; then one small file that names it and holds the position
        replaces the last one, whole or not at all. A run that is killed at any moment resumes from
        the newest pair. The position is that of the trainer: batches that a framework has taken
        ahead of it do not count.
        """

        def __init__(
            self, session: FeedSession, folder: Path, save_freq: str | int, delete_checkpoint: bool
        ) -> None:
            super().__init__()
            self._session = session
            self._folder = folder
            self._save_freq = save_freq
            self._delete = delete_checkpoint
            self._at = 0  # batches before the trainer's position, from epoch 0 on
            self._saved = 0  # the position that was saved last
            # of Keras: batches count in its epoch
            self._epoch = 0
            self._batch = 0

        def on_train_begin(self, logs: Any = None) -> None:
            check_fitted(self._session)
            refuse_second_backup()
            path = self._folder / _STATE
            if path.exists():
                self._restore(load_state(path))
            state = self._session.state()
            self._at = self._saved = state["epoch"] * len(self._session) + state["step"]

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._epoch = epoch
            self._batch = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            steps = len(self._session)
            # with several steps per execution Keras counts full ones, also where the data has ended
            # before
            done = batch + 1 - self._batch
            endless = is_endless()
            self._at += done if endless else min(done, steps - self._at % steps)
            self._batch = batch + 1
            if self._save_freq != "epoch" and self._at - self._saved >= int(self._save_freq):
                over = self._batch >= (self.params.get("steps") or steps)
                over = over or (self._at % steps == 0 and not endless)
                self._save(self._epoch + over)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if self._save_freq == "epoch":
                self._save(epoch + 1)

        def on_train_end(self, logs: Any = None) -> None:
            if self._delete and self._session.plan.world.main and not self._session.is_proving:
                (self._folder / _STATE).unlink(missing_ok=True)  # first: it names the weights
                self._clear()
                for torn in self._folder.glob(
                    f"{_STATE}.*.new"
                ):  # of a run that was killed while it wrote
                    torn.unlink(missing_ok=True)
                if self._folder.is_dir() and not any(self._folder.iterdir()):
                    self._folder.rmdir()

        def _save(self, epoch: int) -> None:
            self._saved = self._at
            if not self._session.plan.world.main:
                return
            at = divmod(self._at, len(self._session))
            position = self._session.state(at)  # first: it is refused during a proof
            self._folder.mkdir(parents=True, exist_ok=True)
            weights = f"backup-{at[0]:06}-{at[1]:09}.weights.h5"
            self.model.save_weights(self._folder / weights, overwrite=True)
            with open(self._folder / weights, "rb") as file:
                os.fsync(file.fileno())
            state = {"keras_epoch": epoch, "weights": weights, "feed": position}
            save_state(self._folder / _STATE, state)
            self._clear(but=weights)

        def _clear(self, but: str = "") -> None:
            for old in self._folder.glob(_WEIGHTS):
                if old.name != but:
                    old.unlink(missing_ok=True)

        def _restore(self, saved: dict[str, Any]) -> None:
            if not self.model.built:
                raise ConfigError(
                    "the model must be built before training resumes from a backup; give it an"
                    " Input layer, or call it on a batch before fit"
                )
            if {"keras_epoch", "weights", "feed"} - saved.keys():
                raise StateError(
                    f"{self._folder / _STATE} was not written by keras.backup; choose another"
                    " folder"
                )
            self._session.restore(saved["feed"])
            optimizer = self.model.optimizer
            if optimizer is not None and not optimizer.built:
                optimizer.build(self.model.trainable_variables)
            self.model.load_weights(self._folder / saved["weights"])
            # as Keras's own BackupAndRestore; a key into `fit`, which has read its argument by now
            self.model._initial_epoch = saved["keras_epoch"]

    return FeedBackup
