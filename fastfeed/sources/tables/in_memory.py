"""Tables in memory: pandas, Polars, PyArrow, dicts of lists. None of these is imported here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError, speaking_for
from fastfeed.printable import printable
from fastfeed.sources.label_values import LabelKind, LabelValues, RequestedLabel
from fastfeed.sources.mmap_arrays import joined
from fastfeed.sources.shards.labels import checked_classes
from fastfeed.sources.tables.columns import ColumnPart, RowLocator
from fastfeed.sources.tables.csv_jsonl import any_part, no_column, values_part
from fastfeed.sources.tables.open_table import (
    OpenedTable,
    RequestedColumns,
    label_classes,
    parse_files,
)
from fastfeed.sources.tables.read_files import TableFile
from fastfeed.storage.reads import Stat

_FRAMES = ("to_parquet", "write_parquet", "column_names", "__arrow_c_stream__")
_LABELS = "list of labels"
_SCALARS = {type(None), bool, int, float, str}


def is_in_memory(table: Any) -> bool:
    """Return True for a table in memory, rather than paths of files."""
    return isinstance(table, Mapping) or any(hasattr(table, name) for name in _FRAMES)


def open_in_memory(table: Any, requested: RequestedColumns, name: str | None = None) -> OpenedTable:
    """Copy the columns of a table; `name` stands for its file in messages.

    ConfigError for a missing column or columns of several lengths, SourceError for values.
    """
    kind = f"{type(table).__module__.partition('.')[0]}.{type(table).__name__}"
    name = name or kind.removeprefix("builtins.")
    columns = requested.other_columns()
    if requested.image is not None:
        columns = {requested.image: False} | columns
    if isinstance(table, Mapping) or hasattr(table, "iloc"):
        parts = [(column, _column(table, column, columns[column], name)) for column in columns]
    else:
        parts = list(_arrow_parts(table, columns, requested.columns, name))
    lengths = {column: len(part) for column, part in parts}
    if isinstance(table, Mapping) and len(set(lengths.values())) > 1:
        counts = ", ".join(f"{length:,} {printable(column)}" for column, length in lengths.items())
        raise ConfigError(
            f"Table: columns of {name} must have the same length, got {counts}", field="table"
        )
    opened, arrays = parse_files([(name, Stat(0, ""))], [TableFile(parts)], requested)
    return replace(opened, arrays=joined(arrays))


def label_columns(
    labels: Any, kind: LabelKind, classes: Sequence[str | int] | None, who: str
) -> tuple[dict[str, Any], RequestedLabel]:
    """Columns of a list of labels; a matrix of 0 and 1 has one for each of `classes`. ConfigError."""
    label = RequestedLabel.of(None if labels is None else "labels", kind, who)
    array: Any = np.asarray(labels) if hasattr(labels, "dtype") else np.empty(0)
    if kind != "multi" or array.ndim != 2 or array.dtype.kind not in "biuf":
        return ({"labels": labels} if label.names else {}), label
    names = checked_classes(classes, who) or ()
    if len(names) != array.shape[1]:
        raise ConfigError(
            f"{who}: labels of 0 and 1 need the name of each column, got {len(names)} classes for"
            f" {array.shape[1]} columns; pass classes=[...]"
        )
    columns = {name: array[:, k] for k, name in enumerate(names)}
    return columns, RequestedLabel.of(names, kind, who)


def listed_labels(
    labels: Any, kind: LabelKind, classes: tuple[str, ...], who: str, count: int
) -> tuple[tuple[str, ...], LabelValues]:
    """Names of classes, and labels in a list of this length. ConfigError, SourceError."""
    columns, label = label_columns(labels, kind, classes or None, who)
    with speaking_for(who, "Table"):
        requested = RequestedColumns(None, label)
        opened = open_in_memory(columns, requested, _LABELS)
        if opened.rows != [count]:
            raise ConfigError(
                f"{who} needs one label per image, got {opened.rows[0]} for {count} images"
            )
        where = RowLocator([_LABELS], [count])
        names, values = label_classes(opened, label, classes or None, where)
    assert values is not None
    return names, values


def _column(table: Any, column: str, coded: bool, name: str) -> ColumnPart:
    """A column of a mapping, or of a pandas DataFrame."""
    if column not in table:
        raise no_column(column, name, map(str, table))
    values = table[column]
    null = None
    if hasattr(table, "iloc"):
        if values.ndim != 1:
            raise ConfigError(
                f"Table: {values.shape[1]} columns of {name} are called"
                f" {printable(repr(column))}; give them different names"
            )
        null = values.isna().to_numpy()
        values = values.to_numpy()
    return _values(values, null, coded, column, name)


def _values(
    values: Any, null: np.ndarray | None, coded: bool, column: str, name: str
) -> ColumnPart:
    if isinstance(values, (str, bytes, os.PathLike)) or not hasattr(values, "__len__"):
        raise ConfigError.of(f"Table: {printable(column)}", "a list or an array", values)
    if hasattr(values, "dtype") and hasattr(values, "__array__"):
        values = np.asarray(values)
        if values.dtype.kind in "biuf":
            if values.dtype.kind == "f" and values.ndim == 1:
                null = np.isnan(values)
            return ColumnPart(np.array(values), null if null is not None and null.any() else None)
        if values.dtype.kind == "M":  # tolist() would return integers
            values = values.astype("datetime64[us]")
        values = values.tolist()
    rows = list(values)
    if not set(map(type, rows)) <= _SCALARS:
        rows = [_plain(value) for value in rows]
    if null is not None:
        rows = [
            None if missing else value for value, missing in zip(rows, null.tolist(), strict=True)
        ]
    kinds = set(map(type, rows))
    if str in kinds and float in kinds:
        rows = [None if value != value else value for value in rows]
    if not kinds <= _SCALARS | {list}:
        row = next(row for row, value in enumerate(rows) if type(value) not in _SCALARS | {list})
        refusal = _unreadable(column, f"{name}, row {row}", type(rows[row]).__name__)
        missing = np.fromiter((value is None for value in rows), bool, len(rows))
        return any_part(rows, missing if missing.any() else None, column, name, 0, refusal)
    return values_part(rows, coded, column, name, 0)


def _plain(value: Any) -> Any:
    """A scalar of NumPy, a path or a sequence as what JSON holds."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, datetime):  # pandas' own, too
        return datetime.combine(value.date(), value.time(), value.tzinfo)
    return value


