"""Strings that stand for numbers, as in CSV files, whose columns have no types.

A column is one of numbers only if reading it loses nothing: `007`, `1e5` and `12345678901234567890`
are texts, and make texts of all values of their column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fastfeed.sources.class_names import canonical_integers
from fastfeed.sources.tables.string_column import StringColumn

__all__ = ["fractions", "numbers"]

_EXACT = 1 << 53  # integers up to this are themselves as float64
_FRACTION = re.compile(
    r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[nN]a[nN]|-?inf"
)
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def fractions(texts: Iterable[str]) -> list[float] | None:
    """Numbers in a column with decimal points; None if any text is something else."""
    values = []
    for text in texts:
        if not _FRACTION.fullmatch(text):
            return None
        value = float(text)
        if (
            abs(value) >= _EXACT
            and (integer := canonical_integers([text]))
            and int(value) != integer[0]
        ):
            return None
        values.append(value)
    return values


def numbers(parts: Sequence[StringColumn]) -> list[np.ndarray] | None:
    """Integers, else fractions, else bools, 0 for empty texts; None for other texts."""
    kinds: list[tuple[Callable[[list[str]], list[Any] | None], Any]] = [
        (canonical_integers, np.int64)
    ]
    if any(
        ord(".") in part.blob for part in parts
    ):  # else `1e5` is one of several codes rather than a number
        kinds.append((fractions, np.float64))
    kinds.append((_bools, np.bool_))
    for parse, dtype in kinds:
        arrays = _parse_all(parts, parse, dtype)
        if arrays is not None:
            return arrays
    return None


def _parse_all(
    parts: Sequence[StringColumn], parse: Callable[[list[str]], list[Any] | None], dtype: Any
) -> list[np.ndarray] | None:
    arrays = []
    for part in parts:
        present = part.lengths() > 0
        values = parse([text for text in part.tolist() if text])
        if values is None:
            return None
        array = np.zeros(len(part), dtype)
        array[present] = values
        arrays.append(array)
    return arrays


def _bools(texts: list[str]) -> list[bool] | None:
    return [_BOOLS[text] for text in texts] if set(texts) <= _BOOLS.keys() else None
