"""Functions of Keras that make data sets of images, with a feed behind them, and a callback.

train, val = fastfeed.keras.image_dataset_from_directory(
    "photos", validation_split=0.2, subset="both", seed=0
)
model.fit(train, validation_data=val)
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from fastfeed.adapters.keras.dataframe import flow_from_dataframe
from fastfeed.adapters.keras.directory import image_dataset_from_directory
from fastfeed.arguments import checked
from fastfeed.feed.session import FeedSession

__all__ = ["backup", "flow_from_dataframe", "image_dataset_from_directory"]


@checked
def backup(
    feed: Any,
    folder: str | os.PathLike[str],
    save_freq: str | int = "epoch",
    delete_checkpoint: bool = True,
) -> Any:
    """A Keras callback like BackupAndRestore that also saves the position in the data.

    Args:
        feed (Feed): The feed that is fitted.
        folder (str | os.PathLike[str]): Where model and position are saved; all ranks see it.
        save_freq (str | int): "epoch", or a number of batches. Default: "epoch".
        delete_checkpoint (bool): Delete the backup when training has ended. Default: True.

    Returns:
        The callback.

    Raises:
        ConfigError: If this is no feed, or save_freq is neither "epoch" nor a number of batches of
            1 or more.
        MissingExtra: If Keras is not installed.

    Example:
        >>> saved = ff.keras.backup(feed, "saved", save_freq=500)  # doctest: +SKIP
        >>> model.fit(feed.to_keras(), callbacks=[saved])  # doctest: +SKIP
    """
    adapter = importlib.import_module("fastfeed.adapters.keras.backup")
    return adapter.backup(FeedSession.of(feed), folder, save_freq, delete_checkpoint)
