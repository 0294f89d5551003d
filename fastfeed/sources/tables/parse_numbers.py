"""Strings that stand for numbers, as in CSV files, whose columns have no types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastfeed.sources.tables.string_column import StringColumn

__all__ = ["integers", "numbers"]

_LARGEST = 1 << 63
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def integers(texts: Sequence[str]) -> list[int] | None:
    """Integers, also written `3.0` as Pandas does in columns with gaps; None if any text is something else."""
    try:
        values = [float(text) if "." in text else int(text) for text in texts]
    except ValueError:
        return None
    are_integers = all(x % 1 == 0 and -_LARGEST <= x < _LARGEST for x in values) and not any(
        "_" in text for text in texts
    )
    return [int(x) for x in values] if are_integers else None


def numbers(parts: Sequence[StringColumn]) -> list[np.ndarray] | None:
    """Integers, else fractions, else bools, 0 where a text is empty; None if one of the texts is none of them."""
    kinds: tuple[tuple[Callable[[str], Any], Any], ...] = ((int, np.int64), (float, np.float64), (_bool, np.bool_))
    for parse, dtype in kinds:
        arrays = _parse_all(parts, parse, dtype)
        if arrays is not None:
            return arrays
    return None


def _parse_all(parts: Sequence[StringColumn], parse: Callable[[str], Any], dtype: Any) -> list[np.ndarray] | None:
    arrays = []
    for part in parts:
        if ord("_") in part.blob:  # Python's numbers may hold some
            return None
        try:
            arrays.append(np.array([parse(text) if text else 0 for text in part.tolist()], dtype))
        except (ValueError, OverflowError):
            return None
    return arrays


def _bool(text: str) -> bool:
    if text not in _BOOLS:
        raise ValueError(text)
    return _BOOLS[text]
