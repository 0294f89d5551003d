"""Times, shares and counts as people read them."""

from __future__ import annotations

__all__ = ["duration", "percent", "plural"]

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))


def duration(ns: float) -> str:
    """Three digits and a unit: 31.2 ms."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    if ns == 0:
        return "0 ms"
    size, unit = next((row for row in _UNITS if ns >= 0.9995 * row[0]), _UNITS[-1])
    value = ns / size
    if unit == "ns":
        return f"{sign}{round(value)} ns"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{sign}{value:,.{digits}f} {unit}"


def percent(share: float, digits: int = 1) -> str:
    """29.0 %, or 29 %; "< 0.1 %" for what is there and rounds to nothing, "–" for what is no number."""
    if share != share:
        return "–"
    least = 10.0**-digits
    if 0 < share * 100 < least / 2:
        return f"< {least:.{digits}f} %"
    return f"{share * 100:.{digits}f} %"


def plural(count: int, noun: str) -> str:
    """1 step, 1,000 steps."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
