"""Parsers of a table's columns of images and labels.

Parts of columns come in, in the order of the rows; arrays come out, by the names under which
`Table` looks for them. What else a table says is in `annotations.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.printable import printable
from fastfeed.sources.class_names import class_names, integers_in, renumbering
from fastfeed.sources.label_values import MOST_CLASSES, LabelKind
from fastfeed.sources.shards.labels import number_integers
from fastfeed.sources.tables.column_types import ColumnType
from fastfeed.sources.tables.inline_images import has_inline
from fastfeed.sources.tables.string_column import StringColumn, fractions, in_one_blob

ColumnArrays = dict[str, list[np.ndarray]]


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """Strings of which there are few: row i is `texts[codes[i]]`."""

    codes: np.ndarray  # integers (n,); any where the row is null
    texts: Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class TextLists:
    """Lists of strings of which there are few: those of one row after those of another."""

    items: Codes
    counts: np.ndarray  # int64 (n,): of each row; 0 where it is null

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPart:
    """Some rows of a column."""

    # numbers and bools: (n,), or (n, k) for lists
    values: np.ndarray | StringColumn | Codes | TextLists
    null: np.ndarray | None = None  # bool (n,): there is no value; None: all are there
    typed: bool = True  # False: what is written as a text may be a number (CSV)
    # of values that are kept as texts, by `column_types.as_text`; None: they are as `values` are
    kind: ColumnType | None = None
    refusal: str = ""  # the error for parsers that take no such values

    def __len__(self) -> int:
        return len(self.values.codes if isinstance(self.values, Codes) else self.values)

    @property
    def bytes(self) -> int:
        """Memory that the values take."""
        if isinstance(self.values, StringColumn):
            return self.values.blob.nbytes + self.values.ends.nbytes
        values = self.values.items if isinstance(self.values, TextLists) else self.values
        return values.codes.nbytes if isinstance(values, Codes) else values.nbytes

    def __getitem__(self, row: int) -> Any:
        """The value of one row, for messages."""
        values = self.values
        if isinstance(values, Codes):
            return values.texts[int(values.codes[row])]
        if isinstance(values, TextLists):
            stop = int(values.counts[: row + 1].sum())
            codes = values.items.codes[stop - int(values.counts[row]) : stop]
            return [values.items.texts[code] for code in codes.tolist()]
        return values[row].tolist() if isinstance(values, np.ndarray) else values[row]

    def missing(self) -> np.ndarray:
        """Mask of missing values: bool (n,)."""
        return np.zeros(len(self), bool) if self.null is None else self.null


class RowLocator:
    """Location of rows, such as `train.csv, row 7`, counted from 0."""

    def __init__(self, uris: Sequence[str] = (), rows: Sequence[int] = ()) -> None:
        self.uris = list(uris)
        self._firsts = [0, *accumulate(rows)][: len(rows)]

    def begin(self, uri: str, first: int) -> None:
        """Begin the rows of another file."""
        self.uris.append(uri)
        self._firsts.append(first)

    def file(self, i: int) -> int:
        """The number of the file that has row i of the table."""
        return bisect_right(self._firsts, i) - 1

    def files(self, ids: np.ndarray) -> np.ndarray:
        """The file of each row: int64 (n,); -1 for a row of -1."""
        return np.searchsorted(self._firsts, ids, side="right") - 1

    def bounds(self, rows: int) -> np.ndarray:
        """First row of each file, and the number of rows last: int64 (files + 1,)."""
        return np.array([*self._firsts, rows], np.int64)

    def row(self, i: int) -> int:
        """The number that row i of the table has in its file."""
        return i - self._firsts[self.file(i)]

    def uri(self, i: int) -> str:
        """File and row as an address: `train.parquet#7`."""
        return f"{self.uris[self.file(i)]}#{self.row(i)}"

    def __call__(self, i: int) -> str:
        return f"{self.uris[self.file(i)]}, row {self.row(i)}"


class ColumnParser(ABC):
    """Parses a column, or four."""

    coded = False  # texts are wanted as Codes
    takes_any_type = False
    # some values are addresses, or images in base64, rather than local files
    urls = False
    texts: tuple[str, ...] | None = None  # names of classes that its arrays count

    def __init__(self, names: Sequence[str], where: RowLocator) -> None:
        self.names = tuple(names)
        self.where = where
        self.rows = dict.fromkeys(self.names, 0)  # added so far
        self._parts: dict[str, list[Any]] = {name: [] for name in self.names}  # as `_take` keeps

    def add(self, name: str, part: ColumnPart) -> None:
        """Add the next rows of a column; SourceError for values that do not fit it."""
        if part.refusal and not self.takes_any_type:
            raise SourceError(part.refusal)
        self._take(name, part, self.rows[name])
        self.rows[name] += len(part)

    @abstractmethod
    def _take(self, name: str, part: ColumnPart, first: int) -> None: ...

    @abstractmethod
    def arrays(self) -> ColumnArrays:
        """Return the arrays of all rows."""

    def _unlabeled(self) -> SourceError:
        names = ", ".join(map(repr, self.names))
        return SourceError(f"Table: no row of {self.where.uris[0]} has a label in column {names}")

    def _wrong(
        self, row: int, name: str, needed: str, value: object, hint: str = ""
    ) -> SourceError:
        column = printable(repr(name))
        got = printable(value)
        return SourceError(
            f"Table: {self.where(row)}: column {column} must hold {needed}, got {got}{hint}"
        )

    def _wrong_part(
        self, part: ColumnPart, first: int, name: str, needed: str, hint: str = ""
    ) -> SourceError:
        """The error for a part of another kind, with its first value."""
        row = int(np.argmin(part.missing()))
        return self._wrong(first + row, name, needed, repr(part[row]), hint)

    def _check_utf8(self, name: str, texts: StringColumn, first: int) -> None:
        try:
            texts.blob.tobytes().decode()
        except UnicodeDecodeError as error:
            row = int(np.searchsorted(texts.ends, error.start, side="right"))
            raise self._wrong(first + row, name, "texts in UTF-8", repr(texts[row])) from error

    def _floats(self, name: str, part: ColumnPart, first: int, needed: str) -> np.ndarray:
        """Numbers as float64 (n,), or (n, k) for lists; NaN for missing values."""
        values = part.values
        if isinstance(values, StringColumn) and not part.typed:
            texts = values.tolist()
            try:
                values = np.array([float(text) if text else np.nan for text in texts], np.float64)
            except ValueError:
                row = next(i for i, text in enumerate(texts) if text and not _is_number(text))
                raise self._wrong(first + row, name, needed, repr(texts[row])) from None
        if not isinstance(values, np.ndarray):
            raise self._wrong_part(part, first, name, needed)
        floats = values.astype(np.float64)
        floats[part.missing()] = np.nan
        return floats


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class PathColumn(ColumnParser):
    """`paths`, `path_ends`, and `repeated` where a path occurs in several rows."""

    def _take(self, name: str, part: ColumnPart, first: int) -> None:
        if not isinstance(part.values, StringColumn) and not bool(np.all(part.missing())):
            raise self._wrong_part(part, first, name, "paths, or images as bytes")
        texts = without_null(part)
        self.urls = self.urls or b"://" in texts.blob.tobytes() or has_inline(texts)
        self._parts[name].append(texts)

    def arrays(self) -> ColumnArrays:
        parts = self._parts[self.names[0]]
        paths, ends = in_one_blob(parts)
        every = np.concatenate([texts.hashes() for texts in parts])
        ordered = np.sort(every)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        arrays: ColumnArrays = {"paths": paths, "path_ends": ends}
        return arrays | {"repeated": [np.isin(every, repeated)]} if len(repeated) else arrays


class LabelColumn(ColumnParser):
    """Labels, -1 for none; names of classes in `texts` are numbered in their order."""

    coded = True
    _NEEDED = "whole numbers >= 0 (-1 for none), or texts"
    _NO_CLASS = (
        "; a number that is not whole is not a class: pass label_kind='value' to have numbers as"
        " labels, round it, or write texts such as 'age 1.5'"
    )

    def __init__(self, names: Sequence[str], where: RowLocator, kind: LabelKind) -> None:
        super().__init__(names, where)
        self._kind = kind  # of integers
        self._code: dict[str, int] = {}
        self._textual: bool | None = None  # None: not known yet
        self._typed = True

    def _take(self, name: str, part: ColumnPart, first: int) -> None:
        missing = part.missing()
        values = part.values
        if bool(np.all(missing)):
            self._parts[name].append(np.full(len(part), -1, np.int64))
            return
        textual = isinstance(values, Codes)
        if self._textual not in (None, textual):
            raise self._wrong_part(
                part, first, name, f"{'numbers' if textual else 'texts'} as above"
            )
        self._textual = textual
        self._typed = part.typed
        if isinstance(values, Codes):
            code = [
                self._code.setdefault(text, len(self._code)) if text else -1
                for text in values.texts
            ]
            labels = np.array(code, np.int64)[np.where(missing, 0, values.codes)]
        else:
            labels, missing = self._numbers(name, part, missing, first)
        self._parts[name].append(np.where(missing, -1, labels))

    def _numbers(
        self, name: str, part: ColumnPart, missing: np.ndarray, first: int
    ) -> tuple[np.ndarray, np.ndarray]:
        values = part.values
        if not isinstance(values, np.ndarray) or values.ndim != 1:
            hint = "; pass label_kind='multi' for several classes of a sample"
            raise self._wrong_part(part, first, name, self._NEEDED, hint)
        if values.dtype.kind == "f":
            safe = np.where(missing, 0, values.astype(np.float64))
            bad = np.isnan(safe) | (safe < -1) | (safe >= 2.0**63) | (safe != np.floor(safe))
        else:
            safe = np.where(missing, np.zeros(1, values.dtype), values)
            if values.dtype.kind != "b":
                bad = (safe < -1) | (safe >= 1 << 63)
            else:
                bad = np.zeros(len(safe), bool)
        if bad.any():
            row = int(np.argmax(bad))
            is_fraction = np.isfinite(safe[row]) and safe[row] != np.floor(safe[row])
            hint = self._NO_CLASS if is_fraction else ""
            raise self._wrong(first + row, name, self._NEEDED, safe[row], hint)
        return safe.astype(np.int64), missing

    def arrays(self) -> ColumnArrays:
        labels = np.concatenate(self._parts[self.names[0]])
        if self._textual:
            labels = self._number_texts(labels)
        if self.texts is None and self._kind == "name":
            self.texts, labels = number_integers(labels)
        if bool(np.all(labels < 0)):
            raise self._unlabeled()
        if int(labels.max()) >= MOST_CLASSES:
            row = int(labels.argmax())
            hint = "; pass label_kind='name' for ids, 'value' for numbers"
            needed = f"class numbers below {MOST_CLASSES:,}"
            raise self._wrong(row, self.names[0], needed, labels[row], hint)
        return {"labels": [labels.astype(np.min_scalar_type(-int(labels.max()) - 1))]}

    def _number_texts(self, labels: np.ndarray) -> np.ndarray:
        texts = list(self._code)
        numbers = integers_in(texts, self._kind == "index")
        if numbers is None and not self._typed:
            numbers = self._whole_fractions(texts, labels)
        if numbers is not None:
            table = np.array([*numbers, -1], np.int64)[labels]
            if bool(np.any(table < -1)):
                row = int(np.argmax(table < -1))
                raise self._wrong(row, self.names[0], self._NEEDED, table[row])
            return table
        self.texts = class_names(texts)
        return renumbering(texts, self.texts)[labels]

    def _whole_fractions(self, texts: list[str], labels: np.ndarray) -> list[int] | None:
        """Integers written `3.0`, as Pandas does in columns with gaps.

        SourceError if others are among them.
        """
        if (
            not any("." in text or text.lower() == "nan" for text in texts)
            or (values := fractions(texts)) is None
        ):
            return None
        if all(map(math.isnan, values)):
            return None
        for code, value in enumerate(values):
            if not (value % 1 == 0 and -(2.0**63) <= value < 2.0**63):
                row = int(np.argmax(labels == code))
                hint = self._NO_CLASS if math.isfinite(value) and value % 1 else ""
                raise self._wrong(row, self.names[0], self._NEEDED, repr(texts[code]), hint)
        return [int(value) for value in values]


def without_null(part: ColumnPart) -> StringColumn:
    """Texts of a part, empty for null rows.

    One without any value may not know that it holds texts.
    """
    if not isinstance(part.values, StringColumn):
        return StringColumn.of([""] * len(part))
    if part.null is None:
        return part.values
    lengths = part.values.lengths()
    blob = part.values.blob[np.repeat(~part.null, lengths)]  # there may be bytes behind a null
    return StringColumn(blob, np.cumsum(np.where(part.null, 0, lengths)))
