"""Tables written line by line: CSV with a header line, and JSON lines."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.printable import printable
from fastfeed.runtime.json_file import object_bytes
from fastfeed.sources.tables.column_types import (
    ColumnType,
    TypeConflict,
    as_text,
    infer_type,
    merged,
)
from fastfeed.sources.tables.columns import Codes, ColumnPart, TextLists
from fastfeed.sources.tables.string_column import StringColumn

# characters of a field, such as an image in base64; Python's own limit is 131,072 for all readers
_FIELD = 256 << 20
_FIELD_BYTES = 60  # of a text as a Python object, besides its characters
_ROWS = 1 << 16  # that are Python objects at the same time, of up to 32 columns
_FIELDS = 32 * _ROWS
_SCALARS = {bool, int, float, str}
_MOST_TIMES = 100  # its bytes that JSON may take as Python objects

RequestedNames = Mapping[str, bool]  # names of columns, and whether to read their texts as Codes
Parts = Iterator[dict[str, ColumnPart]]


def no_column(name: str, uri: str, columns: Iterable[str], hint: str = "") -> ConfigError:
    """The error for the name of a missing column."""
    names = [printable(repr(n), 80) for n in columns]
    listing = ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "")
    return ConfigError(
        f"Table: no column {printable(repr(name))} in {uri}; it has {listing or 'none'}{hint}"
    )


# -- CSV


def read_csv(
    blocks: Iterable[io.BytesIO], uri: str, requested: RequestedNames, delimiter: str, memory: int
) -> Parts:
    """RFC 4180: the first line names the columns, fields may be quoted.

    Every field is a text, an empty one is null. `blocks`: of whole lines.
    """
    if csv.field_size_limit() < _FIELD:
        csv.field_size_limit(_FIELD)
    done = 0  # rows, besides the header
    lines = chain.from_iterable(_bounded_rows(blocks, lambda: done, uri, delimiter, memory))
    # little Python code runs per line: a table may have many millions
    reader = csv.reader(map(bytes.decode, _unmarked(lines)), delimiter=delimiter, strict=True)
    try:
        header = next(reader, None)
        if not header:
            raise SourceError(f"Table: {uri} has no header; its first line must name the columns")
        indices = {name: _column_index(name, header, uri) for name in requested}
        width = len(header)
        most = max(1, min(_ROWS, _FIELDS // width))
        chunk: list[list[str]] = []
        for row in reader:
            done += 1
            if len(row) == width:
                chunk.append(row)
            elif row:
                raise SourceError(
                    f"Table: {uri}, line {reader.line_num}: {len(row)} fields, the header has"
                    f" {width}"
                )
            if len(chunk) == most:
                yield _columns(chunk, indices, requested)
                chunk = []
        if chunk:
            yield _columns(chunk, indices, requested)
    except csv.Error as error:
        raise SourceError(f"Table: {uri}, line {reader.line_num}: {error}") from error
    except UnicodeDecodeError as error:
        detail = f"byte 0x{error.object[error.start]:02x} at {error.start}"
        raise SourceError(
            f"Table: {uri}, line {reader.line_num + 1}: not UTF-8 ({detail}); save the table as"
            " UTF-8"
        ) from error


def csv_bytes(data: bytes, delimiter: str) -> int:
    """Bytes that a part of a row takes as Python objects."""
    return len(data) + _FIELD_BYTES * data.count(delimiter.encode())


def _bounded_rows(
    blocks: Iterable[io.BytesIO], done: Callable[[], int], uri: str, delimiter: str, memory: int
) -> Iterator[io.BytesIO]:
    """Yield the blocks. SourceError if a row takes more than `memory`: quotes that never end.

    `done`: the number of rows that were read.
    """
    size = 0
    before = 0
    for block in blocks:
        yield block
        size = 0 if done() > before else size + csv_bytes(block.getvalue(), delimiter)
        before = done()
        if size > memory:
            raise row_too_large("row", size, uri, memory)


def row_too_large(what: str, size: int, uri: str, memory: int) -> SourceError:
    """The error for a row, or a line of a file, that takes too much memory."""
    return SourceError(
        f"Table: {uri}: a {what} takes more than {memory:,} bytes; if it is meant, pass"
        f" memory='{-(-2 * size // 10**9)}GB', or more"
    )


def _columns(
    rows: Sequence[Sequence[str]], indices: Mapping[str, int], requested: RequestedNames
) -> dict[str, ColumnPart]:
    columns = list(zip(*rows, strict=True))
    return {name: _fields(columns[indices[name]], coded) for name, coded in requested.items()}


def _unmarked(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without the byte order mark at the beginning."""
    remaining = iter(lines)
    first = next(remaining, b"").removeprefix(codecs.BOM_UTF8)
    return chain([first], remaining) if first else iter(())


