"""Metadata columns of many samples as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import STORAGE, Failure
from fastfeed.sources.base import Optionals, Source
from fastfeed.storage.reads import Unread

_AT_ONCE = 4096  # samples whose columns are read together


def as_array(values: Sequence[Any]) -> np.ndarray:
    """Values of a column in a batch: one array of numbers, or an array of objects.

    A missing value, None or what happened instead of it, is NaN, 0 in an array of integers, ""
    among objects.
    """
    values = [None if isinstance(value, (Unread, Failure)) else value for value in values]
    numbers = [np.asarray(value) for value in values if isinstance(value, (np.ndarray, np.generic))]
    present = sum(value is not None for value in values)
    if present and len(numbers) == present and len({number.shape for number in numbers}) == 1:
        dtype, shape = np.result_type(*numbers), numbers[0].shape
        if not shape and present < len(values) and dtype.kind in "biu":
            dtype = np.dtype(np.float64)
        missing = np.full(shape, np.nan if dtype.kind == "f" else 0, dtype)
        return np.stack(
            [missing if value is None else np.asarray(value, dtype) for value in values]
        )
    column = np.full(len(values), "", object)
    for row, value in enumerate(values):
        column[row] = (
            "" if value is None else value.item() if isinstance(value, np.generic) else value
        )
    return column


class Columns(dict[str, np.ndarray]):
    """Columns by name; the error for another name says which there are."""

    def __missing__(self, name: str) -> np.ndarray:
        raise ConfigError(
            f"no column {name!r}; the source has {', '.join(self)}; pass columns=[{name!r}] to the"
            " source"
        )


def read_columns(source: Source) -> Columns:
    """All columns of all samples, and their labels. SourceError if storage fails."""
    optionals = Optionals(source)
    ids = np.arange(len(source))
    columns = Columns(label=source.label(ids))
    if optionals.column_values([]) is None:
        return Columns(columns | optionals.columns(ids))
    rows: list[dict[str, Any]] = []
    for first in range(0, len(ids), _AT_ONCE):
        rows += optionals.column_values(ids[first : first + _AT_ONCE].tolist()) or []
    for row in rows:
        for value in row.values():
            if isinstance(value, Failure) and value.reason in STORAGE:
                raise SourceError(f"columns are not known, as storage failed at {value}; try again")
    return Columns(columns | {name: as_array([row[name] for row in rows]) for name in rows[0]})
