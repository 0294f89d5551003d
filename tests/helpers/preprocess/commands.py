"""`fastfeed preprocess` as a user types it, in this process."""

from __future__ import annotations

from helpers.commands import fastfeed


def preprocess(*words: str) -> tuple[int, str]:
    """Exit code, and all that is printed or raised."""
    return fastfeed("preprocess", *words)