def _unreadable(column: str, place: str, kind: str) -> str:
    hint = "numbers, bools, texts and lists of numbers can be read"
    if kind in ("bytes", "dict") or kind.startswith(("binary", "large_binary", "struct")):
        hint += "; for images as bytes, write a .parquet file and pass that, or use Mapped"
    return f"Table: column {printable(repr(column))} of {place} holds {printable(kind)}; {hint}"


def _arrow_parts(
    table: Any, columns: Mapping[str, bool], any_type: Sequence[str], name: str
) -> Iterator[tuple[str, ColumnPart]]:
    from fastfeed.sources.tables.arrow import (  # loads PyArrow
        as_table,
        column_kind,
        get_column,
        holds_images,
        part,
    )

    content = as_table(table)
    for column, coded in columns.items():
        stored_type = column_kind(content.schema, column)
        if stored_type is None:
            raise no_column(column, name, content.column_names)
        if holds_images(stored_type) and column not in any_type:
            raise SourceError(_unreadable(column, name, str(stored_type)))
        row = 0
        for chunk in get_column(content, column).chunks:
            own = part(chunk, coded, column, name, row)
            if isinstance(own.values, np.ndarray):  # a view of a table that may be large
                own = replace(own, values=np.array(own.values))
            yield column, own
            row += len(chunk)
