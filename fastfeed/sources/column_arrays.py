"""Metadata columns of many samples as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import STORAGE, Failure
from fastfeed.sources.base import Optionals, Source
from fastfeed.storage.reads import Unread

_MISSING = {type(None), Unread, Failure}  # instead of a value
_AT_ONCE = 4096  # samples whose columns are read together


def as_array(values: Sequence[Any]) -> np.ndarray:
    """Values of a column in a batch: one array of numbers, or an array of objects.

    A missing value, None or what happened instead of it, is NaN, 0 in an array of integers, ""
    among objects.
    """
    kinds = set(map(type, values))
    if len(kinds) == 1 and issubclass(kind := next(iter(kinds)), (np.number, np.bool_)):
        return np.array(values, kind)  # the same as below, three times as fast
    present = kinds - _MISSING
    if present and all(issubclass(kind, (np.ndarray, np.generic)) for kind in present):
        numbers = [value for value in values if type(value) not in _MISSING]
        if len({number.shape for number in numbers}) == 1:
            return _numbers(values, numbers, len(numbers) < len(values))
    if present < kinds or any(issubclass(kind, np.generic) for kind in present):
        values = ["" if type(value) in _MISSING else _plain(value) for value in values]
    return np.fromiter(values, object, len(values))


def _numbers(values: Sequence[Any], numbers: Sequence[Any], some_missing: bool) -> np.ndarray:
    """Numbers, or arrays, of one shape."""
    dtype = np.result_type(*{number.dtype for number in numbers})
    shape = numbers[0].shape
    if some_missing:
        if not shape and dtype.kind in "biu":
            dtype = np.dtype(np.float64)
        missing = np.full(shape, np.nan if dtype.kind == "f" else 0, dtype)
        numbers = [missing if type(value) in _MISSING else value for value in values]
    return np.array(numbers, dtype)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


class Columns(dict[str, np.ndarray]):
    """Columns by name; the error for another name says which there are."""

    def __missing__(self, name: str) -> np.ndarray:
        raise ConfigError(
            f"no column {name!r}; the source has {', '.join(self)}; pass columns=[{name!r}] to a"
            " source that can carry it, such as Table or TarShards"
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
