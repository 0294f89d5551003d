"""Text from pages of others, as a terminal may show it."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """With a question mark for each character that steers a terminal, or cannot be encoded."""
    return "".join(char if char.isprintable() else "?" for char in text)