def _column_index(name: str, header: Sequence[str], uri: str) -> int:
    count = header.count(name)
    if count == 1:
        return header.index(name)
    if count:
        raise ConfigError(
            f"Table: {count} columns of {uri} are called {printable(repr(name))}; give them"
            " different names"
        )
    hint = "; the first line must name the columns"
    if len(header) == 1 and ";" in header[0]:
        hint = "; is it separated by semicolons? Save it with commas"
    raise no_column(name, uri, header, hint)


def _fields(fields: Sequence[str], coded: bool) -> ColumnPart:
    null = np.fromiter(map(len, fields), np.int64, len(fields)) == 0
    return ColumnPart(
        _codes(fields) if coded else StringColumn.of(fields),
        null if null.any() else None,
        typed=False,
    )


def _codes(texts: Sequence[str]) -> Codes:
    code = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return Codes(np.fromiter(map(code.__getitem__, texts), np.int64, len(texts)), tuple(code))


# -- JSON lines


def read_json(
    blocks: Iterable[io.BytesIO], uri: str, requested: RequestedNames, memory: int
) -> Parts:
    """Read one JSON object per line; a missing key is null. `blocks`: of whole lines."""
    first = 0
    met = set[str]()
    keys: dict[str, None] = {}  # keys of the first rows
    for chunk in _chunks(_objects(chain.from_iterable(blocks), uri, memory), memory):
        if not keys:
            keys = dict.fromkeys(key for row in chunk[:1000] for key in row)
        columns = {}
        for name, coded in requested.items():
            if name not in met and any(name in row for row in chunk):
                met.add(name)
            columns[name] = values_part([row.get(name) for row in chunk], coded, name, uri, first)
        yield columns
        first += len(chunk)
    for name in requested:
        if first and name not in met:
            raise no_column(name, uri, keys)


def _chunks(rows: Iterable[tuple[dict[str, Any], int]], memory: int) -> Iterator[list[Any]]:
    """Yield rows that take no more than `memory`, or one; `rows` has the bytes of each in JSON."""
    chunk: list[dict[str, Any]] = []
    size = 0
    for row, length in rows:
        if chunk and (len(chunk) == _ROWS or _MOST_TIMES * (size + length) > memory):
            yield chunk
            chunk = []
            size = 0
        chunk.append(row)
        size += length
    if chunk:
        yield chunk


def _objects(lines: Iterable[bytes], uri: str, memory: int) -> Iterator[tuple[dict[str, Any], int]]:
    decode = json.JSONDecoder().raw_decode
    for number, line in enumerate(_unmarked(lines), 1):
        text = line.strip()
        row = None
        end = 0
        if not text:
            continue
        if _MOST_TIMES * len(text) > memory and (size := object_bytes(text)) > memory:
            raise row_too_large("line", size, uri, memory)
        try:
            row, end = decode(text := text.decode())
            if end < len(text):
                raise ValueError(f"Extra data: column {end + 1}")
        except (ValueError, RecursionError) as error:
            if number > 1 or not line.lstrip().startswith(b"["):
                raise SourceError(f"Table: {uri}, line {number}: not JSON ({error})") from error
        if type(row) is not dict:
            is_array = line.lstrip().startswith(b"[")
            hint = "; write one object per line instead of one array" if is_array else ""
            raise SourceError(
                f"Table: {uri}, line {number}: not an object like {{...}}, but"
                f" {printable(repr(line), 80)}{hint}"
            )
        yield row, len(text)


