"""Numbers and names as people read them."""

from __future__ import annotations

import re

from fastfeed.profiler.model.format import duration, percent, plural

__all__ = ["WORDS", "duration", "multiple", "one_line", "percent", "plural"]

WORDS = {
    "not_starved": "NOT STARVED",
    "starved": "STARVED",
    "severe": "SEVERELY STARVED",
    "borderline": "BORDERLINE",
    "abstained": "NO VERDICT",
}

# controls, and what turns the direction of text: neither belongs into a terminal or a page
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff\s]+")


def multiple(times: float) -> str:
    """1.41x; a ceiling without bound is said as such."""
    return f"{times:.2f}x" if times < 100 else "over 100x"


def one_line(name: str, limit: int = 200) -> str:
    """One line without control characters, at most `limit` characters: what is left out is an ellipsis."""
    shown = _UNSEEN.sub(" ", name[: limit * 4]).strip()
    return shown if len(shown) <= limit else shown[: limit - 1].rstrip() + "…"
