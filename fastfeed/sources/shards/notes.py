"""Notes on a shard while it is scanned."""

from __future__ import annotations

__all__ = ["Notes"]

_NOTES = 50  # kept per shard


class Notes:
    """The first notes, and how many more there are."""

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._more = 0

    def add(self, note: str) -> None:
        """Add a note."""
        if len(self._notes) < _NOTES:
            self._notes.append(note)
        else:
            self._more += 1

    def all(self) -> list[str]:
        """The list to keep."""
        return [*self._notes, f"and {self._more} more"] if self._more else self._notes
