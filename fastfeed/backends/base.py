"""The seam between the op list and whoever runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fastfeed.decode.base import Bad, Header, Stop
from fastfeed.ops.fuse import Windows

__all__ = ["Backend"]


class Backend(Protocol):
    """A compiled Program."""

    name: str
    whole: bool  # wants whole batches, one at a time; otherwise any rows, from many threads

    def render(
        self,
        blobs: Sequence[Any],
        headers: Sequence[Header],
        windows: Windows,
        out: np.ndarray,
        stop: Stop,
        batch: int = 0,  # its number, for the timeline
    ) -> list[Bad | None]:
        """Blobs to finished samples in `out` (n, *spec.shape); a bad sample's slot is that of a black image."""
        ...

    def path(self) -> str:
        """How bytes become pixels, in words, for `print(feed)`."""
        ...
