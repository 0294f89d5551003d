"""Fingerprints of data sets, and the changes between two of them.

It is `names 1f.. labels 9c.. content a1..`; content is given in slices of the samples, so that a
change shows where it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

OBJECTS_SEPARATOR = " with objects "  # between a source's and that of its boxes and masks
SUBSET_SEPARATOR = " at samples "  # between a source's in brackets and that of the ids taken

_SLICES = 16
_ASPECTS = {"names": "names of samples", "labels": "labels or classes"}


def fingerprint(
    length: int,
    names: Iterable[Any],
    labels: Iterable[Any],
    content: Callable[[int, int], Iterable[Any]],
) -> str:
    """Fingerprint of all names, all labels, and the content of samples [first, last)."""
    slices = [
        _digest(content(length * i // _SLICES, length * (i + 1) // _SLICES), 2)
        for i in range(_SLICES)
    ]
    return f"names {_digest(names, 8)} labels {_digest(labels, 8)} content {''.join(slices)}"


def _digest(buffers: Iterable[Any], size: int) -> str:
    digest = hashlib.blake2b(digest_size=size)
    for buffer in buffers:
        digest.update(buffer)
    return digest.hexdigest()


def difference(before: str, after: str, length: int, uri: Callable[[int], str]) -> str:
    """Changes between two fingerprints of a source, in words; "" if unknown."""
    if before.startswith("[") and after.startswith("["):
        return _subset_difference(before, after)
    sources = list(zip(before.split(" + "), after.split(" + "), strict=False))
    if len(sources) > 1 and before.count(" + ") == after.count(" + "):  # a mixture's
        changed = [str(i) for i, (old, new) in enumerate(sources) if old != new]
        if changed:
            return f"changed: source {', '.join(changed)} of 0..{len(sources) - 1}"
        return "nothing changed"
    if OBJECTS_SEPARATOR in before and OBJECTS_SEPARATOR in after:
        (before, old_objects) = before.rsplit(OBJECTS_SEPARATOR, 1)
        (after, new_objects) = after.rsplit(OBJECTS_SEPARATOR, 1)
        changed = difference(old_objects, new_objects, length, uri).replace(
            "labels or classes", "classes"
        )
        below = difference(before, after, length, uri)
        return below if old_objects == new_objects else f"of objects {changed}; of images {below}"
    old = _parts(before)
    new = _parts(after)
    if not old and not new:
        return ""
    if set(old) != set(new) or len(old.get("content", "")) != len(new.get("content", "")):
        return "the data is of another kind"
    changed = [text for name, text in _ASPECTS.items() if old.get(name) != new.get(name)]
    width = len(new["content"]) // _SLICES
    slices = [
        i
        for i in range(_SLICES)
        if old["content"][i * width : (i + 1) * width] != new["content"][i * width :][:width]
    ]
    if slices:
        first = length * slices[0] // _SLICES
        last = max(length * (slices[-1] + 1) // _SLICES - 1, 0)
        changed.append(f"content of samples in {first}..{last} ({uri(first)} to {uri(last)})")
    if not changed:
        return "nothing changed"
    same = [text for name, text in _ASPECTS.items() if old.get(name) == new.get(name)]
    return f"changed: {', '.join(changed)}" + (f"; the same: {', '.join(same)}" if same else "")


def _subset_difference(before: str, after: str) -> str:
    old_source, _, old_ids = before.rpartition(SUBSET_SEPARATOR)
    new_source, _, new_ids = after.rpartition(SUBSET_SEPARATOR)
    pairs = {
        "the samples that are taken": (old_ids, new_ids),
        "the source that they are taken from": (old_source, new_source),
    }
    changed = [text for text, (old, new) in pairs.items() if old != new]
    return f"changed: {' and '.join(changed)}" if changed else "nothing changed"


def _parts(text: str) -> dict[str, str]:
    words = text.split(" ")
    return dict(zip(words[::2], words[1::2], strict=False)) if len(words) == 6 else {}
