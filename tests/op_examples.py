"""Examples of every op, and who else says what it means: put together from `tests/ops/examples_*.py`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from meaning import Meaning

from fastfeed.ops import OPS
from fastfeed.ops.program.layers import simple

EXAMPLES: dict[type, list[Any]] = {}
MEANING: dict[type, Meaning] = {}
for _file in sorted((Path(__file__).parent / "ops").glob("examples_*.py")):
    _module = importlib.import_module(_file.stem)
    EXAMPLES |= _module.EXAMPLES
    MEANING |= getattr(_module, "MEANING", {})

ALL = [op for kind in OPS for op in EXAMPLES.get(kind, ())]
CHANGES = [op for op in ALL if op.kind == "change"]
SIMPLE = [op for op in CHANGES if simple(op)]


def listed(op: Any, size: tuple[int, int] = (24, 32)) -> list[Any]:
    """A list in which the op may stand, for pixels."""
    from fastfeed.ops import Resize

    return [op] if op.kind in ("geometry", "convert", "views") else [Resize(size), op]
