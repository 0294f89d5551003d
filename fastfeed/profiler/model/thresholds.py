"""Where a share of idle time becomes a verdict: the marks that xprof and PyTorch's plugin use,
too.
"""

from __future__ import annotations

__all__ = ["SEVERE", "STARVED", "word"]

STARVED = 0.05
SEVERE = 0.20


def word(share: float) -> str:
    """not_starved, starved or severe, for this fraction of the window."""
    return "severe" if share >= SEVERE else "starved" if share >= STARVED else "not_starved"
