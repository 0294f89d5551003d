"""Why is this GPU idle?

Every idle nanosecond of a trace gets one cause; the causes sum to the idle time exactly.

    from fastfeed.profiler import analyze, read
    result = analyze([read("trace.json.gz")])
    result.verdict.headline

Imports nothing else of fastfeed but its errors and its HTML pages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastfeed.profiler.analysis import analyze
    from fastfeed.profiler.readers import read

__all__ = ["analyze", "read"]

_HOMES = {"analyze": "analysis", "read": "readers"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
