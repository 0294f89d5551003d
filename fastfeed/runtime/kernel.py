"""The C++ kernel `fastfeed._native`, if it is built, loaded when first needed."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from functools import lru_cache
from typing import Any

_log = logging.getLogger("fastfeed")


def is_built() -> bool:
    """True if this installation has the kernel."""
    return importlib.util.find_spec("fastfeed._native") is not None


@lru_cache(maxsize=1)
def kernel() -> Any:
    """The kernel's module; None if it is not built."""
    return importlib.import_module("fastfeed._native") if is_built() else None


def formats() -> tuple[str, ...]:
    """Formats that the kernel decodes, except files left to Pillow; empty if it is not built."""
    if kernel() is None:
        return ()
    webp = ("WebP",) if kernel().LIBWEBP else ()
    return "JPEG", "PNG", *webp, "TIFF"


@lru_cache(maxsize=1)
def warn_not_built() -> None:
    """Log, once per process, that Pillow decodes JPEGs although it was not asked to."""
    _log.warning(
        "The JPEG kernel is not part of this installation: JPEGs are decoded by Pillow, which is"
        ' slower. `fastfeed doctor` says what to install; decode="pillow" silences this.'
    )
