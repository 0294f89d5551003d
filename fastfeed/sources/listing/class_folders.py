"""Which folders are classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fastfeed.errors import SourceError

__all__ = ["class_folders", "parts_text"]

_PARTS = {"train", "training", "val", "valid", "validation", "test", "testing"}  # names of parts of a data set


def class_folders(
    root: str | Path, folders: Sequence[str], loose: int, requested: Sequence[str] | None
) -> Sequence[str]:
    """The folders that are classes, in the order of the classes. `loose` counts images outside of all folders."""
    if not folders:
        hint = (
            f"{loose} images lie in it directly; move them into one folder per class, or pass labeled=False"
            if loose
            else "expected one folder per class"
        )
        raise SourceError(f"ImageFolder: no class folders in {root}: {hint}")
    existing = set(folders)
    names = sorted(existing) if requested is None else requested
    if extra := sorted(existing.difference(names)):
        raise SourceError(f"ImageFolder: {root} has folders that are not in classes: {', '.join(extra[:5])}")
    return [name for name in names if name in existing]  # given in classes: a split may lack one


def parts_text(root: str | Path, classes: Sequence[str]) -> str:
    """Says that the classes are the parts of a data set; "" where they are not."""
    if not {name.lower() for name in classes} <= _PARTS:
        return ""
    train = next((name for name in classes if name.lower() == "train"), None)
    if train is None or len(classes) == 1:
        return ""
    return f"classes are {', '.join(classes)}, parts of a data set: pass {root}/{train} for its classes"
