"""Text of sources for `print`: a summary, and notes on what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastfeed.printable import printable
from fastfeed.sources.base import HasNotes

NOTE = 500  # characters of a note that is shown
_NOTES = 10  # printed with a source


def source_notes(source: Any) -> list[str]:
    """Notes on skipped and damaged files; empty for sources without notes."""
    return list(source.notes) if isinstance(source, HasNotes) else []


def summary(kind: str, uris: Sequence[str], images: int, classes: Sequence[str]) -> str:
    """`Table(a.csv and 2 more): 90 images of 3 classes`."""
    place = printable(uris[0]) + (f" and {len(uris) - 1} more" if len(uris) > 1 else "")
    return f"{kind}({place}): {images} images{f' of {len(classes)} classes' if classes else ''}"


def notes_text(notes: Sequence[str]) -> str:
    """The end of a source's `repr`: `; 3 notes, see .notes`, or nothing."""
    return f"; {len(notes)} note{'' if len(notes) == 1 else 's'}, see .notes" if notes else ""


def with_notes(text: str, notes: Sequence[str]) -> str:
    """The `str` of a source: a line about it, and its first notes below."""
    more = [f"and {len(notes) - _NOTES:,} more, see .notes"] if len(notes) > _NOTES else []
    return "\n  ".join([text, *(printable(note, NOTE) for note in notes[:_NOTES]), *more])
