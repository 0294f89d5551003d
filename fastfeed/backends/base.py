"""The seam between the op list and whoever runs it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from fastfeed.decode.base import Bad, Header, Stop
from fastfeed.ops.mix_plan import Mixed
from fastfeed.ops.program.program import Program, Work
from fastfeed.runtime.buffers import Allocate

__all__ = ["Backend"]


class Backend(Protocol):
    """A compiled Program."""

    name: str
    whole: bool  # wants whole batches; otherwise any rows, from many threads
    where: str  # its batches lie: "memory", "the memory of GPU 0"
    xp: Any  # numpy, or what has its functions where this backend's batches lie
    empty: Allocate  # memory for a batch there
    renders: Program  # whose samples `render` gives: where samples are mixed afterwards, conversion may come later

    def render(
        self,
        blobs: Sequence[Any],
        headers: Sequence[Header],
        work: Work,
        out: np.ndarray,
        stop: Stop,
        batch: int = 0,  # its number, for the timeline
    ) -> list[Bad | None]:
        """Blobs to samples in `out` (n, *renders.shape); what a bad sample's slot holds has no meaning."""
        ...

    def mix(self, made: np.ndarray, members: np.ndarray, mixed: Mixed, out: np.ndarray) -> None:
        """Finished samples in `out` from rendered ones: `members` (int64 (n, group)) are their rows in `made`."""
        ...

    def here(self) -> AbstractContextManager[None]:
        """Where a thread has to be while it writes to batches."""
        ...

    def settle(self) -> None:
        """Wait until all that was written to batches is there for everybody."""
        ...

    def path(self) -> str:
        """How bytes become pixels, in words, for `print(feed)`."""
        ...
