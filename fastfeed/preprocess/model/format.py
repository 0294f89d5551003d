"""Durations, sizes and reasons as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

__all__ = ["format_duration", "format_megabytes", "format_reasons", "format_size"]


_MAX_REASONS = 4  # reasons


def format_reasons(bad: Mapping[str, int], limit: int = _MAX_REASONS) -> str:
    """`8 truncated, 4 corrupt`, the most frequent first."""
    ranked = sorted(Counter(bad).items(), key=lambda item: (-item[1], item[0]))
    words = [f"{n:,} {why}" for why, n in ranked[:limit]]
    if len(ranked) > limit:
        words.append(f"{sum(n for _, n in ranked[limit:]):,} others")
    return ", ".join(words)


def format_duration(seconds: float) -> str:
    """`42 s`, `3:05 min`, `1:02:03 h`, `3 d 4 h`."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60}:{total % 60:02} min"
    if total < 172_800:
        return f"{total // 3600}:{total // 60 % 60:02}:{total % 60:02} h"
    return f"{total // 86_400} d {total // 3600 % 24} h"


def format_megabytes(count: float) -> str:
    """`4.5 MB`; one decimal below 100."""
    return f"{count / 1e6:,.1f} MB" if count < 1e8 else f"{count / 1e6:,.0f} MB"


def format_size(count: float) -> str:
    """`512 bytes`, `4.5 MB`, `1.2 TB`: powers of 1000, three digits."""
    value, unit = float(count), "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if value < 999.5 or unit == "PB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "bytes" or value >= 99.95 else f"{value:.1f} {unit}"
