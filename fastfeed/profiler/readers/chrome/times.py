"""Exact integers from decimal text: microseconds with any number of decimals."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np

__all__ = ["is_number", "spans"]

_WIDEST = 32  # characters; longer texts are rare and take the slow way
_MAX_US = 9_000_000_000_000_000  # microseconds that fit int64 nanoseconds: the year 2255


def spans(ts: Sequence[bytes], dur: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(start, end, ok): int64 nanoseconds and bool, each shape (n,).

    Not ok is what is no number, or out of range.

    Picoseconds are added before they are rounded, so events that touch in the file touch here.
    """
    whole, part, ok = _microseconds(ts)
    duration, duration_part, duration_ok = _microseconds(dur)
    return (
        whole * 1000 + (part + 500) // 1000,
        (whole + duration) * 1000 + (part + duration_part + 500) // 1000,
        ok & duration_ok,
    )


def is_number(text: bytes) -> bool:
    """Whether this is a finite number at all, however large."""
    try:
        return Decimal(text.decode("ascii")).is_finite()
    except (InvalidOperation, UnicodeDecodeError):
        return False


def _microseconds(texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whole microseconds, and the picoseconds after them."""
    raw = np.array(texts, "S")
    if raw.itemsize > _WIDEST:
        raw = raw.astype(f"S{_WIDEST}")
    characters = np.ascontiguousarray(raw.view(np.uint8).reshape(len(raw), -1).T)
    whole, part, places = (np.zeros(len(raw), np.int64) for _ in range(3))
    after = np.zeros(len(raw), bool)
    slow = (characters[-1] != 0) if len(characters) == _WIDEST else np.zeros(len(raw), bool)
    slow |= characters[0] == 0
    for column in characters:
        digit = column - np.uint8(48)  # of anything but a digit this is 10 or more
        number = digit < 10
        if number.all() and not after.any():
            whole = whole * 10 + digit
            continue
        dot = column == 46
        slow |= ~(number | dot | (column == 0)) | (dot & after)
        whole = np.where(number & ~after, whole * 10 + digit, whole)
        is_fraction = number & after & (places < 6)
        part = np.where(is_fraction, part * 10 + digit, part)
        places += is_fraction
        after |= dot
    part *= 10 ** (6 - places)
    slow |= (whole < 0) | (whole > _MAX_US)
    ok = np.ones(len(raw), bool)
    for at in np.flatnonzero(slow).tolist():
        value = _parse_decimal(texts[at])
        ok[at] = value is not None
        whole[at], part[at] = value or (0, 0)
    return whole, part, ok


def _parse_decimal(text: bytes) -> tuple[int, int] | None:
    try:
        value = Decimal(text.decode("ascii"))
        if not value.is_finite() or abs(value) > _MAX_US:
            return None
        whole = int(value // 1) - (value < 0 and value % 1 != 0)
        return whole, int((value - whole) * 1_000_000)
    except (InvalidOperation, UnicodeDecodeError):
        return None
