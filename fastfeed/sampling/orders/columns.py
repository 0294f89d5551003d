"""Columns of a source that orders read."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.printable import printable


def read_column(source: Any, name: str, argument: str) -> np.ndarray:
    """The values of a column for all samples; ConfigError if the source has no such column."""
    read = getattr(source, "columns", None)
    columns = {} if read is None else read(np.arange(len(source)))
    if name not in columns:
        names = ", ".join(columns) or "none"
        raise ConfigError(
            f"{argument} must be a column of the source, which has {printable(names)}, got"
            f" {name!r}; columns of shards are read with each sample: pass one value per"
            " sample instead",
            field="by",
        )
    return columns[name]


def hash_numbers(numbers: np.ndarray) -> str:
    """Hash of integers, for saved states: 12 hexadecimal digits."""
    return hashlib.sha256(np.ascontiguousarray(numbers, "<i8").data).hexdigest()[:12]
