"""Refusal to save weights during `fastfeed prove`: those of a measured training are meaningless.

Replaces functions of the frameworks, in a process that ends with the proof. What saves by other
ways (Orbax, pickle, a name imported before) is not refused.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, NoReturn

from fastfeed.errors import ProofError


def refuse_keras() -> None:
    """Refuse saving in Keras, including ModelCheckpoint and BackupAndRestore."""
    model = importlib.import_module("keras").Model
    for name in ("save", "save_weights", "export"):
        _replace(model, name, f"Keras's Model.{name}")


def refuse_torch() -> None:
    """Refuse saving in PyTorch, including Lightning, Accelerate and other users of `torch.save`."""
    _replace(importlib.import_module("torch"), "save", "torch.save")


def refuse_loaded() -> None:
    """Refuse saving in the frameworks that this process has imported."""
    for name, refuse in (("keras", refuse_keras), ("torch", refuse_torch)):
        if name in sys.modules:
            refuse()


def _replace(owner: Any, name: str, shown: str) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        raise ProofError(
            f"{shown} is refused during a proof: the weights are meaningless; run the trainer"
            " without `fastfeed prove` to save it, or switch its checkpoints off for the proof"
        )

    if hasattr(owner, name):
        setattr(owner, name, refused)
