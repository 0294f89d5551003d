"""What each simple op does to one image, on the CPU: six tables by type.

Images are uint8, C-contiguous (height, width, channels) with 1 or 3 channels; tables are uint8
(256,) or (256, channels). `values` are the op's params of n samples, `row` is the one that is
meant.
"""

from __future__ import annotations

from typing import Any

from fastfeed.backends.cpu import functions
from fastfeed.backends.cpu.kernels import (
    augmix,
    colors,
    erasing,
    filters,
    noise,
    tables,
    warps,
    windows,
)

__all__ = ["ALONE", "KERNELS", "MEASURED", "NARROW", "NESTED", "TABLES"]

_MODULES: tuple[Any, ...] = (
    augmix,
    colors,
    erasing,
    filters,
    functions,
    noise,
    tables,
    warps,
    windows,
)


def _all(name: str) -> dict[type, Any]:
    return {
        kind: function
        for module in _MODULES
        for kind, function in getattr(module, name, {}).items()
    }


TABLES, MEASURED, KERNELS = _all("TABLES"), _all("MEASURED"), _all("KERNELS")
ALONE, NARROW, NESTED = _all("ALONE"), _all("NARROW"), _all("NESTED")
