"""A complete event of a Chrome trace as a row, whatever its phase was."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

__all__ = ["Row", "duration", "row_of", "thread_key"]


class Row(NamedTuple):
    """A complete event. Bytes are JSON as it was written, str and other values are parsed."""

    cat: bytes
    name: Any
    thread_key: Any  # b'"pid": 1, "tid": 2' or (1, 2)
    ts: bytes  # decimal text, microseconds
    dur: bytes
    args: Any  # bytes between the braces, b"" for none, a parsed value, or None


def duration(opening: dict[str, Any], closing: dict[str, Any]) -> str:
    try:
        return f"{Decimal(closing.get('ts')) - Decimal(opening.get('ts')):f}"  # type: ignore[arg-type]
    except (ArithmeticError, TypeError, ValueError):
        return "?"


def row_of(event: dict[str, Any], dur: Any) -> Row:
    name, cat = event.get("name"), event.get("cat")
    return Row(
        (cat if isinstance(cat, str) else "").encode("utf-8", "replace"),
        name if isinstance(name, str) else "" if name is None else str(name),
        thread_key(event),
        str(event.get("ts")).strip().encode("utf-8", "replace"),
        str(dur).strip().encode("utf-8", "replace"),
        event.get("args"),
    )


def thread_key(event: dict[str, Any]) -> tuple[Any, Any]:
    pid, tid = event.get("pid", -1), event.get("tid", -1)
    return pid if isinstance(pid, int) else str(pid), tid if isinstance(tid, int) else str(tid)
