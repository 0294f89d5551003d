"""Labels that are not class numbers: numbers, several classes of one sample, texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.class_names import (
    DIGITS,
    canonical_integers,
    class_names,
    missing_classes,
    renumbering,
)
from fastfeed.spec import CLASS_NUMBER, LabelSpec

LabelKind = Literal["name", "index", "value", "multi", "text", "none"]

# upper bound of class numbers: trainers make each a row of this length, and ids are no classes
MOST_CLASSES = 1 << 24
_KINDS = {
    "name": "integers are names of classes",
    "index": "they count the classes from 0",
    "value": "numbers",
    "multi": "several classes of one sample",
    "text": "texts",
    "none": "no labels",
}


@dataclass(frozen=True, slots=True)
class RequestedLabel:
    """Names under which labels are found, and their kind."""

    names: tuple[str, ...] = ()  # of columns, features, or members; () for no labels
    kind: LabelKind = "name"
    several: bool = False  # one number per name; else one name has the whole label

    @classmethod
    def of(cls, label: Any, kind: Any, who: str) -> RequestedLabel:
        """Parse the arguments `label` and `label_kind`; None for no labels. ConfigError."""
        check_label_kind(kind, who)
        if kind in ("value", "multi", "text") and label is None:
            raise ConfigError(
                f"{who}: label_kind={kind!r} needs the name of a label, got label=None"
            )
        if label is None or kind == "none":
            return UNLABELED
        if isinstance(label, str):
            return cls((label,), kind)
        names = tuple(label) if isinstance(label, Sequence) else ()
        if not names or len(set(names)) < len(names) or not all(isinstance(n, str) for n in names):
            raise ConfigError.of(
                f"{who}: label", "a name, several names, each once, or None", label
            )
        if kind not in ("value", "multi"):
            raise ConfigError(
                f"{who}: several labels are numbers or classes of a sample, got {label!r} with"
                f" label_kind={kind!r}; pass label_kind='value', or 'multi' for columns of 0 and 1"
            )
        return cls(names, kind, True)

    @property
    def argument(self) -> str | tuple[str, ...] | None:
        """The names as they are passed to a source."""
        return self.names if self.several else next(iter(self.names), None)

    @property
    def is_class(self) -> bool:
        """True if a label is the name or the number of one class."""
        return self.kind in ("name", "index")

    @property
    def is_coded(self) -> bool:
        """True if labels are names of classes, each stored once."""
        return self.is_class or (self.kind == "multi" and not self.several)


UNLABELED = RequestedLabel((), "none")


def check_label_kind(kind: Any, who: str) -> None:
    """ConfigError unless it is a LabelKind or None."""
    if kind is not None and kind not in _KINDS:
        kinds = ", ".join(f"{name!r} ({meaning})" for name, meaning in _KINDS.items())
        raise ConfigError.of(f"{who}: label_kind", f"one of {kinds}", kind)


@dataclass(frozen=True, slots=True, eq=False)
class LabelArray:
    """Class numbers, -1: missing; or numbers of label_kind="value", NaN: missing."""

    array: np.ndarray  # integers (n,), or float32 (n, ...)

    @property
    def spec(self) -> LabelSpec:
        if self.array.dtype.kind != "f":
            return CLASS_NUMBER
        return LabelSpec(tuple(self.array.shape[1:]), "float32")

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Labels of some samples, as `Source.label` returns them."""
        labels = self.array[ids]
        return labels if labels.dtype.kind == "f" else labels.astype(np.int64)

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """True for samples without a label: bool (len(ids),)."""
        labels = self.array[ids]
        if labels.dtype.kind != "f":
            return labels < 0
        return np.any(np.isnan(labels.reshape(len(ids), -1)), axis=1)

    def content(self, first: int, last: int) -> Iterator[Any]:
        """Buffers with the labels [first, last), for a fingerprint."""
        yield np.ascontiguousarray(self.array[first:last]).data


@dataclass(frozen=True, slots=True, eq=False)
class MultiHot:
    """label_kind="multi": classes of each sample, as multi-hot vectors."""

    codes: np.ndarray  # integers: those of one sample after another; -1 alone: missing
    ends: np.ndarray  # int64 (n,)
    classes: int

    @property
    def spec(self) -> LabelSpec:
        return LabelSpec((self.classes,), "float32")

    def take(self, ids: np.ndarray) -> np.ndarray:
        starts, ends = _bounds(self.ends, ids)
        counts = ends - starts
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        codes = self.codes[np.repeat(starts, counts) + within]
        rows = np.repeat(np.arange(len(counts)), counts)
        out = np.zeros((len(counts), self.classes), np.float32)
        out[rows[codes >= 0], codes[codes >= 0]] = 1
        return out

    def missing(self, ids: np.ndarray) -> np.ndarray:
        starts, ends = _bounds(self.ends, ids)
        missing = ends > starts
        missing[missing] = self.codes[starts[missing]] < 0
        return missing

    def content(self, first: int, last: int) -> Iterator[Any]:
        entries, ends = _part(self.ends, first, last)
        yield ends
        yield np.ascontiguousarray(self.codes[entries]).data


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """label_kind="text": one text of each sample; empty: missing."""

    blob: Any  # UTF-8: uint8 (bytes,), or bytes, which may be read on demand
    ends: np.ndarray  # integers (n,)

    @property
    def spec(self) -> LabelSpec:
        return LabelSpec((), "str")

    def take(self, ids: np.ndarray) -> np.ndarray:
        starts, ends = _bounds(self.ends, ids)
        out = np.empty(len(ends), object)
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            out[row] = bytes(self.blob[start:end]).decode()
        return out

    def missing(self, ids: np.ndarray) -> np.ndarray:
        starts, ends = _bounds(self.ends, ids)
        return starts == ends

    def content(self, first: int, last: int) -> Iterator[Any]:
        entries, ends = _part(self.ends, first, last)
        yield ends
        yield self.blob[entries]


LabelValues = LabelArray | MultiHot | Texts  # labels of all samples of a source


def _bounds(ends: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last + 1 of the entries of some samples."""
    ids = np.asarray(ids, np.int64)
    return np.where(ids > 0, ends[ids - 1], 0), ends[ids]


def _part(ends: np.ndarray, first: int, last: int) -> tuple[slice, memoryview]:
    """The entries of samples [first, last), and the end of each from the first of them on."""
    start, stop = (int(ends[i - 1]) if i else 0 for i in (first, last))
    return slice(start, stop), (ends[first:last].astype(np.int64) - start).data


def number_lists(
    names: Sequence[str],
    codes: np.ndarray,
    ends: np.ndarray,
    requested: Sequence[str] | None,
    who: str,
) -> tuple[tuple[str, ...], MultiHot]:
    """Classes and multi-hot labels; `codes` index `names`, -1 for no class. SourceError.

    Integers index the classes if no class is called by an integer.
    """
    classes = class_names(names) if requested is None else tuple(requested)
    numbers = canonical_integers(names) or ()
    integer = next((name for name in classes if DIGITS.fullmatch(name.removeprefix("-"))), None)
    is_index = bool(numbers) and min(numbers) >= 0 and max(numbers) < len(classes)
    if is_index and integer is None:
        return classes, MultiHot(np.array([*numbers, -1], np.int32)[codes], ends, len(classes))
    if (error := missing_classes(names, classes, who)) is not None:
        if numbers and integer is not None:
            raise SourceError(
                f"{error}; class {integer!r} is called by an integer, so that integers are names"
                " here and do not count the classes from 0: write labels as names of classes"
            )
        raise error
    return classes, MultiHot(renumbering(names, classes)[codes], ends, len(classes))
