"""Times, shares, counts and names as people read them."""

from __future__ import annotations

import re

WORDS = {
    "not_starved": "NOT STARVED",
    "starved": "STARVED",
    "severe": "SEVERELY STARVED",
    "borderline": "BORDERLINE",
    "starved_of_copies": "STARVED OF COPIES",
    "abstained": "NO VERDICT",
}

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
# control characters and those that change the direction of text: not for a terminal or a page
_INVISIBLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff\s]+"
)


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
    """29.0 %, or 29 %; "< 0.1 %" for a share that would round to zero, "–" for NaN."""
    if share != share:
        return "–"
    smallest = 10.0**-digits
    if 0 < share * 100 < smallest / 2:
        return f"< {smallest:.{digits}f} %"
    return f"{share * 100:.{digits}f} %"


def interval(low: float | None, high: float | None) -> str:
    """28.1 % to 30.4 %; "" if an end is not known, or if both read alike, which says nothing."""
    if low is None or high is None or percent(low) == percent(high):
        return ""
    return f"{percent(low)} to {percent(high)}"


def multiple(times: float) -> str:
    """1.41x; from 100 on, "over 100x"."""
    return f"{times:.2f}x" if times < 100 else "over 100x"


def one_line(name: str, limit: int = 200) -> str:
    """A name on one line without control characters, cut to `limit` with an ellipsis."""
    line = _INVISIBLE.sub(" ", name[: limit * 4]).strip()
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
