"""What tests know of every op, collected from the modules of this package.

EXAMPLES  two ops or more of the type
MEANING   of a simple op that changes pixels: the reference for what it does
ON_DALI   of any op that changes pixels: how far the dali backend may be from the cpu backend; None:
it cannot run it
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fastfeed.ops import OPS
from fastfeed.ops.program.layers import simple
from fastfeed.spec import Spec
from helpers.meaning import Meaning, Within

_FIXED = Spec((24, 32, 3), "uint8", "HWC")
EXAMPLES: dict[type, list[Any]] = {}
MEANING: dict[type, Meaning] = {}
ON_DALI: dict[type, Within | None] = {}
for _info in pkgutil.iter_modules(__path__):
    _module = importlib.import_module(f"{__name__}.{_info.name}")
    EXAMPLES |= _module.EXAMPLES
    MEANING |= getattr(_module, "MEANING", {})
    ON_DALI |= getattr(_module, "ON_DALI", {})

_EVERY = [op for kind in OPS for op in EXAMPLES.get(kind, ())]
# those that need boxes have their laws in ops/test_object_crops.py
ALL = [op for op in _EVERY if not hasattr(op, "needs_boxes")]
CHANGES = [op for op in ALL if op.kind == "change"]
SIMPLE = [op for op in CHANGES if simple(op)]


def one_of_each(ops: Iterable[Any], key: Callable[[Any], object] = type) -> list[Any]:
    """Parameters of a test: the first op of each type, and more of it, which are slow."""
    first: dict[object, Any] = {}
    return [
        op if first.setdefault(key(op), op) is op else pytest.param(op, marks=pytest.mark.slow)
        for op in ops
    ]


def listed(op: Any, size: tuple[int, int] = (24, 32)) -> list[Any]:
    """A list in which the op may stand, for pixels."""
    from fastfeed.ops import Resize

    if op.kind == "geometry" and not op.out(_FIXED).fixed:
        return [op, Resize(size)]
    return [op] if op.kind in ("geometry", "convert", "views") else [Resize(size), op]
