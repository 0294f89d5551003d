"""Comparing, parsing and numbering names of classes.

Names are compared in Unicode's normal form C (NFC): macOS stores `é` as two characters, other
systems as one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from fastfeed.printable import printable

__all__ = [
    "canonical_integers",
    "class_names",
    "class_numbers",
    "code_points",
    "equal_names",
    "nfc",
]

_CANONICAL = re.compile("0|-?[1-9][0-9]{0,18}")


def canonical_integers(texts: Iterable[str]) -> list[int] | None:
    """Integers written as Python writes them; None if any text is something else."""
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
    distinct = list(by_form.values())
    integers = canonical_integers(distinct)
    return tuple(sorted(distinct) if integers is None else map(str, sorted(integers)))


def class_numbers(names: Sequence[str]) -> dict[str, int]:
    """The number of each class by the NFC of its name."""
    return {nfc(name): number for number, name in enumerate(names)}


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
