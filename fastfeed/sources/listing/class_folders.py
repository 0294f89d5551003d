"""Which folders are classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fastfeed.errors import SourceError
from fastfeed.printable import printable
from fastfeed.sources.class_names import (
    canonical_integers,
    class_names,
    code_points,
    equal_names,
    nfc,
)

__all__ = ["AmbiguousClasses", "class_folders", "order_text", "parts_text"]

# names of parts of a data set
_PARTS = {"train", "training", "val", "valid", "validation", "test", "testing"}


class AmbiguousClasses(SourceError):
    """Folders that do not give each image one class."""


def class_folders(
    root: str | Path, folders: Sequence[str], loose: int, requested: Sequence[str] | None
) -> Sequence[str]:
    """The folders that are classes, in the order of the classes.

    `loose` counts images outside of all folders.
    """
    if not folders:
        hint = (
            f"{loose} images lie in it directly; move them into one folder per class, or pass"
            " labeled=False"
            if loose
            else "expected one folder per class"
        )
        raise SourceError(f"ImageFolder: no class folders in {root}: {hint}")
    if equal := equal_names(folders):
        shown = " and ".join(f"{name!r} ({code_points(name)})" for name in equal)
        raise AmbiguousClasses(
            f"ImageFolder: {root} has two folders with names of the same characters, written"
            f" differently: {shown}; move the images of one into the other"
        )
    if requested is None:
        return sorted(folders)
    by_form = {nfc(folder): folder for folder in folders}
    forms = list(map(nfc, requested))
    if extra := sorted(by_form.keys() - set(forms)):
        names = ", ".join(printable(by_form[form]) for form in extra[:5])
        raise SourceError(f"ImageFolder: {root} has folders that are not in classes: {names}")
    # given in classes: a split may lack one
    return [by_form[form] for form in forms if form in by_form]


def order_text(classes: Sequence[str]) -> str:
    """Says that other sources number these classes in another order; "" where they do not."""
    if (others := class_names(classes)) == tuple(classes) or canonical_integers(classes) is None:
        return ""
    k = next(
        k for k, (name, other) in enumerate(zip(classes, others, strict=True)) if name != other
    )
    return (
        f"classes are numbers, and in a folder they are sorted as texts: class {k} is"
        f" {classes[k]!r}; in tables and shards they are sorted as numbers: class {k} is"
        f" {others[k]!r}. Pass the classes of one source to the others: classes=train.classes"
    )


def parts_text(root: str | Path, classes: Sequence[str]) -> str:
    """Says that the classes are the parts of a data set; "" where they are not."""
    if not {name.lower() for name in classes} <= _PARTS:
        return ""
    train = next((name for name in classes if name.lower() == "train"), None)
    if train is None or len(classes) == 1:
        return ""
    return (
        f"classes are {', '.join(classes)}, parts of a data set: pass {root}/{train} for its"
        " classes"
    )
