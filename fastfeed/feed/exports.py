"""How a feed reaches a framework: each method loads the adapter, and with it the framework, when it is called."""

from __future__ import annotations

import importlib
import os
from typing import Any

__all__ = ["Handover"]


class Handover:
    """The part of `Feed` that knows the adapters' names."""

    __slots__ = ()

    def to_keras(self, **options: Any) -> Any:
        """For `model.fit(feed.to_keras())`, `evaluate` and `predict`, on whichever backend Keras runs."""
        return _adapter("keras").to_keras(self, **options)

    def keras_backup(self, folder: str | os.PathLike[str], save_freq: str | int = "epoch", **options: Any) -> Any:
        """A Keras callback: as BackupAndRestore, with the position in the data; save_freq in batches, or "epoch".

        delete_checkpoint=False keeps the backup after training has ended.
        """
        return _adapter("keras_backup").keras_backup(self, folder, save_freq, **options)

    def to_tfdata(self, device: str | None = None) -> Any:
        """A `tf.data.Dataset`; iterating it walks one epoch. device="/GPU:0" copies two batches ahead to a device."""
        return _adapter("tfdata").to_tfdata(self, device=device)

    def to_jax(self, sharding: Any = None, convert: str = "auto") -> Any:
        """Iterable epochs of `jax.Array` tuples, copied ahead to this process's first device.

        sharding: a jax.Device, or a Sharding of the leading axis, also over several processes: global arrays then.
        convert: "device" does Normalize, ToFloat and ToLayout there, so that bytes are copied; "auto" where it is none
        of the processor's.
        """
        return _adapter("jax").to_jax(self, sharding=sharding, convert=convert)

    def to_torch(self, device: Any = None, convert: str = "auto") -> Any:
        """Iterable epochs of tensor tuples, copied ahead to a device (default: the GPU of this rank, or the processor).

        The result has `state_dict()` and `load_state_dict()`. convert: as in `to_jax`.
        """
        return _adapter("torch").to_torch(self, device=device, convert=convert)


def _adapter(name: str) -> Any:
    return importlib.import_module(f"fastfeed.adapters.{name}")
