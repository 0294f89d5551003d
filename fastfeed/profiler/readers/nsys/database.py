"""Reads an export as numpy columns; tables and columns missing in its schema are empty."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.profiler.model.format import one_line

MAGIC = b"SQLite format 3\0"
# SQLite quotes what is damaged, which may be no text at all
BROKEN = (sqlite3.Error, UnicodeDecodeError)
ColumnMap = dict[str, np.ndarray]

_ROWS_PER_QUERY = 200_000  # rows per query: a text of some 4 MB per column
_SEPARATOR = "\x1e"
_NULL = "\x1f"
_IDS_PER_QUERY = 5_000  # string ids per query


class NsysDatabase:
    """One open Nsight Systems export.

    ColumnMap come as int64, with -1 for NULL and for a column that this age of schema lacks.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        # host names and window titles in whatever code page the machine had
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        self.tables: dict[str, tuple[str, ...]] = {
            name: tuple(row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(name)})"))
            for (name,) in names
            if isinstance(name, str)
        }

    def has(self, table: str, *columns: str) -> bool:
        """True if the table exists and has these columns, even if it is empty."""
        return table in self.tables and set(columns) <= set(self.tables[table])

    def any(self, table: str) -> bool:
        """True if the table exists and has a row."""
        return table in self.tables and bool(self.rows(f"SELECT 1 FROM {_quoted(table)} LIMIT 1"))

    def rows(self, query: str, *values: object) -> list[tuple]:
        """Rows of a small table whose values may have any type."""
        return self.connection.execute(query, values).fetchall()

    def records(
        self,
        table: str,
        integers: Sequence[str] = (),
        texts: Sequence[str] = (),
        where: str = "TRUE",
    ) -> list[tuple]:
        """Rows of a small table: integers, then texts, whatever is stored there.

        None is NULL, and what stands for a column that is missing. A table that is missing has no
        rows.
        """
        if table not in self.tables:
            return []
        columns = [(name, "INTEGER") for name in integers] + [(name, "TEXT") for name in texts]
        values = ", ".join(
            f"CAST({_quoted(name)} AS {kind})" if self.has(table, name) else "NULL"
            for name, kind in columns
        )
        return self.rows(f"SELECT {values} FROM {_quoted(table)} WHERE {where} ORDER BY rowid")

    def columns(self, table: str, names: Sequence[str], where: str = "") -> ColumnMap:
        """Integer columns of a table, in the order of its rows.

        SQLite joins each column into one text and numpy reads it: three times as fast as a Python
        integer per value.
        """
        present = [name for name in names if self.has(table, name)]
        parts: dict[str, list[np.ndarray]] = {name: [] for name in present}
        values = [f"group_concat(ifnull(CAST({_quoted(name)} AS INTEGER), -1))" for name in present]
        for _, _, *row in self._chunks(table, present, values, where) if present else ():
            for name, text in zip(present, row, strict=True):
                parts[name].append(np.fromstring(text, np.int64, sep=","))
        rows = sum(map(len, parts[present[0]])) if present else 0
        missing = [np.full(rows, -1, np.int64)]
        return {name: np.concatenate(parts.pop(name, None) or missing) for name in names}

    def texts(
        self, table: str, column: str, expression: str, where: str = ""
    ) -> Iterator[list[str | None]]:
        """A text column in chunks of rows, in their order; `expression` is SQL of the column."""
        value = f"ifnull({expression}, '{_NULL}')"
        chunks = self._chunks(table, (column,), (f"group_concat({value}, '{_SEPARATOR}')",), where)
        for after, count, joined in chunks:
            texts = joined.split(_SEPARATOR)
            if len(texts) != count:  # a text holds the separator itself
                query = f"SELECT {value} FROM ({self._select_chunk(table, (column,), where)})"
                texts = [text for (text,) in self.connection.execute(query, (after,))]
            yield [None if text == _NULL else text for text in texts]

    def _chunks(
        self, table: str, names: Sequence[str], values: Sequence[str], where: str
    ) -> Iterator[tuple]:
        """(row id before, rows, *values) of chunks of a table; values are SQL of its columns."""
        query = (
            f"SELECT max(at), count(*), {', '.join(values)} FROM"
            f" ({self._select_chunk(table, names, where)})"
        )
        at = -(1 << 63)
        while True:
            last, count, *row = self.connection.execute(query, (at,)).fetchone()
            if last is None:
                return
            if last <= at:  # a page that points back: it would never end
                raise sqlite3.DatabaseError("rows are out of order")
            yield at, count, *row
            at = last

    def _select_chunk(self, table: str, names: Sequence[str], where: str) -> str:
        inner = ", ".join(_quoted(name) for name in names)
        more = f"AND ({where})" if where else ""
        order = f"ORDER BY rowid LIMIT {_ROWS_PER_QUERY}"
        return f"SELECT rowid AS at, {inner} FROM {_quoted(table)} WHERE rowid > ? {more} {order}"

    def strings(self, ids: np.ndarray) -> dict[int, str]:
        """Texts by id, from StringIds; an id without a text is left out.

        Only these are loaded: some exports hold millions, one for each call of an operator.
        """
        if not self.has("StringIds", "id", "value"):
            return {}
        texts: dict[int, str] = {}
        for at in range(0, len(ids), _IDS_PER_QUERY):
            id_list = ",".join(map(str, ids[at : at + _IDS_PER_QUERY].tolist()))
            rows = self.records("StringIds", ["id"], ["value"], f"id IN ({id_list})")
            texts.update((key, text or "") for key, text in rows if key is not None)
        return texts

    def pairs(self, table: str) -> list[tuple[str, str]]:
        """A table of names and values, as text."""
        if not self.has(table, "name", "value"):
            return []
        rows = self.records(table, texts=("name", "value"))
        return [(name or "", text or "") for name, text in rows]


