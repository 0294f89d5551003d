"""What a source's `read` gives for a sample, checked: sources of users may give anything."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from fastfeed.faults import Failure
from fastfeed.spec import Spec

__all__ = ["checked", "size_of"]


def checked(source: Any, id: int, entry: Any) -> Any:
    """The sample's bytes, or its pixels as the source's spec says, uint8 (height, width, channels);
    else a Failure.
    """
    if isinstance(entry, (bytes, Failure)) and source.spec.encoded:
        return entry
    if isinstance(entry, Failure) or (not source.spec.encoded and _fits(source.spec, entry)):
        return entry
    if source.spec.encoded:
        with suppress(TypeError, ValueError):
            view = memoryview(entry)
            if view.format != "O":
                return bytes(view)
    wanted = "bytes" if source.spec.encoded else str(source.spec)
    got = (
        f"{entry.dtype}{list(entry.shape)}"
        if isinstance(entry, np.ndarray)
        else type(entry).__name__
    )
    detail = f"{type(source).__name__}.read gave {got}, expected {wanted}"
    return Failure(id, source.uri(id), "read", "corrupt", detail)


def size_of(entry: Any) -> int:
    """Bytes of a checked entry."""
    return 0 if isinstance(entry, Failure) else getattr(entry, "nbytes", None) or len(entry)


def _fits(spec: Spec, entry: Any) -> bool:
    if (
        not isinstance(entry, np.ndarray)
        or entry.dtype != np.uint8
        or entry.ndim != 3
        or not entry.size
    ):
        return False
    return all(side in (None, got) for side, got in zip(spec.shape, entry.shape, strict=True))
