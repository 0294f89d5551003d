"""The native extension, `fastfeed._native`, loaded when first needed."""

from __future__ import annotations

import importlib
import importlib.util
from functools import lru_cache
from typing import Any


def is_built() -> bool:
    """True if this installation has the native extension."""
    return importlib.util.find_spec("fastfeed._native") is not None


@lru_cache(maxsize=1)
def extension() -> Any:
    """The module; None if it is not built."""
    return importlib.import_module("fastfeed._native") if is_built() else None


def formats() -> tuple[str, ...]:
    """Formats that the native extension decodes, as far as not left to Pillow; () if not built."""
    if extension() is None:
        return ()
    webp = ("WebP",) if extension().LIBWEBP else ()
    return "JPEG", "PNG", *webp, "TIFF"
