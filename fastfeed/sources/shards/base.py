"""Base of sources of shards: random access through an index of all samples."""

from __future__ import annotations

import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.printable import printable
from fastfeed.runtime.addresses import FileRanges
from fastfeed.sources.base import StoredFile
from fastfeed.sources.column_arrays import as_array
from fastfeed.sources.label_values import LabelValues, RequestedLabel
from fastfeed.sources.methods import SourceMethods
from fastfeed.sources.notes import NOTE, notes_text, summary, with_notes
from fastfeed.sources.shards.build_index import ForwardReader, build, read_shard
from fastfeed.sources.shards.extra_columns import (
    LARGEST,
    ExtraColumns,
    Kind,
    as_json,
    column_names,
)
from fastfeed.sources.shards.index import ShardScan
from fastfeed.sources.shards.known_counts import tell
from fastfeed.sources.shards.labels import checked_classes, number_labels, unpack_labels
from fastfeed.spec import CLASS_NUMBER, ENCODED
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.expand import find_files
from fastfeed.storage.fingerprint import fingerprint
from fastfeed.storage.reads import ByteRange, MappedRead, Pending, Stat, Unread
from fastfeed.storage.shard_files import ShardReader, split_at
from fastfeed.storage.storage import Storage, open_storage

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class ShardedSource(SourceMethods, ABC):
    """Random access to the samples of many shards.

    A format defines how to scan a shard, and how to get the image from a sample's bytes.
    """

    spec = ENCODED
    suffix: str  # of its files: what a folder is searched for
    also: re.Pattern[str] | None = None  # and for names that this fits
    _label_advice: str  # if no sample has a label
    _head = 0  # bytes before each extra value that show whether it is still the same

    def __init__(
        self,
        shards: Paths,
        kind: str,  # the format and those of its options that make another index
        *,
        label: RequestedLabel,
        as_indices: bool,  # the caller asked for indices of classes
        classes: Sequence[str | int] | None,
        storage: dict[str, Any] | Storage | None,
        cache: str | os.PathLike[str] | Cache | None,
        index: str | os.PathLike[str] | None,
        progress: bool | None,
        columns: Sequence[str] = (),
    ) -> None:
        who = type(self).__name__
        names = column_names(columns, who)
        requested = checked_classes(classes, who)
        own = open_storage(storage, cache)
        self._labeled = bool(label.names)
        is_class = label.is_class or not self._labeled
        self._fingerprint = ""
        self._mixed = ""
        self._folder_notes = list[str]()
        files, own = self._files(shards, own)
        own_kind = kind if is_class else f"{kind} {label.kind}"
        self._index = build(who, files, own_kind, self._scan, own, index, progress)
        self._shards = ShardReader([uri for uri, _ in files], [stat for _, stat in files], own)
        if not len(self._index):
            where = f"{len(files)} shards, the first is {files[0][0]}"
            raise SourceError(f"{who}: no images in {where}{self._first_notes()}")
        self._extra_columns: ExtraColumns | None = None
        if names:
            columns_index = build(
                who,
                files,
                f"{kind} columns 2 {','.join(names)}",
                self._scan_columns,
                own,
                None,
                progress,
            )
            self._extra_columns = ExtraColumns(
                columns_index, self._shards, names, self._head, self._largest, self._kind
            )
            self._check_columns(self._extra_columns.missing(), files[0], own)
        self.classes = ()
        self._labels = np.broadcast_to(np.int32(-1), (len(self._index),))
        self._targets: LabelValues | None = None  # None: labels are class numbers
        self.label_spec = CLASS_NUMBER
        if self._labeled and is_class:
            self.classes, self._labels, self._mixed = number_labels(
                self._index, requested, label.kind, who, as_indices
            )
        elif self._labeled:
            self.classes, self._labels, self._targets, self._mixed = unpack_labels(
                self._index, label, requested, who
            )
            self.label_spec = self._targets.spec
        if self._labeled and bool(np.all(self._labels < 0)):
            raise SourceError(
                f"{who}: no sample has a label{self._first_notes()}; {self._label_advice}"
            )
        tell(who, self._shards.uris, [self._notes_on(k) for k in range(len(files))])

    # -- what a format defines

    @abstractmethod
    def _scan(self, reader: ForwardReader) -> ShardScan:
        """Scan the samples of a shard."""

    @abstractmethod
    def _scan_columns(self, reader: ForwardReader) -> ShardScan:
        """Scan one shard for extra columns: an entry for each sample and column (`add_row`)."""

    @abstractmethod
    def _names_in(self, reader: ForwardReader) -> list[str]:
        """Names that columns can have, from the first samples of a shard."""

    @abstractmethod
    def _value(self, name: str, data: bytes) -> Any:
        """Parse the bytes of a column's entry. ValueError if they hold no value."""

    @abstractmethod
    def _cuts(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Offsets of samples' headers, of the samples, and of their ends."""

    @abstractmethod
    def _unwrap(self, i: int, head: bytes, data: bytes) -> bytes | Unread:
        """The image in sample i."""

    def _files(self, shards: Paths, storage: Storage) -> tuple[list[tuple[str, Stat]], Storage]:
        """The shards, and the storage to read them with."""
        return (
            find_files(
                shards, self.suffix, storage, type(self).__name__, self._folder_notes, self.also
            ),
            storage,
        )

    def _check_columns(
        self, missing: Sequence[str], first: tuple[str, Any], storage: Storage
    ) -> None:
        """ConfigError if no sample has one of the columns: the name is wrong."""
        if not missing:
            return
        who = type(self).__name__
        names = read_shard(who, *first, self._names_in, storage, threading.Event())
        raise ConfigError(
            f"{who}: no sample has a column {missing[0]!r}; {first[0]} has"
            f" {', '.join(names) or 'none'}; pass columns=[...] of these",
            field="columns",
        )

    # -- Source

    def __len__(self) -> int:
        return len(self._index)

    def uri(self, i: int) -> str:
        """Shard, offset and name: `train-0007.tar#512:n01.jpg`."""
        i = int(i)
        return f"{self._shards.uris[self._index.find_shard(i)]}#{self._index.offsets[i]}:{self._index.name(i)}"

    def sample_names(self, ids: np.ndarray) -> list[str]:
        """Name of the shard's file, and of the sample in it: `train-0007.tar:n01.jpg`."""
        files = [uri.rpartition("/")[2] for uri in self._shards.uris]
        shards = self._index.find_shards(ids).tolist()
        names = self._index.read_names(ids)
        return [f"{files[shard]}:{name}" for shard, name in zip(shards, names, strict=True)]

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Class numbers, int64, shape (len(ids),), or targets as `label_spec` says."""
        if self._targets is not None:
            return self._targets.take(ids)
        return np.asarray(self._labels[np.asarray(ids, np.int64)], np.int64)

    def read(self, ids: Sequence[int]) -> list[Any]:
        """Read the bytes of images."""
        ranges = self._ranges(ids)
        shards = self._shards
        if not shards.remote:
            return [self._to_sample(i, shards.pieces(shard, *cuts)) for i, shard, *cuts in ranges]
        cached = [shards.read_cached(*bounds[1:]) for bounds in ranges]
        remaining = iter(
            self._fetch([b for b, parts in zip(ranges, cached, strict=True) if parts is None])
        )
        return [
            next(remaining).result() if parts is None else self._to_sample(bounds[0], parts)
            for bounds, parts in zip(ranges, cached, strict=True)
        ]

    def _addresses(
        self, ids: np.ndarray, skip: np.ndarray | bool = False, **content: Any
    ) -> FileRanges | None:
        """Locations of samples for a format's `addresses`.

        `skip`: bool (n,), what only `read` can judge; `content`: `ranges`.
        """
        shards = np.searchsorted(self._index.bounds, ids, side="right") - 1
        if self._labeled:
            skip = skip | (self._labels[ids] < 0)
        return self._shards.ranges(np.where(skip, -1, shards), *self._cuts(ids)[1:], **content)

    def fetch(self, ids: Sequence[int]) -> list[Pending]:
        """Start reading from remote storage."""
        return self._fetch(self._ranges(ids))

    def _fetch(self, ranges: list[tuple[int, ...]]) -> list[Pending]:
        reads = self._shards.fetch_all([(shard, cuts[0], cuts[-1]) for _, shard, *cuts in ranges])
        return [
            MappedRead(
                pending, lambda data, i=i, cuts=cuts: self._to_sample(i, split_at(data, *cuts))
            )
            for pending, (i, _, *cuts) in zip(reads, ranges, strict=True)
        ]

    def _byte_ranges(self, ids: np.ndarray) -> list[StoredFile | None]:
        """Images in remote shards that are stored as they are, for a format's `byte_ranges`."""
        shards = self._shards
        return [
            (shards.storage, ByteRange(shards.uris[shard], cuts[-2], cuts[-1], shards.stats[shard]))
            if shards.remote and cuts[-2] < cuts[-1] and not (self._labeled and self._labels[i] < 0)
            else None
            for i, shard, *cuts in self._ranges(ids)  # type: ignore[arg-type]
        ]

    def _ranges(self, ids: Sequence[int]) -> list[tuple[int, ...]]:
        """Byte ranges of samples: (id, shard, offsets...) each."""
        requested = np.asarray(ids, np.int64)
        shards = np.searchsorted(self._index.bounds, requested, side="right") - 1
        return list(
            zip(
                *(column.tolist() for column in (requested, shards, *self._cuts(requested))),
                strict=True,
            )
        )

    @property
    def remote(self) -> bool:
        """Reads go over a network, so that starting them early pays off."""
        return self._shards.remote

    def _to_sample(self, i: int, pieces: tuple[bytes, ...] | Unread) -> bytes | Failure:
        image = pieces if isinstance(pieces, Unread) else self._unwrap(i, *pieces)
        if not isinstance(image, Unread):
            if self._labeled and self._labels[i] < 0:
                image = Unread("label_missing")
            elif not image:
                image = Unread("empty")
        return self._failure(i, image) if isinstance(image, Unread) else image

    def _failure(self, i: int, why: Unread) -> Failure:
        return Failure(
            int(i), self.uri(i), "read", why.reason, why.detail, int(self._index.offsets[i])
        )

    @property
    def fingerprint(self) -> str:
        """Hash of names, labels and sizes; computed on first use."""
        if not self._fingerprint:
            index = self._index
            classes = "\0".join(self.classes).encode("utf-8", "surrogateescape")
            self._fingerprint = fingerprint(
                len(self),
                index.names(),
                (classes, np.ascontiguousarray(self._labels).data),
                self._content,
            )
        return self._fingerprint

    def _content(self, first: int, last: int) -> list[Any]:
        sizes: list[Any] = [self._index.lengths[first:last].data]
        if self._targets is not None:
            sizes += self._targets.content(first, last)
        if self._extra_columns is not None:
            count = len(self._extra_columns.names)
            sizes.append(self._extra_columns.lengths[first * count : last * count].data)
        return sizes

    # -- Annotated, HasExtraColumns

    def weights(self, ids: np.ndarray) -> np.ndarray | None:
        """Weights of samples; None: all are 1."""
        return None

    def boxes(self, ids: np.ndarray) -> np.ndarray | None:
        """None: no sample has one."""
        return None

    def _largest(self, name: str) -> int:
        """Bytes that a value of this column may have."""
        return LARGEST

    def _kind(self, name: str) -> Kind:
        """Kind of the bytes of a column's values; `_value` converts these, and all that is JSON."""
        return "bytes"

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Columns by name: arrays of numbers (missing: NaN or 0), or objects (missing: "")."""
        if self._extra_columns is None:
            return {}
        columns = self._extra_columns.values(np.asarray(ids).tolist(), self._value)
        return {name: as_array(values) for name, values in columns.items()}

    def column_values(self, ids: Sequence[int]) -> list[dict[str, Any]] | None:
        """Columns by name; None or a Failure for a missing value.

        None in place of the list: there are no columns.
        """
        if self._extra_columns is None:
            return None
        columns = self._extra_columns.values(ids, self._value)
        for name, values in columns.items():
            if Unread in map(type, values):
                columns[name] = [
                    self._failure(i, value) if isinstance(value, Unread) else value
                    for i, value in zip(ids, values, strict=True)
                ]
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def extra_columns(self, ids: Sequence[int]) -> list[dict[str, Any] | Failure]:
        """Metadata columns of samples, as JSON has them.

        Args:
            ids (Sequence[int]): Sample ids.

        Returns:
            One entry per id: values by name, None for a missing one; or the Failure of the read.

        Example:
            >>> ff.MDSShards("mds", columns=["id"]).extra_columns([0, 1])
            [{'id': '0000'}, {'id': '0001'}]
        """
        rows = self.column_values(ids) or [{} for _ in ids]
        return [_as_json(row) for row in rows]

    # -- Sharded

    @property
    def bounds(self) -> np.ndarray:
        """First id of every shard, and the number of samples last: int64, shape (shards + 1,)."""
        return self._index.bounds

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Bytes of each sample: int64, shape (len(ids),)."""
        return np.asarray(self._index.lengths[np.asarray(ids, np.int64)], np.int64)

    def shard(self, unit: int) -> str:
        """Path or address of a shard."""
        return self._shards.uris[unit]

    # -- index

    @property
    def index_file(self) -> Path | None:
        """The file of the index; None if it could not be saved."""
        return self._index.path

    @property
    def notes(self) -> list[str]:
        """Damaged and skipped parts, by folder and shard."""
        notes = [
            f"{uri}: {note}"
            for k, uri in enumerate(self._shards.uris)
            for note in self._notes_on(k)
        ]
        return [*self._folder_notes, *([self._mixed] if self._mixed else []), *notes]

    def _notes_on(self, shard: int) -> Sequence[str]:
        return self._index.notes[shard]

    def _first_notes(self) -> str:
        notes = self.notes
        more = f"\n  and {len(notes) - 3} more" if len(notes) > 3 else ""
        return "".join(f"\n  {printable(note, NOTE)}" for note in notes[:3]) + more

    def __str__(self) -> str:
        return with_notes(self._summary(), self.notes)

    def __repr__(self) -> str:
        return self._summary() + notes_text(self.notes)

    def _summary(self) -> str:
        return summary(type(self).__name__, self._shards.uris, len(self), self.classes)


def _as_json(values: dict[str, Any]) -> dict[str, Any] | Failure:
    failure = next((value for value in values.values() if isinstance(value, Failure)), None)
    return as_json(values) if failure is None else failure