@contextlib.contextmanager
def open_database(path: Path, read_locked: bool = True) -> Iterator[NsysDatabase]:
    """Open an export to read; TraceError if it is damaged or truncated.

    `read_locked`: a file that another program has locked is read as it is.
    """
    try:
        # an error's text may quote bytes of a damaged schema, which are not text
        connection = _connected(path, read_locked)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _damaged(path, error) from error
    except OSError as error:
        raise TraceError(
            f"{path} cannot be read: {error.strerror}; check the path and its permissions"
        ) from error
    try:
        yield NsysDatabase(path, connection)
    except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
        raise _damaged(path, error) from error
    finally:
        connection.close()


def _connected(path: Path, read_locked: bool) -> sqlite3.Connection:
    """A read-only connection; a locked file, or one without its journal, may be read as it is."""
    uri = path.resolve().as_uri()
    with path.open("rb") as file:
        # then even readers create files next to it, unless those exist already
        journaled = file.read(19)[18:] == b"\2"
    journal = path.with_name(f"{path.name}-wal")
    immutable = "mode=ro&immutable=1"
    for options in (immutable,) if journaled and not journal.exists() else ("mode=ro", immutable):
        connection = sqlite3.connect(f"{uri}?{options}", uri=True, timeout=1.0)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            connection.close()
            if options == immutable or not read_locked:
                raise
        except BROKEN:
            connection.close()
            raise
        else:
            return connection
    raise AssertionError("the last attempt returns or raises")


def _damaged(path: Path, error: sqlite3.Error | UnicodeDecodeError | MemoryError) -> TraceError:
    reason: object = "its schema is not text" if isinstance(error, UnicodeDecodeError) else error
    if isinstance(error, MemoryError):
        reason = "a value in it is larger than memory"
    return TraceError(
        f"{path} is a damaged or unfinished SQLite database ({one_line(str(reason))}); copy it"
        " again, or run nsys export --type sqlite on the report again"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
