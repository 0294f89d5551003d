"""The native kernel, for readers: None where it is not built.

Readers then do the same in Python.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

__all__ = ["kernel"]


@functools.cache
def kernel() -> Any:
    """The module, or None.

    A kernel of an earlier version that does not know of traces counts as none.
    """
    try:
        native = importlib.import_module("fastfeed._native")
    except ImportError:
        return None
    return native if hasattr(native, "EventScanner") else None
