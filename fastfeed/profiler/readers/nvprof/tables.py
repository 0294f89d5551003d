"""Columns of an SQLite file as int64 arrays, even if parts of it are missing or damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.profiler.model.trace import Table, table

# an error's text may quote a damaged schema, which is not text; SQLite calls some damaged sizes a
# lack of memory
ERRORS = (sqlite3.Error, UnicodeDecodeError, MemoryError)
# SQLite's MemoryError here: a damaged length
_TOO_LARGE = "a value in it is larger than memory"
_ROWS = 50_000  # at a time: their Python objects are larger than the array
_MAX_VALUE = 1 << 61  # nanoseconds; larger numbers are damage


def columns_of(kind: type[Table], rows: np.ndarray, names: tuple[str, ...], **more: Any) -> Table:
    """Rows of int64, shape (n, len(names)), as a table with these columns."""
    columns: dict[str, Any] = dict(zip(names, rows.T, strict=True))
    return table(kind, **columns, **more)


class NvprofDatabase:
    """`database.rows("TABLE", "start", "end")`: int64, shape (n, 2).

    A column that is not there is all -1.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        try:
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2
            )
        except ERRORS as error:
            raise TraceError(f"cannot open {path}: {error}; check its permissions") from error
        self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            rows = self._connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall()
        except ERRORS as error:
            self.close()
            hint = "wait until its writer has ended" if "locked" in str(error) else "copy it again"
            raise TraceError(
                f"{path} is an SQLite file that cannot be read: {error}; {hint}"
            ) from error
        self._tables = {str(row[0]) for row in rows}

    def close(self) -> None:
        self._connection.close()

    @property
    def is_nvprof(self) -> bool:
        """True for a file with CUPTI's tables and none that only Nsight Systems writes."""
        cupti = any(name.startswith("CUPTI_ACTIVITY_KIND_") for name in self._tables)
        return (
            cupti
            and "StringTable" in self._tables
            and not self._tables & {"StringIds", "META_DATA_EXPORT"}
        )

    def version(self) -> str:
        """The version of the schema; "" if the file does not record it."""
        rows = self.rows("Version", "version")
        return str(rows[0, 0]) if len(rows) else ""

    def texts(self) -> dict[int, str]:
        """Texts of names, by id."""
        try:
            return {
                int(id): str(text)
                for id, text in self._connection.execute("SELECT _id_, value FROM StringTable")
            }
        except (*ERRORS, ValueError, TypeError, OverflowError) as error:
            self.notes.append(
                f"names are missing: the table StringTable is damaged ({str(error) or _TOO_LARGE})"
            )
            return {}

    def rows(self, name: str, *columns: str) -> np.ndarray:
        """Columns of a table; -1 for missing values, rows with absurd numbers left out."""
        return self._read(name, columns, None)[0]

    def with_blob(
        self, name: str, blob: str, *columns: str, blob_words: int = 2
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `rows`, and the first 32-bit words of a blob, int64, shape (n, words); else 0."""
        table, blobs = self._read(name, columns, blob)
        size = blob_words * 4
        words = b"".join(
            (data if isinstance(data, bytes) else b"")[:size].ljust(size, b"\x00") for data in blobs
        )
        return table, np.frombuffer(words, "<u4").reshape(-1, blob_words).astype(np.int64)

    def _read(
        self, name: str, columns: tuple[str, ...], blob: str | None
    ) -> tuple[np.ndarray, list[object]]:
        parts = [np.empty((0, len(columns)), np.int64)]
        blobs: list[object] = []
        if name not in self._tables:
            return parts[0], blobs
        try:
            present = {
                str(row[1]) for row in self._connection.execute(f'PRAGMA table_info("{name}")')
            }
            expressions = [
                f'COALESCE(CAST("{column}" AS INTEGER), -1)' if column in present else "-1"
                for column in columns
            ]
            expressions += [f'"{blob}"'] if blob in present else ["NULL"]
            cursor = self._connection.execute(f'SELECT {", ".join(expressions)} FROM "{name}"')
            # rows that fit; pages of a damaged file may point back
            remaining = self.path.stat().st_size
            while chunk := cursor.fetchmany(_ROWS):
                remaining -= len(chunk)
                if remaining < 0:
                    raise sqlite3.DatabaseError("more rows than bytes")
                numbers = np.array([row[:-1] for row in chunk], np.int64).reshape(-1, len(columns))
                valid = np.flatnonzero(
                    ((numbers > -_MAX_VALUE) & (numbers < _MAX_VALUE)).all(axis=1)
                )
                parts.append(numbers[valid])
                if blob:
                    blobs += [chunk[row][-1] for row in valid.tolist()]
        except ERRORS as error:
            count = sum(map(len, parts))
            reason = str(error) or _TOO_LARGE
            self.notes.append(
                f"the table {name} is damaged after {count} rows ({reason}); copy the file again"
            )
        return np.concatenate(parts), blobs
