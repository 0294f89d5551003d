"""Labels that are names of classes are numbered like texts; labels that are indices are kept.

A text stays a text unless all labels of a source are integers as Python writes them
(`canonical_integers`): `007`, `1e5` and `+1` are names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.printable import printable
from fastfeed.sources.class_names import (
    DIGITS,
    canonical_integers,
    class_names,
    class_numbers,
    equal_names,
    integers_in,
    missing_classes,
    nfc,
)
from fastfeed.sources.label_values import MOST_CLASSES, LabelKind, RequestedLabel
from fastfeed.sources.shards.index import Index

_LARGEST = 1 << 31  # what an index of shards holds as a number
# what WebDataset, TensorFlow's scripts and MosaicML call the index of a class
_INDEX_FIELDS = ("cls", "label")


def requested_label(label: Any, kind: LabelKind | None, who: str) -> RequestedLabel:
    """The label; integers are indices in fields called `cls` or `label`, else names. ConfigError."""
    field = label if isinstance(label, str) else ""
    last = field.replace(":", "/").replace(".", "/").rpartition("/")[2]
    own: LabelKind = "index" if last.lower() in _INDEX_FIELDS else "name"
    return RequestedLabel.of(label, own if kind is None else kind, who)


def text_label(text: str) -> int | str:
    """Label of a shard: an integer below 2**31 if the text is one as Python writes it."""
    integers = canonical_integers([text])
    return integers[0] if integers and 0 <= integers[0] < _LARGEST else text


def checked_classes(classes: Any, who: str) -> tuple[str, ...] | None:
    """Names of classes; integers among them as texts.

    ConfigError for what cannot be a list of names.
    """
    if classes is None:
        return None
    if isinstance(classes, Iterable) and not isinstance(classes, (str, bytes)):
        items = list(classes)
    else:
        items = [None]
    are_names = all(
        isinstance(item, (str, int, np.integer)) and not isinstance(item, bool) for item in items
    )
    names = tuple(map(str, items))
    if not are_names or equal_names(names):
        hint = f"; pass [{printable(repr(classes))}]" if isinstance(classes, str) else ""
        raise ConfigError(
            f"{who}: classes must be a list of names, each once, got"
            f" {printable(repr(classes))}{hint}",
            field="classes",
        )
    return names


def number_integers(labels: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Unique integers in ascending order, as texts, and labels that refer to them; -1 stays."""
    values = np.unique(labels[labels >= 0])
    return tuple(map(str, values.tolist())), np.where(
        labels < 0, -1, np.searchsorted(values, labels)
    )


def number_labels(
    index: Index,
    classes: tuple[str, ...] | None,
    kind: LabelKind,
    who: str,
    as_indices: bool = False,
) -> tuple[tuple[str, ...], np.ndarray, str]:
    """Class names, labels that count them, and a note ("" for none).

    Texts in the shards are sorted and numbered.

    `as_indices`: the caller asked for indices, so texts of digits are such.
    """
    if not any(index.has_texts):
        return *_integer_labels(index.labels, classes, kind, who), ""
    texts = sorted({*index.texts, *_integers_among_texts(index)})
    if (integers := integers_in(texts, as_indices)) is not None:
        numbers = dict(zip(texts, integers, strict=True))
        values = np.array([*(numbers[text] for text in index.texts), -1], np.int64)
        labels = index.labels.astype(np.int64)
        for part in _worded_parts(index, labels):
            part[:] = values[part]
        return *_integer_labels(labels, classes, kind, who), ""
    names = class_names(texts) if classes is None else classes
    if (error := missing_classes(texts, names, who)) is not None:
        raise error
    code = class_numbers(names)
    note = _note(texts, kind)
    if all(index.has_texts) and names == index.texts:
        return names, index.labels, note
    # -1, no label, takes the last
    table = np.array([code[nfc(text)] for text in index.texts] + [-1], np.int32)
    labels = np.array(index.labels)
    for part in _worded_parts(index, labels):
        part[:] = table[part]
    for part in _worded_parts(index, labels, False):
        part[:] = [code[str(n)] if n >= 0 else -1 for n in part.tolist()]
    return names, labels, note


def _note(texts: Sequence[str], kind: LabelKind) -> str:
    """Note on ambiguous labels: numbers among texts, or indices with leading zeros."""
    numeric = [text for text in texts if canonical_integers([text]) is not None]
    other = printable(repr(next(text for text in texts if text not in numeric)))
    if kind == "index" and all(map(DIGITS.fullmatch, texts)):
        return (
            f"labels have leading zeros (as {other}): all are taken as names; pass"
            " label_kind='index' if they count"
        )
    if numeric:
        return (
            f"labels are numbers (as {numeric[0]!r}) and texts (as {other}): all are taken as names"
        )
    return ""


def _worded_parts(index: Index, labels: np.ndarray, worded: bool = True) -> list[np.ndarray]:
    """The labels of those shards whose labels count texts, or of the others."""
    return [
        labels[int(index.bounds[k]) : int(index.bounds[k + 1])]
        for k, has in enumerate(index.has_texts)
        if has == worded
    ]


def _integer_labels(
    labels: np.ndarray, classes: tuple[str, ...] | None, kind: LabelKind, who: str
) -> tuple[tuple[str, ...], np.ndarray]:
    if kind == "index":
        last = int(labels.max())
        if classes and last >= len(classes):  # empty ones are those of numeric labels
            raise SourceError(
                f"{who}: label {last} is not in classes, which have numbers 0 to {len(classes) - 1}"
            )
        if last >= MOST_CLASSES:
            raise SourceError(
                f"{who}: label {last} is no class number, which are below {MOST_CLASSES:,}; pass"
                " label_kind='name' for ids, 'value' for numbers"
            )
        return classes or (), labels
    found, numbered = number_integers(labels)
    if not classes or classes == found:
        return found, numbered.astype(np.int32)
    if (error := missing_classes(found, classes, who)) is not None:
        raise error
    code = class_numbers(classes)
    return classes, np.array([*(code[text] for text in found), -1], np.int32)[numbered]


def _integers_among_texts(index: Index) -> set[str]:
    """Labels of the shards that have only numbers, if other shards have texts."""
    labels: set[str] = set()
    for part in _worded_parts(index, index.labels, False):
        labels |= {str(label) for label in np.unique(part).tolist() if label >= 0}
    return labels
