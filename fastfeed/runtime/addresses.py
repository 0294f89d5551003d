"""Where the bytes of samples lie, for native threads that read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["ArrayRows", "WholeFiles"]


class WholeFiles(NamedTuple):
    """Local files of n samples, each read whole. The names are those of all samples of a source, one after another."""

    root: bytes  # comes before every name
    names: np.ndarray  # uint8 (bytes,)
    ends: np.ndarray  # int32 or int64 (samples,): where each name ends
    ids: np.ndarray  # int64 (n,): whose name it is; -1 for one that is not to be read
    sizes: np.ndarray | None  # int64 (n,): bytes as listed, -1 where that is not known


class ArrayRows(NamedTuple):
    """Pixels of n samples in memory."""

    images: np.ndarray  # uint8 (samples, height, width, channels), C-contiguous
    ids: np.ndarray  # int64 (n,)
