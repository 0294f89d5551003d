"""Files bent at random: bytes of any file, values in JSON and text, cells of databases, fields of
protobuf.

What is changed inside of its format gets past the checks of the format, where most readers'
mistakes are.
"""

from __future__ import annotations

import contextlib
import gzip
import random
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from helpers.profiler.xplanes import varint

_MAX_BYTES = 1 << 22  # of a file that grows with each change
_NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    127,
    255,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**53,
    2**53 + 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**31),
    -(2**62),
    -(2**63),
)
_TEXT_NUMBERS = (
    *map(str, _NUMBERS),
    "1e5",
    "-1e308",
    "1e999",
    "NaN",
    "-Infinity",
    "0.0000001",
    "1.5.5",
    "--1",
    "9" * 30,
    "9" * 5_000,
    "0x10",
    "null",
    "true",
    '"12"',
    "[]",
    "{}",
)
_VALUES = (
    "null",
    "true",
    "[]",
    "{}",
    '""',
    '"\\ud800"',
    '"\\u0000"',
    '"a\\\\"',
    '"\\"}, {"',
    "[[[[]]]]",
    '{"a": {"b": [1]}}',
    "-",
    "",
    '"\\u001b[31m"',
    '"' + "x" * 300 + '"',
    "NaN",
)
_CELLS = (
    *(n for n in _NUMBERS if -(2**63) <= n < 2**63),
    None,
    "",
    "text",
    "12",
    b"",
    b"\xff\xfe",
    1.5,
    float("inf"),
    "\x1e",
)
_NEW_COLUMNS = ("overheadType", "eventSyncId", "graphId", "x")
_NUMBER = re.compile(rb"-?\d[\d.]*")
_VALUE = re.compile(rb':\s*("[^"]*"|-?[\d.]+|true|null)')
_TOKEN = re.compile(rb'"[^"]*"|[{}\[\],:]|-?[\d.]+')


def mutate(data: bytes, kind: str, dice: random.Random, folder: Path) -> bytes:
    """`data` with one to five changes; `kind` is its format: json, text, sqlite, protobuf.

    `folder` is for its use.
    """
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        change = dice.choice((_bytes, *_OF_KIND.get(kind, ()), *_OF_KIND.get(kind, ())))
        data = (
            change(data, dice)
            if kind != "sqlite" or change is _bytes
            else _database(data, dice, folder)
        )
        if not data or len(data) > _MAX_BYTES:
            break
    return gzip.compress(data[:_MAX_BYTES], 1) if dice.random() < 0.02 else data[:_MAX_BYTES]


def _bytes(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data))
    end = min(len(data), at + dice.choice((1, 2, 4, 8, 16, 64, 1_000, 20_000)))
    to = dice.randrange(len(data))
    return dice.choice(
        (
            lambda: data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :],
            lambda: data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :],
            lambda: data[:at] + data[end:],
            lambda: data[:at] + dice.randbytes(dice.choice((1, 3, 9, 100))) + data[at:],
            lambda: data[:to] + data[at:end] + data[to:],
            lambda: data[:at] + bytes(end - at) + data[end:],
            lambda: data[:at] + b"\xff" * (end - at) + data[end:],
            lambda: data[: max(1, at)],
        )
    )()


def _numbers(data: bytes, dice: random.Random) -> bytes:
    return _replaced(data, _NUMBER, dice, lambda _: dice.choice(_TEXT_NUMBERS).encode())


def _values(data: bytes, dice: random.Random) -> bytes:
    return _replaced(
        data, _VALUE, dice, lambda _: b": " + dice.choice((*_VALUES, *_TEXT_NUMBERS)).encode()
    )


def _tokens(data: bytes, dice: random.Random) -> bytes:
    return _replaced(
        data,
        _TOKEN,
        dice,
        lambda token: dice.choice((b"", token + token, token[:-1], b" " + token + b"\n")),
    )


def _lines(data: bytes, dice: random.Random) -> bytes:
    lines = data.split(b"\n")
    at, to = dice.randrange(len(lines)), dice.randrange(len(lines))
    line = lines.pop(at)
    if dice.random() < 0.7:
        lines[to:to] = [line] * dice.choice((1, 2, 3))
    return b"\n".join(lines)


