"""What labels mean: integers that are names of classes are numbered like texts, integers that are indices are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.shards.index import Index

__all__ = [
    "LabelKind",
    "check_label_kind",
    "checked_classes",
    "missing_classes",
    "number_integers",
    "number_labels",
    "resolve_kind",
]

LabelKind = Literal["name", "index"]

_SHOWN = 5  # labels in a message
_INDEX_FIELDS = ("cls", "label")  # what WebDataset, TensorFlow's scripts and MosaicML call the index of a class


def check_label_kind(kind: Any, who: str) -> None:
    """ConfigError unless it is a LabelKind or None."""
    if kind not in (None, "name", "index"):
        raise ConfigError(
            f"{who}: label_kind must be 'name' (integers are names of classes) or 'index' (they count the classes "
            f"from 0), got {kind!r}"
        )


def resolve_kind(kind: LabelKind | None, field: str | None, who: str) -> LabelKind:
    """`kind`, or what integers under this name are by convention: indices under `cls`, `label`, `image/class/label`
    and `json:label`, and names under any other, such as `landmark_id`. ConfigError for another kind."""
    check_label_kind(kind, who)
    last = (field or "").replace(":", "/").replace(".", "/").rpartition("/")[2]
    return kind or ("index" if last.lower() in _INDEX_FIELDS else "name")


def checked_classes(classes: Any, who: str) -> tuple[str, ...] | None:
    """Names of classes; integers among them as texts. ConfigError for what cannot be a list of names."""
    if classes is None:
        return None
    items = list(classes) if isinstance(classes, Iterable) and not isinstance(classes, (str, bytes)) else [None]
    are_names = all(isinstance(item, (str, int, np.integer)) and not isinstance(item, bool) for item in items)
    names = tuple(map(str, items))
    if not are_names or len(set(names)) < len(names):
        hint = f"; pass [{classes!r}]" if isinstance(classes, str) else ""
        raise ConfigError(f"{who}: classes must be a list of names, each once, got {classes!r}{hint}")
    return names


def number_integers(labels: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """The distinct integers in ascending order, as texts, and labels that count them; below 0 stays -1."""
    values = np.unique(labels[labels >= 0])
    return tuple(map(str, values.tolist())), np.where(labels < 0, -1, np.searchsorted(values, labels))


def missing_classes(labels: Sequence[str], classes: Sequence[str], who: str) -> SourceError | None:
    """The error of labels that are not in `classes`; None where all are."""
    known = set(classes)
    missing = [label for label in labels if label not in known]
    if not missing:
        return None
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    text = f"{who}: labels that are not in classes: {', '.join(missing[:_SHOWN])}{more}"
    if all(map(_is_integer, labels)) and not any(map(_is_integer, classes)):
        text += (
            "; labels are integers and classes are names: pass label_kind='index' if the integers count the classes "
            "from 0"
        )
    return SourceError(text)


def _is_integer(text: str) -> bool:
    return text.isascii() and text.isdigit()


def number_labels(
    index: Index, classes: tuple[str, ...] | None, kind: LabelKind, who: str
) -> tuple[tuple[str, ...], np.ndarray, str]:
    """Class names, labels that count them, and a note ("" for none). Texts in the shards are sorted and numbered."""
    if not any(index.has_texts):
        return *_integer_labels(index.labels, classes, kind, who), ""
    texts = sorted({*index.texts, *_integers_among_texts(index)})
    names = tuple(texts if classes is None else classes)
    if (error := missing_classes(texts, names, who)) is not None:
        raise error
    code = {name: i for i, name in enumerate(names)}
    note, numeric = "", [text for text in texts if _is_integer(text)]
    if 0 < len(numeric) < len(texts):
        other = next(text for text in texts if text not in numeric)
        note = f"labels are numbers (as {numeric[0]!r}) and texts (as {other!r}): all are taken as names"
    if all(index.has_texts) and names == index.texts:
        return names, index.labels, note
    table = np.array([code[text] for text in index.texts] + [-1], np.int32)  # -1, no label, takes the last
    labels = np.array(index.labels)
    for k, worded in enumerate(index.has_texts):
        part = labels[int(index.bounds[k]) : int(index.bounds[k + 1])]
        part[:] = table[part] if worded else [code[str(n)] if n >= 0 else -1 for n in part.tolist()]
    return names, labels, note


def _integer_labels(
    labels: np.ndarray, classes: tuple[str, ...] | None, kind: LabelKind, who: str
) -> tuple[tuple[str, ...], np.ndarray]:
    if kind == "index":
        last = int(labels.max())
        if classes and last >= len(classes):  # empty ones are those of numeric labels
            raise SourceError(f"{who}: label {last} is not in classes, which have numbers 0 to {len(classes) - 1}")
        return classes or (), labels
    found, numbered = number_integers(labels)
    if not classes or classes == found:
        return found, numbered.astype(np.int32)
    if (error := missing_classes(found, classes, who)) is not None:
        raise error
    code = {name: i for i, name in enumerate(classes)}
    return classes, np.array([*(code[text] for text in found), -1], np.int32)[numbered]


def _integers_among_texts(index: Index) -> set[str]:
    """Labels of shards in which all are numbers, where other shards have texts."""
    labels: set[str] = set()
    for k, worded in enumerate(index.has_texts):
        if not worded:
            part = index.labels[int(index.bounds[k]) : int(index.bounds[k + 1])]
            labels |= {str(label) for label in np.unique(part).tolist() if label >= 0}
    return labels
