"""Parsers of a table's labels that are not class numbers: numbers, texts, several classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.sources.label_values import RequestedLabel
from fastfeed.sources.tables.column_types import listed
from fastfeed.sources.tables.columns import (
    Codes,
    ColumnArrays,
    ColumnParser,
    ColumnPart,
    LabelColumn,
    RowLocator,
    TextLists,
    without_null,
)
from fastfeed.sources.tables.string_column import StringColumn, in_one_blob


def label_parser(
    label: RequestedLabel, where: RowLocator, classes: Sequence[str] = ()
) -> ColumnParser:
    """The parser of the columns of a label; integers count `classes` if there are any."""
    if label.is_class:
        return LabelColumn(label.names, where, "index" if classes else label.kind)
    if label.kind == "text":
        return TextLabels(label.names, where)
    if label.kind == "multi" and label.several:
        return FlagLabels(label.names, where)
    if label.kind == "multi":
        return NameLabels(label.names, where, classes)
    return NumberLabels(label.names, where, label.several)


class NumberLabels(ColumnParser):
    """`label_numbers`: float32 (n, ...), NaN for missing ones."""

    _NEEDED = "numbers that float32 can hold, or lists of these, all of one length"

    def __init__(self, names: Sequence[str], where: RowLocator, several: bool = False) -> None:
        super().__init__(names, where)
        self._several = several
        self._shape: tuple[int, ...] | None = () if several else None  # of one label

    def _take(self, name: str, part: ColumnPart, first: int) -> None:
        missing = part.missing()
        if bool(np.all(missing)):
            self._parts[name].append(np.full(len(part), np.nan, np.float32))
            return
        if isinstance(part.values, StringColumn) and not part.typed:
            part = _parsed_lists(part, part.values.tolist())
        floats = self._floats(name, part, first, self._NEEDED)
        with np.errstate(over="ignore"):
            values = floats.astype(np.float32)
        if self._shape is None:
            self._shape = values.shape[1:]
        if values.shape[1:] != self._shape:
            needed = f"lists of {self._shape[0]} as above" if self._shape else "one number"
            raise self._wrong_part(part, first, name, needed)
        bad = np.any(np.isinf(values).reshape(len(values), -1), axis=1)
        if bad.any():
            row = int(np.argmax(bad))
            raise self._wrong(first + row, name, self._NEEDED, floats[row].tolist())
        self._parts[name].append(values)

    def arrays(self) -> ColumnArrays:
        shape = self._shape or ()
        columns = []
        for parts in self._parts.values():
            whole = [
                part
                if part.shape[1:] == shape
                else np.full((len(part), *shape), np.nan, np.float32)
                for part in parts
            ]
            columns.append(np.concatenate(whole))
        numbers = np.stack(columns, axis=1) if self._several else columns[0]
        if bool(np.isnan(numbers.reshape(len(numbers), -1)).any(axis=1).all()):
            raise self._unlabeled()
        return {"label_numbers": [numbers]}


def _parsed_lists(part: ColumnPart, texts: list[str]) -> ColumnPart:
    """Lists of numbers of one length that are written as JSON; the part itself if it has others."""
    if not any(text.startswith("[") for text in texts):
        return part
    try:
        rows = [json.loads(text) if text else None for text in texts]
        empty = [np.nan] * len(next(filter(None, rows)))
        values = np.array([empty if row is None else row for row in rows], np.float64)
    except (ValueError, TypeError, StopIteration, RecursionError):
        return part
    return ColumnPart(values, part.null)


class TextLabels(ColumnParser):
    """`label_blob` and `label_ends`: texts in UTF-8, empty for missing ones."""

    def _take(self, name: str, part: ColumnPart, first: int) -> None:
        missing = part.missing()
        if not isinstance(part.values, StringColumn) and not bool(np.all(missing)):
            raise self._wrong_part(part, first, name, "texts")
        texts = without_null(part)
        self._check_utf8(name, texts, first)
        self._parts[name].append(texts)

    def arrays(self) -> ColumnArrays:
        blobs, ends = in_one_blob(self._parts[self.names[0]])
        if not any(map(len, blobs)):
            raise self._unlabeled()
        return {"label_blob": blobs, "label_ends": ends}


class NameLabels(ColumnParser):
    """`label_codes`, which count `texts`, and `label_ends`; -1 alone for missing ones."""

    coded = True
    _NEEDED = 'lists of names (in CSV as JSON, ["cat", "dog"], or as cat;dog)'

    def __init__(
        self, names: Sequence[str], where: RowLocator, classes: Sequence[str] = ()
    ) -> None:
        super().__init__(names, where)
        # of names; of integers that count classes
        self._code = {str(number): number for number in range(len(classes))}
        self._classes = len(classes)
        self._codes: list[np.ndarray] = []
        self._counts: list[np.ndarray] = []

    def _take(self, name: str, part: ColumnPart, first: int) -> None:
        missing = part.missing()
        if bool(np.all(missing)):
            self._append(np.full(len(part), -1), np.ones(len(part), np.int64))
            return
        values = part.values
        if isinstance(values, TextLists):
            table = self._numbers(values.items.texts)
            codes = table[values.items.codes]
            counts = values.counts
        elif isinstance(values, Codes) and not part.typed:
            lists = [self._numbers(_names_in(text)) for text in values.texts]
            sizes = np.array([len(own) for own in lists])
            codes = np.concatenate([lists[code] for code in values.codes.tolist()])
            counts = sizes[values.codes]
        else:
            codes = counts = np.empty(0, np.int64)
        if len(counts) < len(part) or bool(np.any(codes < -1)):
            wrong = np.repeat(np.arange(len(counts)), counts)[codes < -1]
            row = int(wrong[0]) if len(wrong) else int(np.argmin(missing))
            raise self._wrong(first + row, name, self._NEEDED, repr(part[row]))
        owners = np.repeat(np.arange(len(part)), counts)
        codes = codes[~missing[owners]]
        counts = np.where(missing, 1, counts)
        starts = np.cumsum(counts) - counts
        whole = np.full(counts.sum(), -1)
        whole[np.isin(np.arange(len(whole)), starts[missing], invert=True)] = codes
        self._append(whole, counts)

    def _append(self, codes: np.ndarray, counts: np.ndarray) -> None:
        self._codes.append(codes.astype(np.int32))
        self._counts.append(counts)

    def _numbers(self, names: Sequence[Any]) -> np.ndarray:
        """The number of each name; -2 for what is none."""
        codes = [
            self._code.setdefault(name, len(self._code))
            if isinstance(name, str) and name and name.isprintable()
            else -2
            for name in names
        ]
        return np.array(codes, np.int64)

    def arrays(self) -> ColumnArrays:
        names = tuple(self._code)
        if not self._classes:
            self.texts = names
        elif len(names) > self._classes:
            raise SourceError(
                f"Table: column {self.names[0]!r} of {self.where.uris[0]} has a class"
                f" {names[self._classes]}, but there are {self._classes} classes"
            )
        codes = np.concatenate(self._codes)
        ends = np.cumsum(np.concatenate(self._counts))
        if len(codes) == len(ends) and bool(np.all(codes < 0)):
            raise self._unlabeled()
        return {"label_codes": [codes], "label_ends": [ends]}


def _names_in(text: str) -> list[Any]:
    """The names in a list written as text; a list of None for what is none."""
    try:
        value = listed(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, list):
        return [None]
    return [str(item) if type(item) is int else item for item in value]


class FlagLabels(ColumnParser):
    """As `NameLabels`, from columns of 0 and 1, whose names are the classes."""

    _NEEDED = "0 or 1"

    def __init__(self, names: Sequence[str], where: RowLocator) -> None:
        super().__init__(names, where)
        self.texts = self.names

    def _take(self, name: str, part: ColumnPart, first: int) -> None:
        values = self._floats(name, part, first, self._NEEDED)
        wrong = ~(np.isnan(values) | (values == 0) | (values == 1))
        if values.ndim > 1 or wrong.any():
            row = int(np.argmax(wrong)) if values.ndim == 1 else 0
            raise self._wrong(first + row, name, self._NEEDED, part[row])
        self._parts[name].append(values.astype(np.float32))

    def arrays(self) -> ColumnArrays:
        flags = np.stack([np.concatenate(parts) for parts in self._parts.values()], axis=1)
        missing = np.any(np.isnan(flags), axis=1)
        if missing.all():
            raise self._unlabeled()
        flags[missing] = 0
        flags[missing, 0] = 1
        rows, codes = np.nonzero(flags)
        codes[missing[rows]] = -1
        ends = np.cumsum(np.count_nonzero(flags, axis=1))
        return {"label_codes": [codes.astype(np.int32)], "label_ends": [ends]}
