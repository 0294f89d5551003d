"""Labels that are not class numbers, as bytes in an index of shards.

An array of numbers: its dimensions (uint8), their lengths (uint32 each), its values (float32), all
little endian. A list of names: each with a zero byte after it. A text: UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fastfeed.printable import printable
from fastfeed.sources.label_values import (
    LabelValues,
    Numbers,
    RequestedLabel,
    Texts,
    number_lists,
)
from fastfeed.sources.shards.index import Index

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


def _numbers(index: Index, ends: np.ndarray) -> tuple[np.ndarray, Numbers, str]:
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
        return index.labels, Numbers(array), ""
    i = int(odd.argmax())
    note = (
        f"{np.count_nonzero(odd)} labels have another shape than {list(shape)}, the first is that"
        f" of {index.name(i)}"
    )
    return np.where(odd, -1, index.labels), Numbers(array), note
