"""Names of classes: compared, parsed, numbered, and found as folders.

Names are compared in Unicode's normal form C (NFC): macOS stores `é` as two characters, other
systems as one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.printable import printable

_SHOWN = 5  # labels in a message
DIGITS = re.compile("0*[0-9]{1,18}")
_CANONICAL = re.compile("0|-?[1-9][0-9]{0,18}")


def canonical_integers(texts: Iterable[str]) -> list[int] | None:
    """Integers in Python's notation; None if any text is something else."""
    integers = []
    for text in texts:
        if not _CANONICAL.fullmatch(text) or not -1 << 63 <= int(text) < 1 << 63:
            return None
        integers.append(int(text))
    return integers


def nfc(name: str) -> str:
    """The form in which names are compared."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def class_names(names: Iterable[str]) -> tuple[str, ...]:
    """Unique classes of a source other than a folder, sorted as integers or as texts.

    Names that are equal in NFC are one class, which is called by that form.
    """
    by_form: dict[str, str] = {}
    for name in sorted(set(names)):
        form = nfc(name)
        by_form[form] = form if form in by_form else name
    unique = list(by_form.values())
    integers = canonical_integers(unique)
    return tuple(sorted(unique) if integers is None else map(str, sorted(integers)))


def class_numbers(names: Sequence[str]) -> dict[str, int]:
    """The number of each class by the NFC of its name."""
    return {nfc(name): number for number, name in enumerate(names)}


def renumbering(names: Iterable[str], classes: Sequence[str]) -> np.ndarray:
    """The number in `classes` of each name, then -1, for samples without a label: int32."""
    numbers = class_numbers(classes)
    return np.array([*(numbers[nfc(name)] for name in names), -1], np.int32)


def equal_names(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that are equal in NFC; None if all differ."""
    by_form: dict[str, str] = {}
    for name in names:
        if (form := nfc(name)) in by_form:
            return by_form[form], name
        by_form[form] = name
    return None


def code_points(name: str) -> str:
    """A name with the numbers of all characters that are not ASCII: `cafe<U+0301>`."""
    return printable("".join(c if c.isascii() else f"<U+{ord(c):04X}>" for c in name))


# names of parts of a data set
_PARTS = {"train", "training", "val", "valid", "validation", "test", "testing"}


class AmbiguousClasses(SourceError):
    """Raised if folders do not give each image exactly one class."""


def class_folders(
    root: str | Path, folders: Sequence[str], loose: int, requested: Sequence[str] | None
) -> Sequence[str]:
    """The folders that are classes, in the order of the classes.

    `loose` counts images outside of all folders.
    """
    if not folders:
        if loose:
            hint = (
                f"{loose} images lie in it directly; move them into one folder per class, or pass"
                " labeled=False"
            )
        else:
            hint = "expected one folder per class"
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
    """A note that other sources number these classes in another order; "" otherwise."""
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
    """A note that the classes are the parts of a data set; "" otherwise."""
    if not {name.lower() for name in classes} <= _PARTS:
        return ""
    train = next((name for name in classes if name.lower() == "train"), None)
    if train is None or len(classes) == 1:
        return ""
    return (
        f"classes are {', '.join(classes)}, parts of a data set: pass {root}/{train} for its"
        " classes"
    )


def integers_in(texts: Sequence[str], as_indices: bool) -> list[int] | None:
    """The integers that all labels of a source are, or None: they are names.

    `as_indices`: the caller asked for indices of classes, so that `007` is 7.
    """
    integers = canonical_integers(texts)
    if integers is None and as_indices and all(map(DIGITS.fullmatch, texts)):
        integers = [int(text.lstrip("0") or "0") for text in texts]
    return integers


def missing_classes(labels: Sequence[str], classes: Sequence[str], who: str) -> SourceError | None:
    """The error of labels that are not in `classes`; None if all are."""
    known = set(map(nfc, classes))
    missing = [label for label in labels if nfc(label) not in known]
    if not missing:
        return None
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    text = (
        f"{who}: labels that are not in classes:"
        f" {', '.join(map(printable, missing[:_SHOWN]))}{more}"
    )
    if canonical_integers(labels) is not None and not any(map(DIGITS.fullmatch, classes)):
        text += (
            "; labels are integers and classes are names: pass label_kind='index' if the integers"
            " count the classes from 0"
        )
    return SourceError(text)