def values_part(values: list[Any], coded: bool, name: str, uri: str, first: int) -> ColumnPart:
    """A part of values of one kind, as JSON or Python has them, and None; row `first` on.

    SourceError if they are not of one kind.
    """
    kinds = {type(value) for value in values}
    null = None
    if type(None) in kinds:
        null = np.fromiter((value is None for value in values), bool, len(values))
    kinds.discard(type(None))
    if not kinds:
        return ColumnPart(np.full(len(values), np.nan), null)
    if kinds == {str}:
        texts = values if null is None else [value or "" for value in values]
        return ColumnPart(_codes(texts) if coded else StringColumn.of(texts), null)
    try:
        if kinds == {list} and coded:
            return ColumnPart(_text_lists(values), null)
        if kinds == {list}:
            try:
                return ColumnPart(_lists(values), null)
            except _BadRow as bad_row:
                refusal = _in_row(name, uri, first + bad_row.row, str(bad_row))
                return any_part(values, null, name, uri, first, refusal)
        if len(kinds) == 1 and not kinds <= _SCALARS:
            return any_part(values, null, name, uri, first, _refusal(values, name, uri, first))
        if kinds <= {bool, int, float}:
            dtype = np.bool_ if kinds == {bool} else np.float64 if float in kinds else np.int64
            for row, value in enumerate(values) if float in kinds else ():
                if type(value) is int and int(float(value)) != value:
                    why = f"holds {value} among fractions, which would change it; write texts"
                    raise _BadRow(row, why)
            return ColumnPart(
                np.array(values if null is None else [value or 0 for value in values], dtype), null
            )
    except _BadRow as bad_row:
        raise SourceError(_in_row(name, uri, first + bad_row.row, str(bad_row))) from None
    except OverflowError:
        row = next(i for i, v in enumerate(values) if type(v) is int and not _fits(v))
        digits = len(str(abs(values[row])))
        raise SourceError(
            f"Table: {uri}, row {first + row}: column {printable(repr(name))} holds a number of"
            f" {digits} digits, too large"
        ) from None
    raise SourceError(_refusal(values, name, uri, first))


def _refusal(values: list[Any], name: str, uri: str, first: int) -> str:
    """The error for values of several kinds, or of one that is read for `columns` only."""
    first_value = next(value for value in values if value is not None)
    row = next(
        (i for i, v in enumerate(values) if v is not None and _kind(v) is not _kind(first_value)),
        values.index(first_value),
    )
    return _in_row(
        name,
        uri,
        first + row,
        f"holds {printable(json.dumps(values[row], default=str))}; a column holds numbers, or texts,"
        f" or lists of numbers, and this one began with"
        f" {printable(json.dumps(first_value, default=str))}",
    )


def _in_row(name: str, uri: str, row: int, problem: str) -> str:
    return f"Table: {uri}, row {row}: column {printable(repr(name))} {problem}"


def any_part(
    values: list[Any], null: np.ndarray | None, name: str, uri: str, first: int, refusal: str
) -> ColumnPart:
    """A part of values of any type, as texts. SourceError if they are not of one type."""
    kind: ColumnType = "null"
    for row, value in enumerate(values):
        try:
            kind = merged(kind, infer_type(value))
        except TypeConflict as error:
            raise SourceError(_in_row(name, uri, first + row, str(error))) from None
    texts = StringColumn.of_bytes([as_text(kind, value) for value in values])
    return ColumnPart(texts, null, kind=kind, refusal=refusal)


def _kind(value: Any) -> type:
    return int if isinstance(value, (bool, float)) else type(value)


def _fits(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 63


class _BadRow(Exception):
    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row


def _text_lists(values: list[Any]) -> TextLists:
    """Lists of names, and of integers, which are names; none for null."""
    rows = [[str(item) if type(item) is int else item for item in value or ()] for value in values]
    wrong = next((k for k, row in enumerate(rows) if any(type(x) is not str for x in row)), None)
    if wrong is not None:
        shown = printable(json.dumps(values[wrong], default=str))
        raise _BadRow(wrong, f"holds {shown}, a list of names is needed")
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    return TextLists(_codes(list(chain.from_iterable(rows))), counts)


def _lists(values: list[Any]) -> np.ndarray:
    """(n, k); rows of null are 0."""
    width = next(len(value) for value in values if value is not None)
    fractions = False
    for row, value in enumerate(values):
        if value is None:
            continue
        kinds = {type(x) for x in value}
        fractions = fractions or float in kinds
        if len(value) != width:
            lengths = f"holds a list of {len(value)}, those above hold {width}"
            raise _BadRow(row, f"{lengths}; make all of one length")
        if not kinds <= {int, float} or not all(type(x) is float or _fits(x) for x in value):
            raise _BadRow(
                row,
                f"holds {printable(json.dumps(value, default=str))}, a list of numbers is needed",
            )
    empty = [0] * width
    rows = [empty if value is None else value for value in values]
    return np.array(rows, np.float64 if fractions else np.int64).reshape(len(values), width)
