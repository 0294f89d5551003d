"""What each simple op does to one image, on the CPU: six tables by type.

TABLES    (op, values, row) -> table: what a byte becomes, whatever else is in the image. Neighbors
become one table. MEASURED  (op, values, row, image) -> table: the same, after a look at the image.
ALONE     (op, values, row, image) -> image: what some of both come to by arithmetic, the same to
the byte and faster;
          for those that have no neighbor to share a look-up with.
NARROW    the same of others, where look-ups are not `lookup.WIDE`.
KERNELS   (op, values, row, image) -> image: all else. The image is the kernel's to overwrite and to
return. NESTED    (op, values, row, image, run) -> image: ops with chains of their own, run by `run`
of `chain.py`.

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
