"""Tables by type with the function for each simple op on one image.

Images are uint8, C-contiguous (height, width, channels) with 1 or 3 channels; tables are uint8
(256,) or (256, channels). `values` are the op's params of n samples, `row` is the one that is
meant.
"""

from __future__ import annotations

from typing import Any

from fastfeed.backends.cpu.native_program import call_function
from fastfeed.ops.function import Function
from helpers.opencv_ops import (
    augmix,
    colors,
    distort,
    erasing,
    filters,
    noise,
    tables,
    warps,
    windows,
)

_MODULES: tuple[Any, ...] = (
    augmix,
    colors,
    distort,
    erasing,
    filters,
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


TABLES, MEASURED, KERNELS = (
    _all("TABLES"),
    _all("MEASURED"),
    {Function: call_function, **_all("KERNELS")},
)
NESTED = _all("NESTED")
