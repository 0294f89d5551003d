"""Where samples come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fastfeed.spec import Spec

__all__ = ["Source"]


class Source(Protocol):
    """Random access to samples and their labels. Read from several threads at once; must pickle."""

    spec: Spec  # of one sample: ENCODED for files, HWC pixels for arrays
    classes: tuple[str, ...]  # names by label; empty where labels have no names

    def __len__(self) -> int: ...

    def uri(self, i: int) -> str:
        """Where sample i lies, for messages and the quarantine list."""
        ...

    def read(self, ids: Sequence[int]) -> list[Any]:
        """One entry per id: bytes (or a pixel array), or the Failure that happened instead."""
        ...

    def label(self, ids: np.ndarray) -> np.ndarray:
        """int64, shape (len(ids),); -1 where there is none."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes when the content changes, so that a saved position is not restored over other data."""
        ...
