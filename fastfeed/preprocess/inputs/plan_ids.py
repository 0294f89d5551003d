"""A source whose samples have the ids of a plan; appended images come last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.labels import is_multi
from fastfeed.preprocess.inputs.readahead import known_sizes
from fastfeed.sources.base import Fetching, Optionals, Source
from fastfeed.sources.class_names import class_numbers, nfc
from fastfeed.sources.notes import notes_of
from fastfeed.sources.shards.extra_columns import HasExtraColumns
from fastfeed.spec import CLASS_NUMBER, LabelSpec
from fastfeed.storage.reads import Completed, MappedRead, Pending


class PlanIds:
    """Sample i is sample `ids[i]` of `source`, and its label counts `classes`.

    Args:
        source: The source as it is now.
        ids: int64, shape (n,); -1 for samples that are gone and never read.
        classes: Class names by label: those of the plan first. Empty where labels have no names.
    """

    def __init__(self, source: Source, ids: np.ndarray, classes: Sequence[str]) -> None:
        self._source = source
        self._ids = ids
        self.spec = source.spec
        self.classes = tuple(classes)
        self.label_spec = CLASS_NUMBER
        if is_multi(source):
            self.label_spec = LabelSpec((len(classes),), "float32")
        self.root = getattr(source, "root", None)  # of a folder
        self.remote = isinstance(source, Fetching) and source.remote
        code = class_numbers(classes)
        codes = [code.get(nfc(name), -1) for name in source.classes]
        self._labels = np.array([*codes, -1], np.int64)  # the last: of -1

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def notes(self) -> list[str]:
        """Skipped files of the source."""
        return notes_of(self._source)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the source."""
        return self._source.fingerprint

    def uri(self, i: int) -> str:
        """Address of the sample in the source; "" if it is gone."""
        place = int(self._ids[i])
        return self._source.uri(place) if place >= 0 else ""

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Class numbers: int64, shape (len(ids),), or multi-hot: float32 (len(ids), classes)."""
        places = self._ids[ids]
        if self.label_spec.shape:
            labels = np.zeros((len(places), len(self.classes)), np.float32)
            there = places >= 0
            numbers = self._labels[:-1]  # of classes that the plan has
            flags = self._source.label(places[there])[:, numbers >= 0]
            labels[np.ix_(there, numbers[numbers >= 0])] = flags
            return labels
        labels = np.where(places < 0, -1, self._source.label(np.maximum(places, 0)))
        return self._labels[labels] if self.classes else labels

    def read(self, ids: Sequence[int]) -> list[Any]:
        """Read the bytes of these files."""
        blobs = self._source.read([int(self._ids[i]) for i in ids])
        return [_renamed(blob, int(i)) for i, blob in zip(ids, blobs, strict=True)]

    def fetch(self, ids: Sequence[int]) -> list[Pending]:
        """Start reading from remote storage."""
        if not isinstance(self._source, Fetching):
            return [Completed(blob) for blob in self.read(ids)]
        pending = self._source.fetch([int(self._ids[i]) for i in ids])
        return [
            MappedRead(p, lambda blob, i=int(i): _renamed(blob, i))
            for i, p in zip(ids, pending, strict=True)
        ]

    def extra_columns(self, ids: Sequence[int]) -> list[dict[str, Any] | Failure]:
        """Metadata columns by name, as JSON values; None for a sample without a value, {} if gone."""
        places = self._ids[np.asarray(ids, np.int64)]
        values = iter(columns_of(self._source, places[places >= 0].tolist()))
        return [{} if place < 0 else next(values) for place in places.tolist()]

    @property
    def together(self) -> dict[str, Source]:
        """Images of each sample by name, of a source with several."""
        images: dict[str, Source] = getattr(self._source, "together", {})
        return {name: PlanIds(image, self._ids, ()) for name, image in images.items()}

    # -- Sharded: not in the order of files, so that all are one unit

    @property
    def bounds(self) -> np.ndarray:
        """First ids of units: all samples are in one."""
        return np.array([0, len(self)], np.int64)

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Bytes of each sample: int64, shape (len(ids),); 0 if unknown."""
        places = self._ids[ids]
        sizes = known_sizes(self._source, np.maximum(places, 0).tolist())
        return np.where(places < 0, 0, np.array(sizes, np.int64))

    def shard(self, unit: int) -> str:
        """Name of a unit: that of the source."""
        return repr(self._source)

    def __repr__(self) -> str:
        return repr(self._source)


def columns_of(source: Source, ids: Sequence[int]) -> list[dict[str, Any] | Failure]:
    """Metadata columns by name, JSON values, or a Failure, of each sample."""
    if isinstance(source, HasExtraColumns):
        return source.extra_columns(ids)
    arrays = Optionals(source).columns(np.asarray(ids, np.int64))
    columns = {name: values.tolist() for name, values in arrays.items()}
    return [
        {name: nan_to_none(values[row]) for name, values in columns.items()}
        for row in range(len(ids))
    ]


def _renamed(blob: Any, i: int) -> Any:
    return replace(blob, id=i) if isinstance(blob, Failure) else blob


def nan_to_none(value: Any) -> Any:
    """None instead of NaN."""
    return None if isinstance(value, float) and value != value else value
