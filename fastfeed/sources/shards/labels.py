"""Labels in shards: classes, which are numbered, and others, which an index has as bytes.

Labels that are names of classes are numbered like texts; labels that are indices are kept. A text
stays a text unless all labels of a source are integers as Python writes them (`canonical_integers`):
`007`, `1e5` and `+1` are names.

In bytes, an array of numbers is its dimensions (uint8), their lengths (uint32 each), its values
(float32), all little endian; a list of names each with a zero byte after it; a text UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
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
    renumbering,
)
from fastfeed.sources.label_values import (
    MOST_CLASSES,
    LabelArray,
    LabelKind,
    LabelValues,
    RequestedLabel,
    Texts,
    number_lists,
)
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
    table = renumbering(index.texts, names)
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
    return classes, renumbering(found, classes)[numbered]


def _integers_among_texts(index: Index) -> set[str]:
    """Labels of the shards that have only numbers, if other shards have texts."""
    labels: set[str] = set()
    for part in _worded_parts(index, index.labels, False):
        labels |= {str(label) for label in np.unique(part).tolist() if label >= 0}
    return labels


LARGEST_LABEL = 1 << 20  # bytes; more is damage
_LARGE = 3e38  # about the largest float32
_DIMENSIONS = 4  # of an array, at most
_ROWS = 1 << 16  # of labels that are unpacked at once


def pack_label(label: RequestedLabel, values: Sequence[Any]) -> bytes:
    """Pack the values of a sample, one per name of the label. ValueError if they do not fit."""
    if label.kind == "text":
        if not isinstance(values[0], str) or not values[0]:
            raise ValueError(f"got {_shown(values[0])}, must be a text")
        return values[0].encode()
    if label.kind == "value":
        return _packed_numbers(list(map(number_in, values)) if label.several else values[0])
    if not label.several:
        return _packed_names(values[0])
    flags = [number_in(value) for value in values]
    if not set(flags) <= {0, 1}:
        raise ValueError(f"got {_shown(values)}, must be 0 or 1 for each class")
    chosen = zip(class_columns(label), flags, strict=True)
    return _packed_names([name for name, flag in chosen if flag])


def json_field(value: Any, field: str) -> Any:
    """The value at `a.b` of a JSON object; the value itself for "". ValueError."""
    for name in field.split(".") if field else ():
        if not isinstance(value, dict) or name not in value:
            raise ValueError(f"no field {name!r} of {field!r}")
        value = value[name]
    return value


def label_fields(label: RequestedLabel) -> list[tuple[str, str]]:
    """Names of columns, and the field of JSON of each: "meta:a.b"; "" for the whole value."""
    if label.is_class:
        return [(name, "") for name in label.names]
    return [(name.partition(":")[0], name.partition(":")[2]) for name in label.names]


def class_columns(label: RequestedLabel) -> tuple[str, ...]:
    """Names of the classes that several columns of 0 and 1 stand for: "json:of.cat" is "cat"."""
    parts = [name.partition(":") for name in label.names]
    return tuple(field.rpartition(".")[2] if colon else name for name, colon, field in parts)


def number_in(value: Any) -> float:
    """The one number that a value is. ValueError."""
    array = _numbers_in(value)
    if array.ndim:
        raise ValueError(f"got {_shown(value)}, must be one number")
    return float(array)


def _numbers_in(value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # lists of several lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf" or array.ndim > _DIMENSIONS or not array.size:
        raise ValueError(f"got {_shown(value)}, must be a number, or a list or array of numbers")
    with np.errstate(over="ignore"):
        numbers = array.astype("<f4")
    if not np.isfinite(numbers).all():
        raise ValueError(f"got {_shown(value)}, must be finite as float32")
    return numbers


def _packed_numbers(value: Any) -> bytes:
    if isinstance(value, (int, float)) and abs(value) < _LARGE:  # ten times as fast as an array
        return struct.pack("<Bf", 0, value)
    array = _numbers_in(value)
    return struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape) + array.tobytes()


def _packed_names(value: Any) -> bytes:
    names = [str(x) if type(x) is int else x for x in value] if isinstance(value, list) else [None]
    if not all(isinstance(name, str) and name.isprintable() and name for name in names):
        raise ValueError(f"got {_shown(value)}, must be a list of names")
    return "".join(f"{name}\0" for name in dict.fromkeys(names)).encode()


def _shown(value: Any) -> str:
    return printable(repr(value), 80)


def unpack_labels(
    index: Index, label: RequestedLabel, requested: tuple[str, ...] | None, who: str
) -> tuple[tuple[str, ...], np.ndarray, LabelValues, str]:
    """Classes; -1 for samples without a label, else not; the labels; a note, "" for none."""
    ends = np.cumsum(np.maximum(index.labels, 0), dtype=np.int64)
    if label.kind == "text":
        return (), index.labels, Texts(index.values, ends), ""
    if label.kind == "multi":
        names, codes, ends = _names(index, ends)
        own = class_columns(label) if label.several and requested is None else requested
        classes, lists = number_lists(names, codes, ends, own, who)
        return classes, index.labels, lists, ""
    return (), *_numbers(index, ends)


def _chunks(index: Index, ends: np.ndarray) -> Iterator[tuple[slice, bytes, np.ndarray]]:
    """Samples, the bytes of their labels, and the ends of each in these."""
    for first in range(0, len(ends), _ROWS):
        own = ends[first : first + _ROWS]
        begin = int(ends[first - 1]) if first else 0
        yield slice(first, first + len(own)), index.values[begin : int(own[-1])], own - begin


def _names(index: Index, ends: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Unique names, codes that count them, and the end of each sample's codes."""
    table: dict[str, int] = {}
    codes: list[np.ndarray] = []
    counts = np.empty(len(ends), np.int64)
    total = 0
    for rows, data, own in _chunks(index, ends):
        names = data.decode("utf-8", "replace").split("\0")[:-1]
        codes.append(np.array([table.setdefault(name, len(table)) for name in names], np.int32))
        zeros = np.flatnonzero(np.frombuffer(data, np.uint8) == 0)
        counts[rows] = np.searchsorted(zeros, own) + total
        total += len(names)
    return list(table), np.concatenate(codes), counts


