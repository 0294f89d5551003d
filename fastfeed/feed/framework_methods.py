"""A feed in the form that each framework's trainers take."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from fastfeed.arguments import checked_early
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.runtime.misuse import TrainerInput

__all__ = ["ForTrainers"]


class ForTrainers(TrainerInput):
    """The part of a feed that hands it to an adapter; each framework is imported with its first
    call.
    """

    @checked_early
    @runs_on_gpu("keras")
    def to_keras(self, class_weight: Mapping[int, float] | None = None) -> Any:
        """For `model.fit(feed.to_keras())`, `evaluate` and `predict`, with any Keras backend.

        Args:
            class_weight (Mapping[int, float] | None): Factor of the loss by label, 1 for labels
                that are not named; a soft label has the weighted mean of its classes' factors. Pass
                it here, not to `fit`, which would ignore it for a feed and is refused. Default:
                None.

        Returns:
            A data set for Keras, one epoch per iteration.

        Raises:
            ConfigError: If class_weight is not a mapping of labels to finite factors of 0 or more.
            MissingExtra: If Keras is not installed.

        Example:
            >>> model.fit(feed.to_keras(), epochs=90)  # doctest: +SKIP
            >>> model.fit(feed.to_keras(class_weight={0: 1.0, 1: 2.5}))  # doctest: +SKIP
        """
        return _adapter("keras.adapter").to_keras(self, class_weight)

    @checked_early
    def keras_backup(
        self,
        folder: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        delete_checkpoint: bool = True,
    ) -> Any:
        """A Keras callback like BackupAndRestore that also saves the data position.

        Args:
            folder (str | os.PathLike[str]): Where model and position are saved.
            save_freq (str | int): "epoch", or a number of batches. Default: "epoch".
            delete_checkpoint (bool): Delete the backup when training has ended. Default: True.

        Returns:
            The callback.

        Raises:
            ConfigError: If save_freq is neither "epoch" nor a number of batches of 1 or more.
            MissingExtra: If Keras is not installed.

        Example:
            >>> model.fit(feed.to_keras(), callbacks=[feed.keras_backup("backup")])  # doctest: +SKIP
        """
        return _adapter("keras.backup").keras_backup(self, folder, save_freq, delete_checkpoint)

    @checked_early
    @runs_on_gpu("tensorflow")
    def to_tfdata(self, device: str | None = None) -> Any:
        """A `tf.data.Dataset` of one epoch per iteration.

        Args:
            device (str | None): "/GPU:0" prefetches two batches to that device. Default: None, in
                host memory.

        Returns:
            The data set.

        Raises:
            ConfigError: If TensorFlow has no such device.
            MissingExtra: If TensorFlow is not installed.

        Example:
            >>> for images, labels in feed.to_tfdata():  # doctest: +SKIP
            ...     train_step(images, labels)
        """
        return _adapter("tfdata").to_tfdata(self, device=device)

    @checked_early
    @runs_on_gpu("jax")
    def to_jax(self, sharding: Any = None, convert: str = "auto") -> Any:
        """An iterable of `jax.Array` tuples, one epoch per iteration, prefetched to a device.

        Args:
            sharding (Any): A jax.Device, or a Sharding of the leading axis; one that spans
                processes yields global arrays. Default: None, this process's first device.
            convert (str): "device" runs Normalize, ToFloat and ToLayout on the device, so that only
                uint8 is copied; "host" runs them on the CPU; "auto" is "device" unless the device
                is the CPU. Default: "auto".

        Returns:
            The iterable.

        Raises:
            ConfigError: If the sharding does not divide the batch, or JAX runs other ranks than the
                feed.
            MissingExtra: If JAX is not installed.

        Example:
            >>> for images, labels in feed.to_jax():  # doctest: +SKIP
            ...     state = train_step(state, images, labels)
        """
        return _adapter("jax").to_jax(self, sharding=sharding, convert=convert)

    @checked_early
    @runs_on_gpu("torch")
    def to_torch(self, device: Any = None, convert: str = "auto") -> Any:
        """An iterable of tensor tuples, one epoch per iteration, prefetched to a device.

        Images are (n, height, width, channels); with `ToLayout("CHW")` among the ops (n, channels,
        height, width), as PyTorch's own models take them. The result has `state_dict()` and
        `load_state_dict()`.

        Args:
            device (Any): A torch.device or its name. Default: None, this rank's GPU.
            convert (str): "device" runs Normalize, ToFloat and ToLayout on the device, so that only
                uint8 is copied; "host" runs them on the CPU; "auto" is "device" unless the device
                is the CPU. Default: "auto".

        Returns:
            The iterable.

        Raises:
            ConfigError: If PyTorch has no such device, or torch.distributed runs other ranks than
                the feed.
            MissingExtra: If PyTorch is not installed.

        Example:
            >>> for images, labels in feed.to_torch("cuda"):  # doctest: +SKIP
            ...     loss = criterion(model(images), labels)
        """
        return _adapter("torch").to_torch(self, device=device, convert=convert)


def _adapter(name: str) -> Any:
    return importlib.import_module(f"fastfeed.adapters.{name}")
