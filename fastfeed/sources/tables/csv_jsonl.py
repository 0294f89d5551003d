"""Tables written line by line: CSV with a header line, and JSON lines."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.printable import printable
from fastfeed.sources.tables.columns import Codes, ColumnPart, TextLists
from fastfeed.sources.tables.string_column import StringColumn

# characters of a field, such as an image in base64; Python's own limit is 131,072 for all readers
_FIELD = 256 << 20
_ROWS = 1 << 16  # that are Python objects at the same time

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


def read_csv(lines: Iterable[bytes], uri: str, requested: RequestedNames, delimiter: str) -> Parts:
    """RFC 4180: the first line names the columns, fields may be quoted.

    Every field is a text, an empty one is null.
    """
    if csv.field_size_limit() < _FIELD:
        csv.field_size_limit(_FIELD)
    # no Python code runs per line: a table may have many millions
    reader = csv.reader(map(bytes.decode, _unmarked(lines)), delimiter=delimiter, strict=True)
    try:
        header = next(reader, None)
        if not header:
            raise SourceError(f"Table: {uri} has no header; its first line must name the columns")
        indices = {name: _column_index(name, header, uri) for name in requested}
        line = reader.line_num
        while chunk := list(islice(reader, _ROWS)):
            if set(map(len, chunk)) != {len(header)}:
                chunk = _even(chunk, len(header), uri, line)
            line, columns = reader.line_num, list(zip(*chunk, strict=True))
            if columns:
                yield {
                    name: _fields(columns[indices[name]], coded)
                    for name, coded in requested.items()
                }
    except csv.Error as error:
        raise SourceError(f"Table: {uri}, line {reader.line_num}: {error}") from error
    except UnicodeDecodeError as error:
        detail = f"byte 0x{error.object[error.start]:02x} at {error.start}"
        raise SourceError(
            f"Table: {uri}, line {reader.line_num + 1}: not UTF-8 ({detail}); save the table as"
            " UTF-8"
        ) from error


def _unmarked(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without the byte order mark at the beginning."""
    remaining = iter(lines)
    first = next(remaining, b"").removeprefix(codecs.BOM_UTF8)
    return chain([first], remaining) if first else iter(())


def _even(rows: list[list[str]], width: int, uri: str, line: int) -> list[list[str]]:
    """Rows less those of empty lines; `line` is that before them.

    SourceError if one has more or fewer fields.
    """
    for row in rows:
        line += 1 + sum(text.count("\n") for text in row)
        if row and len(row) != width:
            raise SourceError(
                f"Table: {uri}, line {line}: {len(row)} fields, the header has {width}"
            )
    return [row for row in rows if row]


def _column_index(name: str, header: Sequence[str], uri: str) -> int:
    count = header.count(name)
    if count == 1:
        return header.index(name)
    if count:
        raise ConfigError(
            f"Table: {count} columns of {uri} are called {printable(repr(name))}; give them"
            " different names"
        )
    if len(header) == 1 and ";" in header[0]:
        hint = "; is it separated by semicolons? Save it with commas"
    else:
        hint = ""
    raise no_column(name, uri, header, hint or "; the first line must name the columns")


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


def read_json(lines: Iterable[bytes], uri: str, requested: RequestedNames) -> Parts:
    """Read one JSON object per line; a missing key is null."""
    objects, first, met = _objects(lines, uri), 0, set[str]()
    keys: dict[str, None] = {}  # keys of the first rows
    while chunk := list(islice(objects, _ROWS)):
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


def _objects(lines: Iterable[bytes], uri: str) -> Iterator[dict[str, Any]]:
    decode = json.JSONDecoder().raw_decode
    for number, line in enumerate(_unmarked(lines), 1):
        text, row, end = line.strip(), None, 0
        if not text:
            continue
        try:
            row, end = decode(text := text.decode())
            if end < len(text):
                raise ValueError(f"Extra data: column {end + 1}")
        except (ValueError, RecursionError) as error:
            if number > 1 or not line.lstrip().startswith(b"["):
                raise SourceError(f"Table: {uri}, line {number}: not JSON ({error})") from error
        if type(row) is not dict:
            if line.lstrip().startswith(b"["):
                hint = "; write one object per line instead of one array"
            else:
                hint = ""
            raise SourceError(
                f"Table: {uri}, line {number}: not an object like {{...}}, but"
                f" {printable(repr(line), 80)}{hint}"
            )
        yield row


def values_part(values: list[Any], coded: bool, name: str, uri: str, first: int) -> ColumnPart:
    """A part of JSON's values: texts, numbers, bools, lists of numbers, None; row `first` on.

    SourceError if they are not of one kind.
    """
    kinds = {type(value) for value in values}
    if type(None) in kinds:
        null = np.fromiter((value is None for value in values), bool, len(values))
    else:
        null = None
    kinds.discard(type(None))
    if not kinds:
        return ColumnPart(np.full(len(values), np.nan), null)
    if kinds == {str}:
        texts = values if null is None else [value or "" for value in values]
        return ColumnPart(_codes(texts) if coded else StringColumn.of(texts), null)
    try:
        if kinds == {list}:
            return ColumnPart(_text_lists(values) if coded else _lists(values), null)
        if kinds <= {bool, int, float}:
            dtype = np.bool_ if kinds == {bool} else np.float64 if float in kinds else np.int64
            if float in kinds and (large := _large(values)) is not None:
                raise _BadRow(
                    large,
                    f"holds {values[large]} among fractions, which would change it; write texts",
                )
            return ColumnPart(
                np.array(values if null is None else [value or 0 for value in values], dtype), null
            )
    except _BadRow as bad_row:
        raise SourceError(
            f"Table: {uri}, row {first + bad_row.row}: column {printable(repr(name))} {bad_row}"
        ) from None
    except OverflowError:
        row = next(i for i, v in enumerate(values) if type(v) is int and not _fits(v))
        digits = len(str(abs(values[row])))
        raise SourceError(
            f"Table: {uri}, row {first + row}: column {printable(repr(name))} holds a number of"
            f" {digits} digits, too large"
        ) from None
    first_value = next(value for value in values if value is not None)
    row = next(
        (i for i, v in enumerate(values) if v is not None and _kind(v) is not _kind(first_value)),
        values.index(first_value),
    )
    raise SourceError(
        f"Table: {uri}, row {first + row}: column {printable(repr(name))} holds"
        f" {printable(json.dumps(values[row], default=str))}; a column holds numbers, or texts, or lists of"
        f" numbers, and this one began with {printable(json.dumps(first_value, default=str))}"
    )


def _large(values: list[Any]) -> int | None:
    """The row of an integer that a fraction cannot hold."""
    return next((i for i, v in enumerate(values) if type(v) is int and int(float(v)) != v), None)


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
            raise _BadRow(row, f"holds a list of {len(value)}, those above hold {width}")
        if not kinds <= {int, float} or not all(type(x) is float or _fits(x) for x in value):
            raise _BadRow(
                row,
                f"holds {printable(json.dumps(value, default=str))}, a list of numbers is needed",
            )
    empty = [0] * width
    rows = [empty if value is None else value for value in values]
    return np.array(rows, np.float64 if fractions else np.int64).reshape(len(values), width)
