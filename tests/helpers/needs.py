"""Tests of a package that is not installed are skipped, and say which it is and what brings it.

Nothing is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest

BY_HAND = {  # large, or for a test each: what brings them
    "aim": "aim",
    "clearml": "clearml",
    "datasets": "datasets",
    "keras_hub": "keras-hub",
    "mlflow": "mlflow-skinny",
    "open_clip": "open_clip_torch",
    "pycocotools": "pycocotools",
    "pyspark": "pyspark",
    "spdl": "spdl",
    "tensorboard": "tensorboard",
    "tensorboardX": "tensorboardX",
    "timm": "timm",  # which brings torchvision
    "torchvision": "torchvision",
    "wandb": "wandb",
}


class LazyModule:
    """A module that is imported when a test first uses it, not whenever tests are collected."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("is_hypothesis_test", "pytestmark"):
            raise AttributeError(name)  # what is asked of all that a test module holds
        return getattr(importlib.import_module(self._name), name)


def needs(*packages: str) -> pytest.MarkDecorator:
    """A mark for a test, a parameter, or as `pytestmark` a file."""
    absent = missing(*packages)
    return pytest.mark.skipif(bool(absent), reason=absent or "nothing is missing")


def require(*packages: str) -> None:
    """The same, inside a test."""
    if absent := missing(*packages):
        pytest.skip(absent)


def missing(*packages: str) -> str:
    """What to say; empty where all of them are installed."""
    names = [name for name in packages if importlib.util.find_spec(name) is None]
    if not names:
        return ""
    if by_hand := [name for name in names if name in BY_HAND]:
        packages = " ".join(BY_HAND[name] for name in by_hand)
        return f"{' and '.join(by_hand)} missing: pip install {packages}; no test run does"
    return f"{' and '.join(names)} missing: make test TORCH=torch==2.13.0 brings all that tests use"
