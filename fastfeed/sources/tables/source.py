"""Samples that the rows of a table name or hold: the protocol of a source over opened columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.runtime.addresses import Grouped, SampleLocations
from fastfeed.sources.access import Access, Allow
from fastfeed.sources.base import StoredFile, sample_or_failure
from fastfeed.sources.methods import SourceMethods
from fastfeed.sources.notes import notes_text, summary, with_notes
from fastfeed.sources.shards.labels import checked_classes
from fastfeed.sources.tables.column_types import ColumnType, from_text, is_text
from fastfeed.sources.tables.columns import RowLocator
from fastfeed.sources.tables.image_files import ImageFiles, or_empty
from fastfeed.sources.tables.open_table import (
    OpenedTable,
    RequestedColumns,
    label_classes,
    open_table,
    reopen_table,
)
from fastfeed.sources.tables.read_files import MEMORY, Files
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.spec import CLASS_NUMBER, ENCODED
from fastfeed.storage.byte_sizes import in_bytes
from fastfeed.storage.event_loop import results
from fastfeed.storage.fingerprint import fingerprint
from fastfeed.storage.reads import Completed, MappedRead, Pending, Unread, is_local
from fastfeed.storage.shard_files import ShardReader
from fastfeed.storage.storage import Storage

if TYPE_CHECKING:
    from fastfeed.sources.tables.row_group_images import RowGroups


_STATE = ("notes", "_requested", "_root", "_requested_classes", "_memory", "_storage", "_allow")


class TableSource(SourceMethods):
    """Base class of sources whose samples are the rows of a table."""

    spec = ENCODED
    notes: Sequence[str] = ()

    def _open(
        self,
        table: OpenedTable | Files,
        requested: RequestedColumns,
        storage: Storage,
        *,
        root: str | os.PathLike[str] | None = None,
        classes: Sequence[str | int] | None = None,
        memory: int = MEMORY,
        allow: Allow | None = None,  # None: all that this process may read
    ) -> None:
        self._requested = requested
        self._root = None if root is None else os.fspath(root)
        self._requested_classes = checked_classes(classes, type(self).__name__)
        self._memory = memory
        self._allow = allow
        self._storage = storage
        if not isinstance(table, OpenedTable):
            table = open_table(table, requested, storage, memory)
        self._set(table)

    def _set(self, opened: OpenedTable) -> None:
        uris = [uri for uri, _ in opened.files]
        self._opened = opened
        self._arrays = opened.arrays
        self._fingerprint = ""
        self._where = RowLocator(uris, opened.rows)
        self.classes, self._labels = label_classes(
            opened, self._requested.label, self._requested_classes, self._where
        )
        self.label_spec = CLASS_NUMBER if self._labels is None else self._labels.spec
        self._groups: RowGroups | None = None
        roots = [self._root or table_folder(uri) for uri in uris]
        access = None if self._allow is None else Access.of(uris, roots, *self._allow)
        if opened.leaf is None:
            paths = StringColumn(self._arrays["paths"], self._arrays["path_ends"])
            remote = opened.urls or not all(map(is_local, roots))
            named = ImageFiles(
                paths,
                self._arrays.get("repeated"),
                self._where,
                roots,
                self._storage,
                remote,
                access,
            )
            self._images: ImageFiles | ArrowImages | RowGroups = named
            if "span_starts" in self._arrays:
                shards = ShardReader(uris, [stat for _, stat in opened.files], self._storage)
                self._images = ArrowImages(self._arrays, self._where, shards, named)
        else:
            from fastfeed.sources.tables.row_group_images import (  # loads PyArrow
                RowGroupPaths,
                RowGroups,
            )

            shards = ShardReader(uris, [stat for _, stat in opened.files], self._storage)
            columns = self._arrays, opened.leaf
            others = RowGroupPaths(*columns, shards, roots, self._storage, access, self._memory)
            self._images = self._groups = RowGroups(
                *columns, self._where, shards, self._memory, others
            )

    def __getstate__(self) -> dict[str, Any]:
        # mapped there as well
        opened = (
            self._opened if self._opened.cache_path is None else replace(self._opened, arrays={})
        )
        return {name: getattr(self, name) for name in _STATE} | {"opened": opened}

    def __setstate__(self, state: dict[str, Any]) -> None:
        opened = state.pop("opened")
        self.__dict__.update(state)
        self._set(
            opened
            if opened.arrays
            else reopen_table(opened, self._requested, self._storage, self._memory)
        )

    # -- Source

    def __len__(self) -> int:
        return sum(self._opened.rows)

    def uri(self, i: int) -> str:
        """Path or URL, with `#row N` for a repeated one; `train.parquet#N` for bytes."""
        return self._images.uri(int(i))

    @property
    def paths(self) -> StringColumn | None:
        """Paths as written in the table; None if it holds the images themselves."""
        if not isinstance(self._images, ImageFiles):
            return None
        return StringColumn(self._arrays["paths"], self._arrays["path_ends"])

    @property
    def file_rows(self) -> dict[str, tuple[int, int]]:
        """First row and number of rows of each file, by its path or address."""
        firsts = self._where.bounds(len(self)).tolist()
        uris = [uri for uri, _ in self._opened.files]
        return dict(zip(uris, zip(firsts, self._opened.rows, strict=False), strict=True))

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Class numbers, int64, shape (len(ids),), or targets as `label_spec` says."""
        return np.full(len(ids), -1, np.int64) if self._labels is None else self._labels.take(ids)

    def read(self, ids: Sequence[int]) -> list[bytes | Failure]:
        """Read the bytes of images."""
        if self.remote:
            return results(self.fetch(ids))
        return [
            sample_or_failure(self, int(i), self._no_label(int(i)) or self._images.read(int(i)))
            for i in ids
        ]

    def addresses(self, ids: np.ndarray) -> SampleLocations | None:
        """Local images named by path, or in Arrow files; None for others."""
        return self._images.addresses(
            ids if self._labels is None else np.where(self.unlabeled(ids), -1, ids)
        )

    def unlabeled(self, ids: np.ndarray) -> np.ndarray:
        """True for rows whose label is missing.

        Args:
            ids (np.ndarray): Sample ids, int64 (n,).

        Returns:
            bool (n,).

        Example:
            >>> table = ff.Table({"path": ["a", "b"], "x": ["y", None]}, image="path", label="x")
            >>> table.unlabeled(np.arange(2)).tolist()
            [False, True]
        """
        return np.zeros(len(ids), bool) if self._labels is None else self._labels.missing(ids)

    def fetch(self, ids: Sequence[int]) -> list[Pending]:
        """Begin to read, from remote storage."""
        return [self._fetch(int(i)) for i in ids]

    def byte_ranges(self, ids: np.ndarray) -> Sequence[StoredFile | None]:
        """Files in remote storage that are named by path; None for images in the table."""
        images = self._images
        if not isinstance(images, ImageFiles):
            return [None] * len(ids)
        pairs = zip(ids.tolist(), self.unlabeled(ids).tolist(), strict=True)
        return [None if is_missing else images.byte_range(i) for i, is_missing in pairs]

    def _fetch(self, i: int) -> Pending:
        missing = self._no_label(i)
        pending = self._images.fetch(i) if missing is None else Completed(missing)
        return MappedRead(pending, lambda data: sample_or_failure(self, i, data))

    @property
    def remote(self) -> bool:
        """Reads go over a network, so they are worth beginning early."""
        return self._images.remote

    def expect(self, samples: int) -> None:
        """Number of samples in flight, for advice on row groups."""
        if self._groups is not None:
            self._groups.expected = max(self._groups.expected, samples)

    def hold(self, ids: np.ndarray) -> list[Pending] | None:
        """Begin to read from local row groups, kept until their images are taken."""
        return None if self._groups is None or self.remote else self.fetch(ids.tolist())

    def _no_label(self, i: int) -> Unread | None:
        if not self.unlabeled(np.array([i]))[0]:
            return None
        return Unread("label_missing", f"row {self._where.row(i)}: no label")

    @property
    def fingerprint(self) -> str:
        """Hash of paths, labels, columns and sizes of row groups; computed on first use."""
        if not self._fingerprint:
            arrays = self._arrays
            names = [arrays[name].data for name in ("paths", "path_ends") if name in arrays]
            classes = "\0".join(self.classes).encode("utf-8", "surrogatepass")
            labels = () if self._labels is None else self._labels.content(0, len(self))
            self._fingerprint = fingerprint(len(self), names, [classes, *labels], self._content)
        return self._fingerprint

    def _content(self, first: int, last: int) -> Iterator[Any]:
        """Buffers that rows [first, last) have a part in."""
        arrays = self._arrays
        rows = np.arange(first, last)
        for name, array in sorted(arrays.items()):
            if name in ("weights", "boxes", "span_starts", "span_lengths") or (
                name.startswith("carried ") and f"ends {name[8:]}" not in arrays
            ):
                yield name.encode()
                yield np.ascontiguousarray(array[first:last]).data
        if "unit_rows" in arrays and last > first:
            units = slice(
                *(np.searchsorted(self.bounds, (first, last - 1), side="right") - (1, 0)).tolist()
            )
            yield from (
                np.ascontiguousarray(arrays[name][units]).data
                for name in ("unit_rows", "unit_unpacked")
            )
        for name in self._requested.columns:
            if f"ends {name}" in arrays:
                yield from (
                    text.encode("utf-8", "surrogateescape") + b"\0"
                    for text in self._texts(name).take(rows)
                )

    # -- Sharded

    @property
    def bounds(self) -> np.ndarray:
        """First id of every row group, and the number of samples last: int64.

        Images named by path are one unit.
        """
        return self._images.bounds

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Bytes of samples: int64, shape (len(ids),); 0 for images named by path."""
        return self._images.sizes(ids)

    def shard(self, unit: int) -> str:
        """File and number of a row group."""
        return self._images.shard(unit)

    # -- Annotated

    def weights(self, ids: np.ndarray) -> np.ndarray | None:
        """float32, shape (len(ids),). None: all are 1."""
        return self._arrays["weights"][ids] if self._requested.weight is not None else None

    def boxes(self, ids: np.ndarray) -> np.ndarray | None:
        """Top, left, height, width in displayed pixels, NaN for all: float64 (len(ids), 4)."""
        return self._arrays["boxes"][ids].astype(np.float64) if self._requested.box else None

    @property
    def column_types(self) -> dict[str, ColumnType]:
        """Types of the columns by name, as `sources/tables/column_types.py` spells them."""
        return self._opened.kinds

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """By name: numbers and bools as they are, lists of k as (len(ids), k), all else as objects."""
        return {name: self._column(name, ids) for name in self._requested.columns}

    def _column(self, name: str, ids: np.ndarray) -> np.ndarray:
        if f"ends {name}" not in self._arrays:
            return self._arrays[f"carried {name}"][ids]
        texts = self._texts(name)
        kind = self.column_types[name]
        if is_text(kind):
            return texts.take(ids)
        values = [from_text(kind, texts.content(i)) for i in np.asarray(ids).tolist()]
        return np.fromiter(values, object, len(values))

    def _texts(self, name: str) -> StringColumn:
        return StringColumn(self._arrays[f"carried {name}"], self._arrays[f"ends {name}"])

    def __str__(self) -> str:
        return with_notes(self._summary(), self.notes)

    def __repr__(self) -> str:
        return self._summary() + notes_text(self.notes)

    def _summary(self) -> str:
        return summary(type(self).__name__, self._where.uris, len(self), self.classes)


def parse_memory(memory: int | str) -> int:
    """Bytes that row groups may take. ConfigError."""
    try:
        return in_bytes(memory)
    except ConfigError as error:
        raise ConfigError.of(
            "Table: memory", 'bytes > 0, or a string such as "2GB"', memory
        ) from error


def table_folder(uri: str) -> str:
    """Folder of a table, at which its paths begin."""
    return os.path.dirname(uri) if is_local(uri) else uri.partition("?")[0].rpartition("/")[0]


class ArrowImages:
    """Random access to images; rows without bytes are read from their paths."""

    def __init__(
        self,
        arrays: dict[str, np.ndarray],
        where: RowLocator,
        shards: ShardReader,
        named: ImageFiles,
    ) -> None:
        self._starts = arrays["span_starts"]
        self._lengths = arrays["span_lengths"]
        self._where = where
        self._shards = shards
        self._named = named
        self.remote = shards.remote or named.remote

    def uri(self, i: int) -> str:
        """`data.arrow#7`, the row in the file; or the path of a row without bytes."""
        return self._named.uri(i) if self._lengths[i] < 0 else self._where.uri(i)

    def read(self, i: int) -> bytes | Unread:
        """The image of row i."""
        if self._lengths[i] < 0:
            return self._named.read(i)
        return or_empty(self._shards.read(*self._span(i)))

    def fetch(self, i: int) -> Pending:
        """Begin to read from storage."""
        if self._lengths[i] < 0:
            return self._named.fetch(i)
        if not self._shards.remote:
            return MappedRead(Completed(i), self.read)
        return MappedRead(self._shards.fetch(*self._span(i)), or_empty)

    def addresses(self, ids: np.ndarray) -> SampleLocations | None:
        """Bytes of local files, int64 (n,), -1 to skip; None if any may be remote."""
        if self.remote:
            return None
        wanted = ids >= 0
        lengths = self._lengths[ids]
        held = np.flatnonzero(wanted & (lengths > 0))
        named = np.flatnonzero(wanted & (lengths < 0))
        starts = self._starts[ids[held]]
        ranges = self._shards.ranges(self._where.files(ids[held]), starts, starts + lengths[held])
        parts: list[tuple[np.ndarray, SampleLocations | None]] = [(held, ranges)]
        if len(named):
            parts.append((named, self._named.addresses(ids[named])))
        return Grouped.of(len(ids), parts)

    def _span(self, i: int) -> tuple[int, int, int]:
        start = int(self._starts[i])
        return self._where.file(i), start, start + int(self._lengths[i])

    # -- Sharded: a unit is a file

    @property
    def bounds(self) -> np.ndarray:
        """First row of each file, and the number of rows last: int64."""
        return self._where.bounds(len(self._lengths))

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Bytes of images: int64 (n,); 0 for those named by path."""
        return np.maximum(self._lengths[ids], 0)

    def shard(self, unit: int) -> str:
        """Path or address of a file."""
        return self._where.uris[unit]