def _numbers(index: Index, ends: np.ndarray) -> tuple[np.ndarray, LabelArray, str]:
    """Labels of the most frequent shape; those of others are missing."""
    sizes, counts = np.unique(index.labels[index.labels >= 0], return_counts=True)
    size = int(sizes[counts.argmax()]) if len(sizes) else 5
    first = int(np.argmax(index.labels == size))
    sample = index.values[int(ends[first]) - size : int(ends[first])] or bytes(5)
    shape = struct.unpack_from(f"<{sample[0]}I", sample, 1)
    head = 1 + 4 * len(shape)
    array = np.full((len(ends), *shape), np.nan, np.float32)
    odd = index.labels >= 0
    for rows, data, own in _chunks(index, ends):
        fits = np.flatnonzero(index.labels[rows] == size)
        packed = np.frombuffer(data, np.uint8)[(own[fits] - size)[:, None] + np.arange(size)]
        same = (packed[:, :head] == np.frombuffer(sample[:head], np.uint8)).all(axis=1)
        fits = fits[same] + rows.start
        numbers = np.ascontiguousarray(packed[same, head:]).view("<f4")
        array[fits] = numbers.reshape(-1, *shape)
        odd[fits] = False
    if not odd.any():
        return index.labels, LabelArray(array), ""
    i = int(odd.argmax())
    note = (
        f"{np.count_nonzero(odd)} labels have another shape than {list(shape)}, the first is that"
        f" of {index.name(i)}"
    )
    return np.where(odd, -1, index.labels), LabelArray(array), note
