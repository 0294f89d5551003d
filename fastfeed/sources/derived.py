"""Base of sources that are made from another one, whose samples they pass on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from fastfeed.runtime.addresses import SampleLocations
from fastfeed.sources.base import (
    BlockReader,
    Fetching,
    Instances,
    Optionals,
    Sharded,
    Source,
    StoredFile,
    renumbered,
    sample_locations,
    stored_files,
)
from fastfeed.sources.notes import source_notes, with_notes
from fastfeed.spec import LabelSpec
from fastfeed.storage.reads import MappedRead, Pending


class Derived:
    """All samples of another source, or some of them, with everything that it has of each.

    Each protocol of `base` is passed through, with a default for a source without it; ids are
    translated by `_source_ids` alone, and failures get the id they have here.
    """

    def __init__(self, source: Source, ids: np.ndarray | None = None) -> None:
        """`ids`: integers (n,), of each sample in the source; None: the same in both."""
        self.source = source
        self.spec = source.spec
        self.classes = source.classes
        self.object_classes: tuple[str, ...] = getattr(source, "object_classes", ())
        self._ids = ids
        self._optionals = Optionals(source)
        self.object_spec = self._optionals.object_spec
        self.frame = self._optionals.frame
        self.geometry: str = getattr(source, "geometry", "same")  # of the images of a sample

    def _source_ids(self, ids: Any) -> np.ndarray:
        """Ids that samples have in the source: int64, shape (len(ids),)."""
        own = np.asarray(ids, np.int64)
        return own if self._ids is None else self._ids[own].astype(np.int64)

    def _listed(self, ids: Sequence[int]) -> Sequence[int]:
        return ids if self._ids is None else self._source_ids(ids).tolist()

    def _renumber(self, ids: Sequence[int], samples: list[Any]) -> list[Any]:
        if self._ids is None:
            return samples
        return [renumbered(sample, i) for i, sample in zip(ids, samples, strict=True)]

    def _renumber_reads(self, ids: Any, reads: list[Pending]) -> list[Pending]:
        if self._ids is None:
            return reads
        return [
            MappedRead(read, partial(renumbered, i=i)) for i, read in zip(ids, reads, strict=True)
        ]

    # -- Source

    def __len__(self) -> int:
        return len(self.source) if self._ids is None else len(self._ids)

    def uri(self, i: int) -> str:
        """Address of a sample in the source."""
        return self.source.uri(int(self._source_ids(i)))

    def sample_names(self, ids: np.ndarray) -> list[str]:
        """Names of samples in the source."""
        return self._optionals.sample_names(self._source_ids(ids))

    def read(self, ids: Sequence[int]) -> list[Any]:
        """Read samples from the source."""
        return self._renumber(ids, self.source.read(self._listed(ids)))

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Return the labels of the images, as the source has them."""
        return self.source.label(self._source_ids(ids))

    @property
    def label_reads(self) -> bool:
        """True if labels of the source are read with its samples."""
        return getattr(self.source, "label_reads", False)

    @property
    def label_spec(self) -> LabelSpec:
        """Shape and dtype of the source's labels."""
        return self._optionals.label_spec

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the source that this derives from."""
        return self.source.fingerprint

    @property
    def notes(self) -> list[str]:
        """Notes of the source that this derives from."""
        return source_notes(self.source)

    # -- Addressable, Fetching, BlockReader

    def addresses(self, ids: np.ndarray) -> SampleLocations | None:
        """Locations of samples in the source."""
        return sample_locations(self.source, self._source_ids(ids))

    @property
    def remote(self) -> bool:
        """True if the source is remote."""
        return isinstance(self.source, Fetching) and self.source.remote

    def fetch(self, ids: Sequence[int]) -> list[Pending]:
        """Begin to read; only of a source that is remote."""
        assert isinstance(self.source, Fetching)
        return self._renumber_reads(ids, self.source.fetch(self._listed(ids)))

    def byte_ranges(self, ids: np.ndarray) -> Sequence[StoredFile | None]:
        """Files of samples of the source in remote storage."""
        return stored_files(self.source, self._source_ids(ids))

    def expect(self, samples: int) -> None:
        """Reserve room in the source, or in those of a mixture."""
        for source in getattr(self.source, "sources", [self.source]):
            if isinstance(source, BlockReader):
                source.expect(samples)

    def hold(self, ids: np.ndarray) -> list[Pending] | None:
        """Acquire blocks of the source."""
        if not isinstance(self.source, BlockReader):
            return None
        reads = self.source.hold(self._source_ids(ids))
        return None if reads is None else self._renumber_reads(ids, reads)

    # -- Sharded

    @cached_property
    def _units(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the runs of samples that share a unit of the source, and the unit of each."""
        if isinstance(self.source, Sharded):
            bounds = np.asarray(self.source.bounds, np.int64)
        else:
            bounds = np.array([0, len(self.source)], np.int64)
        if self._ids is None:
            return bounds, np.arange(len(bounds) - 1)
        units = np.searchsorted(bounds, self._ids, side="right") - 1
        firsts = np.flatnonzero(np.diff(units, prepend=-1))
        return np.append(firsts, len(units)), units[firsts]

    @property
    def bounds(self) -> np.ndarray:
        """First id of every unit of the source that has samples here; one unit if it has none."""
        return self._units[0]

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Bytes of samples in the source; 0 if unknown."""
        if isinstance(self.source, Sharded):
            return self.source.sizes(self._source_ids(ids))
        return np.zeros(len(ids), np.int64)

    def shard(self, unit: int) -> str:
        """Address of a unit of the source."""
        if not isinstance(self.source, Sharded):
            return repr(self.source)
        return self.source.shard(int(self._units[1][unit]))

    # -- several images

    @property
    def together(self) -> dict[str, Source]:
        """Images of each sample by name, of a source with several."""
        images: dict[str, Source] = getattr(self.source, "together", {})
        return {name: Derived(image, self._ids) for name, image in images.items()}

    # -- a mixture's order

    @property
    def shares(self) -> tuple[float, ...] | None:
        """Shares of a mixture's sources; None of other sources."""
        return getattr(self.source, "shares", None)

    @property
    def starts(self) -> np.ndarray:
        """First ids of a mixture's sources, and the number of samples last: int64."""
        return np.asarray(self.source.starts)  # type: ignore[attr-defined]

    @property
    def length(self) -> int | None:
        """Samples per epoch of a mixture."""
        return getattr(self.source, "length", None)

    # -- Annotated

    def weights(self, ids: np.ndarray) -> np.ndarray | None:
        """Weights of samples in the source."""
        return self._optionals.weights(self._source_ids(ids))

    def boxes(self, ids: np.ndarray) -> np.ndarray | None:
        """The parts of images that count, as the source says; objects are `objects`."""
        return self._optionals.boxes(self._source_ids(ids))

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Columns of the source, for these samples."""
        return self._optionals.columns(self._source_ids(ids))

    def column_values(self, ids: Sequence[int]) -> list[dict[str, Any]] | None:
        """Columns that the source reads from storage."""
        rows = self._optionals.column_values(self._listed(ids))
        if rows is None or self._ids is None:
            return rows
        return [
            {name: renumbered(value, i) for name, value in row.items()}
            for i, row in zip(ids, rows, strict=True)
        ]

    # -- HasObjects

    @property
    def most(self) -> int:
        """Room for boxes per image; 0 without boxes."""
        return self._optionals.most

    def objects(self, ids: np.ndarray) -> Instances | None:
        """Boxes of these images, in pixels."""
        return self._optionals.objects(self._source_ids(ids))

    def masks(self, ids: Sequence[int]) -> list[Any] | None:
        """Masks of these images, not decoded yet."""
        masks = self._optionals.masks(self._listed(ids))
        return None if masks is None else self._renumber(ids, masks)

    # -- printed

    def __str__(self) -> str:
        first = str(self.source).splitlines()[0]
        return with_notes(f"{first}{self._summary()}", self.notes)

    def __repr__(self) -> str:
        return f"{self.source!r}{self._summary()}"

    def _summary(self) -> str:
        """Text that follows the source's line in `str` and `repr`."""
        return ""
