"""Prefilter of names by words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

__all__ = ["with_any"]

# all that `re.IGNORECASE` takes for a letter of ASCII: capital and small i, long s, the sign of
# kelvin
_ALIKE = str.maketrans({"\u0130": "i", "\u0131": "i", "\u017f": "s", "\u212a": "k"})


def with_any(names: Sequence[str], parts: Sequence[str]) -> np.ndarray:
    """Which names contain any of these parts, whatever their case: bool, shape (len(names),).

    Parts are lower case, without line ends. A search in one long text takes a tenth of the time of
    a pattern per name.
    """
    text = "\n".join(names)
    if not text.isascii():
        text = text.translate(_ALIKE)
    text = text.lower()
    ends = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)) + 1)
    found = np.zeros(len(names), bool)
    for part in parts:
        found[np.searchsorted(ends, np.fromiter(_places(text, part), np.int64), side="right")] = (
            True
        )
    return found


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)
