"""Integer columns of a table from the pages of its database, by the native kernel: a tenth of the
time of a query.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fastfeed.profiler.readers import native

__all__ = ["integer_columns"]


def integer_columns(
    path: Path, connection: sqlite3.Connection, table: str, names: Sequence[str]
) -> dict[str, np.ndarray] | None:
    """int64 columns of a table, -1 for NULL, in the order of its rows.

    None where SQLite has to be asked.

    That is where the kernel is not built, where a journal belongs to the file, where a column is
    computed or stands for the row id, and where the kernel meets what it does not read: damage,
    values that are no integers.
    """
    kernel = native.kernel()
    if kernel is None or any(
        path.with_name(f"{path.name}{ending}").exists() for ending in ("-wal", "-journal")
    ):
        return None
    quoted = '"' + table.replace('"', '""') + '"'
    places: dict[str, int] = {}
    for at, (_, name, _, _, _, key, hidden) in enumerate(
        connection.execute(f"PRAGMA table_xinfo({quoted})")
    ):
        if hidden:
            return None
        if not key:  # INTEGER PRIMARY KEY stands for the row id, and its column is empty
            places[name] = at
    root = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    if (
        root is None
        or not isinstance(root[0], int)
        or root[0] < 2
        or not places.keys() >= set(names)
    ):
        return None
    try:
        with path.open("rb") as file:
            columns = kernel.integer_columns(
                file.fileno(), root[0], [places[name] for name in names]
            )
    except (OSError, RuntimeError, TypeError):  # the last: a page number that no file has
        return None
    return dict(zip(names, columns, strict=True))
