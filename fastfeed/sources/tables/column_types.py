"""Types of columns of any kind, and their values as JSON holds them.

A type is "bool", "int", "float", "text", "date", "bytes", "json" (any JSON value), "null" (no value
so far), or a list: ["timestamp", unit, is_utc], ["decimal", digits, scale], ["list", type],
["struct", [[name, type], ...]]. Values are those of JSON; dates and timestamps are texts in ISO
8601, decimals texts such as "12.50"; bytes are themselves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import reduce
from typing import Any

from fastfeed.printable import printable

ColumnType = str | list[Any]

MAX_DEPTH = 8  # of lists and structs in each other
_MAX_FIELDS = 100  # of a struct; with more the names are data, and it is any JSON
_UNITS = ("s", "ms", "us", "ns")
_WORDS = {
    "bool": "bools",
    "int": "integers",
    "float": "numbers",
    "text": "texts",
    "date": "dates",
    "bytes": "bytes",
    "json": "JSON",
    "null": "nothing",
}
_PLAIN: dict[type, ColumnType] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "text",
    bytes: "bytes",
    date: "date",
}


class TypeConflict(ValueError):
    """A value that the type of its column does not hold."""


def words(kind: ColumnType) -> str:
    """The values of a type, in plain words."""
    if isinstance(kind, str):
        return _WORDS[kind]
    if kind[0] == "list":
        return f"lists of {words(kind[1])}"
    if kind[0] == "struct":
        return f"structs of {', '.join(printable(name) for name, _ in kind[1])}"
    if kind[0] == "timestamp":
        return "timestamps in UTC" if kind[2] else "timestamps"
    return f"decimals of {kind[1]} digits, {kind[2]} of them behind the point"


def is_nested(kind: ColumnType) -> bool:
    """True for lists and structs."""
    return not isinstance(kind, str) and kind[0] in ("list", "struct")


def is_text(kind: ColumnType) -> bool:
    """True for types whose values are texts: in ISO 8601, of digits, or any."""
    return kind in ("text", "date") or (not isinstance(kind, str) and not is_nested(kind))


def infer_type(value: Any, depth: int = 0) -> ColumnType:
    """The type of a value. TypeConflict."""
    kind = _PLAIN.get(type(value))
    if kind == "int" and not -(1 << 63) <= value < 1 << 63:
        raise TypeConflict(f"holds a number of {len(str(abs(value)))} digits, too large")
    if kind is not None:
        return kind
    if depth == MAX_DEPTH:
        raise TypeConflict(f"is nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        return ["list", merged_all(infer_type(item, depth + 1) for item in value)]
    if isinstance(value, dict):
        fields = [[str(name), infer_type(item, depth + 1)] for name, item in value.items()]
        return ["struct", fields] if 0 < len(fields) <= _MAX_FIELDS else "json"
    if isinstance(value, datetime):
        return ["timestamp", "us", value.tzinfo is not None]
    if isinstance(value, Decimal) and value.is_finite():
        _, digits, exponent = value.as_tuple()
        scale = max(0, -int(exponent))
        return ["decimal", max(len(digits) + max(0, int(exponent)), scale), scale]
    raise TypeConflict(f"holds {type(value).__name__}, which no format can carry")


def merged_all(kinds: Iterable[ColumnType]) -> ColumnType:
    """The type that holds the values of all these. TypeConflict."""
    return reduce(merged, kinds, "null")


def merged(first: ColumnType, second: ColumnType) -> ColumnType:
    """The type that holds the values of both. TypeConflict."""
    if first == second or second == "null":
        return first
    if first == "null":
        return second
    if {str(first), str(second)} <= {"bool", "int", "float"}:
        return "float" if "float" in (first, second) else "int"
    if "json" in (first, second) and (is_nested(first) or is_nested(second)):
        return "json"
    if isinstance(first, list) and isinstance(second, list) and first[0] == second[0]:
        if first[0] == "list":
            return ["list", merged(first[1], second[1])]
        if first[0] == "timestamp" and first[2] == second[2]:
            return max(first, second, key=lambda kind: _UNITS.index(kind[1]))
        if first[0] == "decimal":
            whole = max(first[1] - first[2], second[1] - second[2])
            scale = max(first[2], second[2])
            return ["decimal", whole + scale, scale]
        if first[0] == "struct":
            fields = dict(first[1])
            for name, kind in second[1]:
                fields[name] = merged(fields.get(name, "null"), kind)
            pairs = [list(pair) for pair in fields.items()]
            return ["struct", pairs] if len(pairs) <= _MAX_FIELDS else "json"
    raise TypeConflict(f"holds {words(second)}, those before {words(first)}")


def settled(kind: ColumnType) -> ColumnType:
    """The type, with texts where no value is known."""
    if isinstance(kind, str):
        return "text" if kind == "null" else kind
    if kind[0] == "list":
        return ["list", settled(kind[1])]
    if kind[0] == "struct":
        return ["struct", [[name, settled(own)] for name, own in kind[1]]]
    return kind


def as_json(value: Any) -> Any:
    """A value as JSON holds it; NaN and infinity are None. Bytes are themselves."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, datetime):
        utc = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
        return utc.isoformat() + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else value


def listed(text: str) -> Any:
    """The list in a text of a CSV: as JSON, or separated by semicolons, or by commas. ValueError."""
    if text.lstrip()[:1] in ("[", "{"):
        return json.loads(text)
    parts = [part.strip() for part in text.split(";" if ";" in text else ",")]
    return [part for part in parts if part]


def as_text(kind: ColumnType, value: Any) -> bytes:
    """A value as a column of texts keeps it; empty for none. `from_text` reads it."""
    value = as_json(value)
    if value is None:
        return b""
    if isinstance(value, bytes):
        return value
    return (value if is_text(kind) else json.dumps(value)).encode("utf-8", "surrogatepass")


def from_text(kind: ColumnType, text: bytes) -> Any:
    """The value of such a text; "" for none."""
    if not text:
        return ""
    if kind == "bytes":
        return text
    return text.decode("utf-8", "surrogatepass") if is_text(kind) else json.loads(text)
