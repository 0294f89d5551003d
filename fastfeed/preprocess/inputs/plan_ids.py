"""Labels of samples, and a source whose samples have the ids of a plan; appended images come last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.readahead import known_sizes
from fastfeed.preprocess.model.record import Label
from fastfeed.sources.base import Optionals, Source
from fastfeed.sources.class_names import class_numbers, nfc
from fastfeed.sources.derived import Derived
from fastfeed.sources.shards.extra_columns import HasExtraColumns
from fastfeed.spec import CLASS_NUMBER, LabelSpec

_AT_ONCE = 1 << 24  # numbers of multi-hot vectors


def is_multi(source: Source) -> bool:
    """True if samples have several classes: multi-hot vectors of as many numbers."""
    spec = Optionals(source).label_spec
    return bool(source.classes) and spec == LabelSpec((len(source.classes),), "float32")


def check_labels(source: Source) -> None:
    """ConfigError unless labels are the numbers of classes."""
    spec = Optionals(source).label_spec
    if spec == LabelSpec((0,), "float32"):
        raise ConfigError(
            "preprocess needs a class in at least one of the labels, got only empty lists; correct"
            " the lists, or name another label (--label)",
            field="label",
        )
    if not is_multi(source):
        spec.require_class(
            "preprocess", "open the source without a label, and with columns=[...] for these"
        )


def read_labels(source: Source, ids: Sequence[int] | np.ndarray) -> list[Label]:
    """The label of each sample."""
    ids = np.asarray(ids, np.int64)
    if is_multi(source):
        return list(_lists(source, ids))
    return [label if label >= 0 else None for label in source.label(ids).tolist()]


def _lists(source: Source, ids: np.ndarray) -> Iterator[tuple[int, ...]]:
    step = max(_AT_ONCE // len(source.classes), 1)
    for first in range(0, len(ids), step):
        for flags in source.label(ids[first : first + step]) > 0:
            yield tuple(np.flatnonzero(flags).tolist())


def label_names(label: Label, classes: Sequence[str]) -> list[str]:
    """Names of a label's classes; of a class without a name its number."""
    numbers = label if isinstance(label, tuple) else () if label is None else (label,)
    return [classes[k] if k < len(classes) else str(k) for k in numbers]


def label_codes(source: Source, ids: np.ndarray) -> tuple[np.ndarray, tuple[tuple[int, ...], ...]]:
    """Numbers of labels, equal for equal ones: int64 (n,), -1 for none; and the classes of each.

    Without several classes per sample these are () and a number is that of the class.
    """
    if not is_multi(source):
        return source.label(ids), ()
    return coded(read_labels(source, ids))


def coded(labels: Sequence[Label]) -> tuple[np.ndarray, tuple[tuple[int, ...], ...]]:
    """As `label_codes`, of lists of classes."""
    code: dict[Label, int] = {}
    codes = [code.setdefault(label, len(code)) if label else -1 for label in labels]
    return np.array(codes, np.int64), tuple(code)  # pyright: ignore[reportReturnType]


class PlanIds(Derived):
    """Sample i is sample `ids[i]` of `source`, and its label counts `classes`.

    Args:
        source: The source as it is now.
        ids: int64, shape (n,); -1 for samples that are gone and never read.
        classes: Class names by label: those of the plan first. Empty where labels have no names.
    """

    def __init__(self, source: Source, ids: np.ndarray, classes: Sequence[str]) -> None:
        super().__init__(source, ids)
        self.classes = tuple(classes)
        self.root = getattr(source, "root", None)  # of a folder
        code = class_numbers(classes)
        codes = [code.get(nfc(name), -1) for name in source.classes]
        self._labels = np.array([*codes, -1], np.int64)  # the last: of -1

    @property
    def label_spec(self) -> LabelSpec:
        """Class numbers, or multi-hot vectors of the plan's classes."""
        if is_multi(self.source):
            return LabelSpec((len(self.classes),), "float32")
        return CLASS_NUMBER

    def uri(self, i: int) -> str:
        """Address of the sample in the source; "" if it is gone."""
        return super().uri(i) if self._source_ids(i) >= 0 else ""

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Class numbers: int64, shape (len(ids),), or multi-hot: float32 (len(ids), classes)."""
        places = self._source_ids(ids)
        if self.label_spec.shape:
            labels = np.zeros((len(places), len(self.classes)), np.float32)
            there = places >= 0
            numbers = self._labels[:-1]  # of classes that the plan has
            flags = self.source.label(places[there])[:, numbers >= 0]
            labels[np.ix_(there, numbers[numbers >= 0])] = flags
            return labels
        labels = np.where(places < 0, -1, self.source.label(np.maximum(places, 0)))
        return self._labels[labels] if self.classes else labels

    def extra_columns(self, ids: Sequence[int]) -> list[dict[str, Any] | Failure]:
        """Metadata columns by name, as JSON values; None for a sample without a value, {} if gone."""
        places = self._source_ids(ids)
        values = iter(sample_columns(self.source, places[places >= 0].tolist()))
        return [{} if place < 0 else next(values) for place in places.tolist()]

    @property
    def together(self) -> dict[str, Source]:
        """Images of each sample by name, of a source with several."""
        images: dict[str, Source] = getattr(self.source, "together", {})
        ids = self._source_ids(np.arange(len(self)))
        return {name: PlanIds(image, ids, ()) for name, image in images.items()}

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Bytes of each sample: int64, shape (len(ids),); 0 if unknown."""
        places = self._source_ids(ids)
        sizes = known_sizes(self.source, np.maximum(places, 0).tolist())
        return np.where(places < 0, 0, np.array(sizes, np.int64))


def sample_columns(source: Source, ids: Sequence[int]) -> list[dict[str, Any] | Failure]:
    """Metadata columns by name, JSON values, or a Failure, of each sample."""
    if isinstance(source, HasExtraColumns):
        return source.extra_columns(ids)
    arrays = Optionals(source).columns(np.asarray(ids, np.int64))
    columns = {name: values.tolist() for name, values in arrays.items()}
    return [
        {name: nan_to_none(values[row]) for name, values in columns.items()}
        for row in range(len(ids))
    ]


def nan_to_none(value: Any) -> Any:
    """Replace NaN by None, for JSON."""
    return None if isinstance(value, float) and value != value else value
