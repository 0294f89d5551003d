"""Values of the column whose samples stay in one split."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.inputs.formats import normalize_names
from fastfeed.preprocess.inputs.inputs import Input, field_value, read_columns
from fastfeed.printable import printable
from fastfeed.sources.class_names import nfc


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Values of a column, as sorted texts, and the one of each image."""

    column: str
    values: list[str]
    of: np.ndarray  # int64, shape (length,): position in `values`, -1 for no value


def read_groups(input: Input, column: str) -> Groups:
    """Read a column of all samples. ConfigError if it has no values, or others than one each."""
    name = next((n for n in (column, *normalize_names("tar", (column,))) if n in input.columns), "")
    if not name:
        known = ", ".join(input.columns) or "no columns"
        raise ConfigError(
            f"group: {column!r} is not a column of {input.text}, which is opened with {known}; pass"
            f" columns=[{column!r}] where it is opened",
            field="group",
        )
    known_values: dict[str, int] = {}
    of = np.full(len(input.source), -1, np.int64)
    for i, columns in read_columns(input, (name,), "group"):
        value = _as_text(field_value(columns, name), column, input.source.uri, i)
        of[i] = known_values.setdefault(value, len(known_values)) if value else -1
    if not known_values:
        raise ConfigError(
            f"group: no image of {input.text} has a value of {column!r}; pass another column",
            field="group",
        )
    values = sorted(known_values)
    position = np.empty(len(values) + 1, np.int64)
    position[[known_values[value] for value in values]] = np.arange(len(values))
    position[-1] = -1
    return Groups(column, values, position[of])


def _as_text(value: Any, column: str, uri: Any, i: int) -> str:
    """The value as text, equal for equal numbers; "" for a missing one."""
    if isinstance(value, (list, dict, bytes)):
        raise ConfigError(
            f"group: a value must be a number or a text, got {printable(repr(value), 60)} in column"
            f" {column!r} of {printable(uri(i), None)}; pass a column of one",
            field="group",
        )
    if isinstance(value, float):
        if not math.isfinite(value):
            return ""
        value = int(value) if value.is_integer() else value
    return "" if value is None else nfc(str(value)).strip()
