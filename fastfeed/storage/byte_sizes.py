"""Sizes in bytes as people write them, and limits on the bodies that servers send."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.storage.local_file import MAX_BYTES

_UNITS = {"B": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("KMGT", 1)
    for kind, base in (("B", 1000), ("iB", 1024))
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?i?B)", re.IGNORECASE)


def in_bytes(limit: int | str, name: str = "Cache: limit") -> int:
    """Bytes of a string such as "200GB" (10**9 each) or "64KiB" (1024 each), or of a number."""
    if isinstance(limit, str) and (match := _SIZE.fullmatch(limit.strip())):
        number = Fraction(match[1])
        unit = match[2].lower()
        count = int(number * next(size for name, size in _UNITS.items() if name.lower() == unit))
    else:
        count = limit if isinstance(limit, int) and not isinstance(limit, bool) else 0
    if count < 1:
        raise ConfigError.of(
            name,
            'a number of bytes > 0, or a string such as "500MB", "1.5TB" or "64KiB"'
            f" ({', '.join(_UNITS)})",
            limit,
        )
    return count


_MORE = "if you trust the server, pass storage={'max_body': ...} (--storage-option max_body=...)"


class BodyTooLarge(ValueError):
    """A body is larger than the limit. A ValueError: another request would not help."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; {_MORE}")


def max_body(options: dict[str, Any]) -> int:
    """Limit in bytes of a body of unannounced length, or a compressed one. ConfigError."""
    return in_bytes(options.get("max_body", "256MB"), "storage: max_body")


def max_announced(options: dict[str, Any]) -> int:
    """Limit in bytes of a body whose length is known before it is read. ConfigError."""
    return max(max_body(options), MAX_BYTES)


def check_announced(size: int | None, limit: int | None) -> None:
    """Raise BodyTooLarge if a body is known to exceed the limit."""
    if size is not None and limit is not None and size > limit:
        raise BodyTooLarge(f"a body of {size:,} bytes, the limit is {limit:,}")
