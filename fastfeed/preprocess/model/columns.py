"""Types of metadata columns: declared ones, values that fit them, and columns of a format.

A value is what JSON holds: dates, timestamps and decimals are texts, null is None. Only bytes are
themselves: they are kept next to the metadata.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.printable import printable
from fastfeed.sources.tables.column_types import (
    ColumnType,
    as_json,
    is_nested,
    is_text,
    listed,
    words,
)

MAX_BYTES = 1 << 20  # of a sample's columns as JSON: sources read no more
_LONG = 1000  # items, or characters: shorter ones are not measured
# other parts of a sample: a column of such a name is in the metadata only
TAKEN = frozenset(
    ("key", "image", "extension", "height", "width", "label", "class", "text", "uri", "meta")
)
_MEMBERS = frozenset(("cls", "txt", "json", "npy", "jpg", "png", "webp"))
_MEMBER = re.compile("[a-z0-9_]{1,40}")
_DECLARED: dict[str, ColumnType] = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "text": "text",
    "bytes": "bytes",
    "json": "json",
    "date": "date",
    "timestamp": ["timestamp", "us", False],
    "utc": ["timestamp", "us", True],
    "list": ["list", "text"],
}
_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?) ?(Z|[+-]\d\d:?\d\d)?"
)
_INT64 = range(-(1 << 63), 1 << 63)


def declared_types(declared: Sequence[str], columns: Sequence[str]) -> dict[str, ColumnType]:
    """Types by name, of `NAME=TYPE`. ConfigError."""
    types: dict[str, ColumnType] = {}
    for item in declared:
        name, _, text = item.rpartition("=")
        decimal = _DECIMAL.fullmatch(text)
        if decimal and 0 < int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
            types[name] = ["decimal", int(decimal[1]), int(decimal[2])]
        elif text in _DECLARED and name:
            types[name] = _DECLARED[text]
        else:
            allowed = f"NAME=TYPE, with a type of {', '.join(_DECLARED)} or decimal(10,2)"
            raise ConfigError.of("column_types", allowed, item)
        if name not in columns:
            raise ConfigError(
                f"column_types names {name!r}, which is not one of the columns"
                f" {', '.join(columns) or '(none)'}; add it to columns (--columns)",
                field="column_types",
            )
    return types


def check_names(types: Mapping[str, ColumnType], format: str) -> None:
    """ConfigError for a column of bytes whose name a format has no room for."""
    for name, kind in types.items():
        taken = name in TAKEN or (format == "webdataset" and name in _MEMBERS)
        odd = format == "webdataset" and not _MEMBER.fullmatch(name)
        if kind == "bytes" and (taken or odd):
            raise ConfigError(
                f"column {printable(repr(name))} holds bytes, which {format} shards keep under its"
                " name: give it one of lower-case letters, digits and _ that is no other part of a"
                " sample",
                field="columns",
            )


def own_columns(types: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """Those that are columns, or features, of the format, by name in order."""
    return {
        name: kind
        for name, kind in sorted(types.items())
        if name not in TAKEN and not name.startswith("image/")
    }


def too_large(columns: Mapping[str, Any]) -> str:
    """The problem with columns that take more than sources read, or ""."""
    for name, value in columns.items():
        if isinstance(value, (str, list, dict)) and len(value) > _LONG:
            size = len(json.dumps(value))
            if size > MAX_BYTES:
                items = f" of {len(value):,} items" if isinstance(value, list) else ""
                return (
                    f"{name}: a value{items} takes {size:,} bytes as JSON; columns may have"
                    f" {MAX_BYTES:,}"
                )
    return ""


def canonical(kind: ColumnType, value: Any) -> Any:
    """The value of a column of this type, as JSON holds it; bytes are themselves. ValueError."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if kind == "bytes":
        return _as_bytes(value)
    if isinstance(value, bytes):
        raise ValueError("bytes that are not text, which JSON cannot hold; declare them as bytes")
    if kind == "json":
        return as_json(value)
    if value == "" and kind != "text":
        return None
    if is_nested(kind):
        return _nested(kind, value)
    convert = _CONVERTERS[kind if isinstance(kind, str) else kind[0]]
    try:
        return convert(kind, value)
    except (ValueError, TypeError, KeyError, OverflowError, InvalidOperation):
        shown = printable(repr(value), 80)
        raise ValueError(f"a column of {words(kind)} holds {shown}") from None


def _as_bytes(value: Any) -> bytes | None:
    if not isinstance(value, (str, bytes)):
        raise ValueError(f"a column of bytes holds {printable(repr(value), 80)}")
    return (value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value) or None


def _nested(kind: Any, value: Any) -> Any:
    is_json = isinstance(value, str) and value.lstrip()[:1] in ("[", "{")
    if is_json or (isinstance(value, str) and kind == ["list", "text"]):
        value = listed(value)
    if kind[0] == "list" and isinstance(value, (list, tuple)):
        return [canonical(kind[1], item) for item in value]
    if kind[0] == "struct" and isinstance(value, dict):
        fields = dict(kind[1])
        if unknown := value.keys() - fields.keys():
            name = printable(repr(min(map(str, unknown))))
            raise ValueError(f"a column of {words(kind)} holds a field {name}")
        return {name: canonical(own, value.get(name)) for name, own in fields.items()}
    raise ValueError(f"a column of {words(kind)} holds {printable(repr(value), 80)}")


def _bool(_: Any, value: Any) -> bool:
    known = {"true": True, "false": False, "1": True, "0": False}
    return (
        known[str(value).lower()]
        if isinstance(value, str)
        else _parse_integer(value, range(2)) == 1
    )


def _parse_integer(value: Any, allowed: range) -> int:
    number = int(value)
    if isinstance(value, str) or number != value or number not in allowed:
        raise ValueError
    return number


def _float(_: Any, value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _text(_: Any, value: Any) -> str:
    if isinstance(value, (list, dict)):
        raise ValueError
    return value if isinstance(value, str) else json.dumps(value)


def _timestamp(kind: Any, value: str) -> str:
    unit, is_utc = kind[1:]
    match = _STAMP.fullmatch(value)
    if match is None or (match[3] and not is_utc):
        raise ValueError
    stamp = np.datetime64(f"{match[1]}T{match[2]}", unit)
    if match[3] and match[3] != "Z":
        offset = datetime.strptime(match[3].replace(":", ""), "%z").utcoffset() or timedelta()
        stamp -= np.timedelta64(offset)
    if unit == "ns" and str(stamp)[:10] != match[1] and not match[3]:
        raise ValueError  # before 1677 or after 2262
    return f"{stamp}Z" if is_utc else str(stamp)


def _decimal(kind: Any, value: Any) -> str:
    _, digits, scale = kind
    if isinstance(value, bool) or not _NUMBER.fullmatch(str(value)):
        raise ValueError
    number = Decimal(str(value))
    exact = number.quantize(Decimal(1).scaleb(-scale))
    if exact != number or len(exact.as_tuple().digits) > digits:
        raise ValueError
    return format(exact, "f")


_CONVERTERS: dict[str, Callable[[Any, Any], Any]] = {
    "null": _text,
    "bool": _bool,
    "int": lambda _, value: _parse_integer(int(value) if isinstance(value, str) else value, _INT64),
    "float": _float,
    "text": _text,
    "date": lambda _, value: date.fromisoformat(value).isoformat(),
    "timestamp": _timestamp,
    "decimal": _decimal,
}


def as_words(kind: ColumnType, value: Any) -> str:
    """A value, not None, as one text: texts as they are, all else as JSON."""
    return value if is_text(kind) else json.dumps(value, sort_keys=True, separators=(",", ":"))
