"""Folders that partition a table, `label=cat/part-0.parquet`, as Hive and Spark write them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

import numpy as np

from fastfeed.sources.tables.columns import Codes, ColumnPart
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.storage import Storage, is_local

__all__ = ["partition_columns", "partition_parts", "partitioned_files"]

_NULL = "__HIVE_DEFAULT_PARTITION__"


def partitioned_files(folder: str, storage: Storage) -> list[str]:
    """All files in folders called `name=value` below this one, sorted."""
    root = folder.rstrip("/") + "/"
    if is_local(folder):
        return sorted(_walk(folder))
    below = [
        (uri, uri.removeprefix(root).split("/")[:-1]) for uri, _ in storage.find(folder.rstrip("/"))
    ]
    return sorted(uri for uri, parts in below if parts and all("=" in part for part in parts))


def _walk(folder: str) -> Iterator[str]:
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if "=" in name]
        if base != folder:
            yield from (os.path.join(base, name) for name in names)


def partition_columns(uri: str) -> dict[str, str | None]:
    """Columns from the names of a file's folders; None for null."""
    columns: dict[str, str | None] = {}
    for part in reversed(uri.split("/")[:-1]):
        name, equals, value = part.partition("=")
        if not equals or not name:
            break
        columns.setdefault(unquote(name), None if value == _NULL else unquote(value))
    return columns


def partition_parts(
    columns: Mapping[str, str | None], coded: Mapping[str, bool], rows: int
) -> dict[str, ColumnPart]:
    """These columns in a number of rows; `coded`: as Codes."""
    return {
        name: _part(value, coded[name], rows) for name, value in columns.items() if name in coded
    }


def _part(value: str | None, coded: bool, rows: int) -> ColumnPart:
    null = np.ones(rows, bool) if value is None else None
    if coded:
        return ColumnPart(Codes(np.zeros(rows, np.int64), (value or "",)), null, typed=False)
    text = np.frombuffer((value or "").encode("utf-8", "surrogateescape"), np.uint8)
    return ColumnPart(
        StringColumn(np.tile(text, rows), np.arange(1, rows + 1) * len(text)), null, typed=False
    )
