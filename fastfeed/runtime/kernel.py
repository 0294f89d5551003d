"""The kernel in C++, where it is built: `fastfeed._native`, loaded when it is first needed."""

from __future__ import annotations

import importlib
import importlib.util
from functools import lru_cache
from typing import Any

__all__ = ["is_built", "kernel"]


def is_built() -> bool:
    """Whether this installation has the kernel."""
    return importlib.util.find_spec("fastfeed._native") is not None


@lru_cache(maxsize=1)
def kernel() -> Any:
    """The module; None where it is not built."""
    return importlib.import_module("fastfeed._native") if is_built() else None
