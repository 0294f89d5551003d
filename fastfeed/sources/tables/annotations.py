"""Columns other than image and label: weights, boxes, and extra columns of the batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastfeed.printable import printable
from fastfeed.sources.tables.column_types import (
    ColumnType,
    TypeConflict,
    as_text,
    merged,
    merged_all,
    settled,
    words,
)
from fastfeed.sources.tables.columns import (
    Codes,
    ColumnArrays,
    ColumnParser,
    ColumnPart,
    RowLocator,
    TextLists,
    without_null,
)
from fastfeed.sources.tables.string_column import StringColumn, in_one_blob, numbers

_EXACT = 1 << 53  # integers up to this are themselves as float64
_AT_ONCE = 1 << 18  # rows checked together: they fit into the CPU's caches


class WeightColumn(ColumnParser):
    """Parser of sample weights: float32, finite, >= 0."""

    def _take(self, name: str, part: ColumnPart, first: int) -> None:
        values = self._floats(name, part, first, "numbers >= 0")
        with np.errstate(over="ignore"):
            weights = values.astype(np.float32)
        if weights.ndim != 1:
            raise self._wrong(first, name, "numbers >= 0", f"lists of {weights.shape[1]}")
        bad = ~(np.isfinite(weights) & (weights >= 0))
        if bad.any():
            row = int(np.argmax(bad))
            raise self._wrong(
                first + row, name, "numbers >= 0", "nothing" if part.missing()[row] else values[row]
            )
        self._parts[name].append(weights)

    def arrays(self) -> ColumnArrays:
        return {"weights": self._parts[self.names[0]]}


class BoxColumn(ColumnParser):
    """Boxes as top, left, height, width, from x, y, width, height; NaN for none."""

    _NEEDED = "[x, y, width, height] in pixels, width and height above 0"

    def _take(self, name: str, part: ColumnPart, first: int) -> None:
        if len(self.names) == 4:
            values = self._floats(name, part, first, "numbers")
            if values.ndim != 1:
                raise self._wrong(first, name, "numbers", f"lists of {values.shape[1]}")
        else:
            values = self._lists(name, part, first)
        self._parts[name].append(_compact(values))

    def _lists(self, name: str, part: ColumnPart, first: int) -> np.ndarray:
        values = part.values
        missing = part.missing()
        if isinstance(values, StringColumn) and not part.typed:
            rows = [self._list(name, text, first + i) for i, text in enumerate(values.tolist())]
            return np.array(rows, np.float64).reshape(-1, 4)
        if bool(np.all(missing)):
            return np.full((len(part), 4), np.nan)
        if not isinstance(values, np.ndarray) or values.shape[1:] != (4,):
            row = int(np.argmin(missing))
            raise self._wrong(first + row, name, self._NEEDED, part[row])
        return self._floats(name, part, first, self._NEEDED)

    def _list(self, name: str, text: str, row: int) -> Any:
        try:
            box = [float(x) for x in json.loads(text)] if text else [np.nan] * 4
        except (ValueError, TypeError, RecursionError):
            box = []
        if len(box) != 4:
            raise self._wrong(row, name, self._NEEDED, repr(text))
        return box

    def arrays(self) -> ColumnArrays:
        columns = [np.concatenate(parts) for parts in self._parts.values()]
        boxes = []
        for first in range(0, len(columns[0]), _AT_ONCE):
            rows = [column[first : first + _AT_ONCE] for column in columns]
            boxes.append(
                self._checked(np.stack(rows, axis=1) if len(rows) == 4 else rows[0], first)
            )
        return {"boxes": [np.concatenate(boxes)]}

    def _checked(self, boxes: np.ndarray, first: int) -> np.ndarray:
        absent = np.all(np.isnan(boxes), axis=1)
        bad = ~absent & ~(
            np.all(np.isfinite(boxes), axis=1) & (boxes[:, 2] > 0) & (boxes[:, 3] > 0)
        )
        if bad.any():
            row = int(np.argmax(bad))
            raise self._wrong(first + row, ", ".join(self.names), self._NEEDED, boxes[row].tolist())
        return boxes[:, [1, 0, 3, 2]]


def _compact(values: np.ndarray) -> np.ndarray:
    """Convert to float32 if that changes nothing."""
    with np.errstate(over="ignore"):
        small = values.astype(np.float32)
    return small if bool(np.all((small == values) | np.isnan(values))) else values


class ExtraColumn(ColumnParser):
    """`carried NAME`, and for texts `ends NAME`; NaN or an empty text for missing values.

    Values that are not numbers, bools, texts, or lists of numbers of one length are kept as texts
    (`column_types.as_text`).
    """

    takes_any_type = True

    def __init__(self, names: Sequence[str], where: RowLocator) -> None:
        super().__init__(names, where)
        self._first_valid: ColumnPart | None = None  # the first with a value
        self._kind: ColumnType = "null"

    def _take(self, name: str, part: ColumnPart, first: int) -> None:
        if isinstance(part.values, TextLists):
            needed = "numbers, bools, texts or lists of numbers where it is the label, too"
            raise self._wrong_part(part, first, name, needed)
        if isinstance(part.values, Codes):  # the column is also the label
            texts = part.values.texts
            codes = part.values.codes.tolist()
            part = replace(part, values=StringColumn.of([str(texts[code] or "") for code in codes]))
        if isinstance(part.values, StringColumn) and part.kind != "bytes":
            self._check_utf8(name, part.values, first)
        is_empty = bool(np.all(part.missing()))
        if not is_empty:
            self._first_valid = self._first_valid or part
        if not is_empty or part.kind is not None:
            try:
                self._kind = merged(self._kind, _kind(part))
            except TypeConflict:
                if is_empty or self._first_valid is None:
                    row = int(np.argmin(part.missing()))
                    needed = f"{words(self._kind)} as above"
                    raise self._wrong(first + row, name, needed, words(_kind(part))) from None
                before = int(np.argmin(self._first_valid.missing()))
                shown = printable(repr(self._first_valid[before]))
                needed = f"what it holds above, such as {shown}"
                raise self._wrong_part(part, first, name, needed) from None
        self._parts[name].append(part)

    @property
    def kinds(self) -> dict[str, ColumnType]:
        """The type of the column, by its name, once `arrays` were asked for."""
        return {self.names[0]: settled(self._kind)}

    def arrays(self) -> ColumnArrays:
        name = self.names[0]
        parts: list[ColumnPart] = self._parts[name]
        untyped = [p.values for p in parts if isinstance(p.values, StringColumn) and not p.typed]
        parsed = numbers(untyped) if len(untyped) == len(parts) else None
        if parsed is not None and not _lacks_room(parsed, parts):
            # else they stay texts, which have room for a gap
            parts = [
                ColumnPart(values, part.null) for values, part in zip(parsed, parts, strict=True)
            ]
            self._kind = merged_all(_kind(part) for part in parts)
        non_null = [p for p in parts if not bool(np.all(p.missing()))]
        if not non_null:
            return {f"carried {name}": [np.full(self.rows[name], np.nan)]}
        if any(p.kind is not None for p in non_null) or _fits_no_array(parts, non_null):
            parts = [_as_texts(part, self._kind) for part in parts]
            return _texts(parts, name)
        if isinstance(non_null[0].values, StringColumn):
            return _texts(parts, name)
        return {f"carried {name}": [_values(parts, non_null)]}


def _values(parts: list[ColumnPart], non_null: list[ColumnPart]) -> np.ndarray:
    """Numbers, or lists of one length; fractions where some are missing, which are NaN."""
    arrays = [p.values for p in non_null if isinstance(p.values, np.ndarray)]
    kind = np.result_type(*arrays)
    missing = np.concatenate([p.missing() for p in parts])
    if missing.any() and kind.kind != "f":
        kind = np.dtype(np.float64)
    out = np.empty((len(missing), *arrays[0].shape[1:]), kind)
    at = 0
    for part in parts:
        if isinstance(part.values, np.ndarray) and part.values.shape[1:] == out.shape[1:]:
            out[at : at + len(part)] = part.values
        at += len(part)
    if missing.any():
        out[missing] = np.nan
    return out


def _fits_no_array(parts: list[ColumnPart], non_null: list[ColumnPart]) -> bool:
    """True for lists of several lengths, and for large integers with gaps, which would be NaN."""
    arrays = [p.values for p in non_null if isinstance(p.values, np.ndarray)]
    if len({array.shape[1:] for array in arrays}) > 1:
        return True
    integers = bool(arrays) and all(array.dtype.kind in "iu" for array in arrays)
    has_gaps = any(bool(np.any(p.missing())) for p in parts)
    return (
        integers
        and has_gaps
        and any(int(a.max()) > _EXACT or int(a.min()) < -_EXACT for a in arrays if a.size)
    )


def _as_texts(part: ColumnPart, kind: ColumnType) -> ColumnPart:
    """A part whose values are texts, as `column_types.from_text` reads them."""
    if isinstance(part.values, StringColumn) or not isinstance(part.values, np.ndarray):
        return part
    texts = [
        b"" if missing else as_text(kind, value)
        for value, missing in zip(part.values.tolist(), part.missing().tolist(), strict=True)
    ]
    return ColumnPart(StringColumn.of_bytes(texts), part.null)


def _lacks_room(parsed: Sequence[np.ndarray], parts: Sequence[ColumnPart]) -> bool:
    """Return True for bools or large integers with gaps, which would be NaN."""
    kind = parsed[0].dtype.kind
    large = kind == "b" or (
        kind == "i" and any(bool(np.any(np.abs(values) > _EXACT)) for values in parsed)
    )
    return large and any(bool(np.any(part.missing() & (part.null is not None))) for part in parts)


def _texts(parts: Sequence[ColumnPart], name: str) -> ColumnArrays:
    blobs, ends = in_one_blob([without_null(part) for part in parts])
    return {f"carried {name}": blobs, f"ends {name}": ends}


_KINDS: dict[str, ColumnType] = {"b": "bool", "i": "int", "u": "int", "f": "float"}


def _kind(part: ColumnPart) -> ColumnType:
    """The type of a part's values."""
    if part.kind is not None or not isinstance(part.values, np.ndarray):
        return part.kind or "text"
    kind = _KINDS[part.values.dtype.kind] if part.values.size else "null"  # of empty lists
    for _ in part.values.shape[1:]:
        kind = ["list", kind]
    return kind
