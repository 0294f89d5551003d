"""How sources are printed: a line about each, and its first notes."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["notes_text", "summary", "with_notes"]

_NOTES = 10  # printed with a source


def summary(kind: str, uris: Sequence[str], images: int, classes: Sequence[str]) -> str:
    """`Table(a.csv and 2 more): 90 images of 3 classes`."""
    place = uris[0] if len(uris) == 1 else f"{uris[0]} and {len(uris) - 1} more"
    return f"{kind}({place}): {images} images{f' of {len(classes)} classes' if classes else ''}"


def notes_text(notes: Sequence[str]) -> str:
    """The end of a source's `repr`: `; 3 notes, see .notes`, or nothing."""
    return f"; {len(notes)} note{'' if len(notes) == 1 else 's'}, see .notes" if notes else ""


def with_notes(text: str, notes: Sequence[str]) -> str:
    """The `str` of a source: a line about it, and its first notes below."""
    more = [f"and {len(notes) - _NOTES:,} more, see .notes"] if len(notes) > _NOTES else []
    return "\n  ".join([text, *notes[:_NOTES], *more])
