"""Thresholds of a verdict, as in xprof and PyTorch's TensorBoard plugin."""

from __future__ import annotations

STARVED = 0.05
SEVERE = 0.20


def word(share: float) -> str:
    """not_starved, starved or severe, for this fraction of the window."""
    return "severe" if share >= SEVERE else "starved" if share >= STARVED else "not_starved"
