"""Tables of nvprof's SQLite files as int64 arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.profiler.model.trace import Table, table
from fastfeed.profiler.readers.nsys.database import NsysDatabase

_MAX_VALUE = 1 << 61  # nanoseconds; larger numbers are damage


def columns_of(kind: type[Table], rows: np.ndarray, names: tuple[str, ...], **more: Any) -> Table:
    """Rows of int64, shape (n, len(names)), as a table with these columns."""
    columns: dict[str, Any] = dict(zip(names, rows.T, strict=True))
    return table(kind, **columns, **more)


def is_nvprof(db: NsysDatabase) -> bool:
    """True for a file with CUPTI's tables and none that only Nsight Systems writes."""
    cupti = any(name.startswith("CUPTI_ACTIVITY_KIND_") for name in db.tables)
    return (
        cupti and db.has("StringTable") and not db.tables.keys() & {"StringIds", "META_DATA_EXPORT"}
    )


def rows_of(db: NsysDatabase, name: str, *columns: str) -> np.ndarray:
    """Columns of a table; -1 for missing values, rows with absurd numbers left out."""
    rows = np.column_stack(list(db.columns(name, columns).values()))
    return rows[(np.abs(rows) < _MAX_VALUE).all(axis=1)]


def rows_with_blob(
    db: NsysDatabase, name: str, blob: str, *columns: str, count: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """As `rows_of`, and the first 32-bit words of a blob, int64, shape (n, count); else 0."""
    rows = np.column_stack(list(db.columns(name, columns).values()))
    words = np.zeros((len(rows), count), np.int64)
    if db.has(name, blob):
        texts = [text for part in db.texts(name, blob, f"hex({blob})") for text in part]
        data = b"".join(
            bytes.fromhex(text or "")[: 4 * count].ljust(4 * count, b"\x00") for text in texts
        )
        words = np.frombuffer(data, "<u4").reshape(-1, count).astype(np.int64)
    is_valid = (np.abs(rows) < _MAX_VALUE).all(axis=1)
    return rows[is_valid], words[is_valid]
