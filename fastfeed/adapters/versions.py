"""Frameworks, imported where an adapter needs one, and the oldest version that each may have."""

from __future__ import annotations

import importlib
import re
from typing import Any

from fastfeed.errors import MissingExtra

# name for the reader, oldest version, extra: as in pyproject.toml
FRAMEWORKS = {
    "keras": ("Keras", "3.3", "keras"),
    "tensorflow": ("TensorFlow", "2.18", "tf"),
    "jax": ("JAX", "0.4.30", "jax"),
    "torch": ("PyTorch", "2.4", "torch"),
}


def framework(package: str, caller: str) -> Any:
    """Import a framework by name: type checkers would resolve some to files of this folder.

    MissingExtra if it is not installed or too old.
    """
    name, oldest, extra = FRAMEWORKS[package]
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise MissingExtra.of(caller, name, extra) from error
    version = str(getattr(module, "__version__", oldest))
    if _numbers(version) < _numbers(oldest):
        raise MissingExtra(
            f"{caller} needs {name} {oldest} or newer, got {version}: pip install --upgrade"
            f" '{package}>={oldest}'"
        )
    return module


def _numbers(version: str) -> list[int]:
    return list(map(int, re.findall(r"[0-9]+", version)[:3]))
