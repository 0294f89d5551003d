"""Sizes in bytes, as people write them."""

from __future__ import annotations

import re
from fractions import Fraction

from fastfeed.errors import ConfigError

__all__ = ["in_bytes"]

_UNITS = {"B": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("KMGT", 1)
    for kind, base in (("B", 1000), ("iB", 1024))
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?i?B)", re.IGNORECASE)


def in_bytes(limit: int | str, name: str = "Cache: limit") -> int:
    """Bytes of a string such as "200GB" (10**9 each) or "64KiB" (1024 each), or of a number."""
    if isinstance(limit, str) and (match := _SIZE.fullmatch(limit.strip())):
        number, unit = Fraction(match[1]), match[2].lower()
        count = int(number * next(size for name, size in _UNITS.items() if name.lower() == unit))
    else:
        count = limit if isinstance(limit, int) and not isinstance(limit, bool) else 0
    if count < 1:
        raise ConfigError(
            f'{name} must be a number of bytes > 0, or a string such as "500MB", "1.5TB" or'
            ' "64KiB" '
            f"({', '.join(_UNITS)}), got {limit!r}",
            field=name,
        )
    return count