def _replaced(
    data: bytes, pattern: re.Pattern[bytes], dice: random.Random, new: Callable[[bytes], bytes]
) -> bytes:
    """One match at random, of those behind a place at random: searching all of a file takes too
    long.
    """
    places = list(pattern.finditer(data, dice.randrange(max(1, len(data) - 200))))[:50]
    if not places:
        return _bytes(data, dice)
    match = dice.choice(places)
    return data[: match.start()] + new(match[0]) + data[match.end() :]


def _database(data: bytes, dice: random.Random, folder: Path) -> bytes:
    """Cells, columns, rows or tables of an SQLite database."""
    path = folder / "bent.sqlite"
    path.write_bytes(data)
    # the last is what SQLite says of some damaged sizes
    bent_before = (
        sqlite3.Error,
        UnicodeError,
        MemoryError,
    )
    with contextlib.suppress(*bent_before), closing(sqlite3.connect(path)) as database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        if not tables:  # all were dropped
            return data
        table = dice.choice(tables)
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        column, other = dice.choice(columns), dice.choice(columns)
        where = dice.choice(
            (
                "",
                "",
                f'WHERE rowid = (SELECT rowid FROM "{table}" ORDER BY random() LIMIT 1)',
                "WHERE rowid % 3",
            )
        )
        cell = dice.choice(_CELLS)
        statement, *values = dice.choice(
            (
                *[(f'UPDATE "{table}" SET "{column}" = ? {where}', cell)] * 6,
                (f'UPDATE "{table}" SET "{column}" = "{other}" {where}',),
                (f'UPDATE "{table}" SET "{column}" = -"{column}" {where}',),
                (f'DELETE FROM "{table}" {where}',),
                (f'INSERT INTO "{table}" SELECT * FROM "{table}" {where}',),
                (f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "bent"',),
                (f'ALTER TABLE "{table}" DROP COLUMN "{column}"',),
                (f'ALTER TABLE "{table}" ADD COLUMN "{dice.choice(_NEW_COLUMNS)}" INT',),
                (f'DROP TABLE "{table}"',),
                (f'ALTER TABLE "{table}" RENAME TO "{dice.choice((*tables, "x"))}"',),
            )
        )
        database.execute(statement, values)
        database.commit()
    data = path.read_bytes()
    path.unlink()
    path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
    return data


def _fields(data: bytes, dice: random.Random) -> bytes:
    """A field of a protobuf message, at any depth; the lengths around it stay right."""
    fields = _parsed(data)
    if not fields:
        return _bytes(data, dice)
    at = dice.randrange(len(fields))
    tag, value = fields[at]
    if isinstance(value, bytes) and len(value) > 1 and dice.random() < 0.85:
        fields[at] = tag, _fields(value, dice)
    else:
        number = varint(dice.choice(_NUMBERS) & (2**64 - 1))
        as_number, as_bytes = (
            (tag & ~7, number),
            (tag & ~7 | 2, dice.randbytes(dice.choice((0, 9)))),
        )
        fields[at : at + 1] = dice.choice(
            ([], [fields[at]] * 2, [as_number], [as_number], [as_bytes])
        )
    return b"".join(
        varint(tag) + (varint(len(value)) + value if tag & 7 == 2 else value)
        for tag, value in fields
    )


def _parsed(data: bytes) -> list[tuple[int, bytes]]:
    """(tag, value as written) of a message; empty where this is none."""
    fields, at = [], 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 2:
            size, begin = _varint(data, at)
        else:
            begin, size = at, {1: 8, 5: 4}.get(tag & 7, -1)
            size = _varint(data, at)[1] - at if tag & 7 == 0 else size
        if not tag >> 3 or size < 0 or begin + size > len(data):
            return []
        fields.append((tag, data[begin : begin + size]))
        at = begin + size
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, the place after it)."""
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at
    return 0, len(data) + 1


_OF_KIND: Mapping[str, tuple[Callable[[bytes, random.Random], bytes], ...]] = {
    "json": (_numbers, _values, _values, _tokens, _lines),
    "text": (_numbers, _tokens, _lines),
    "sqlite": (lambda data, dice: data,) * 3,  # see mutate
    "protobuf": (_fields, _fields),
}
