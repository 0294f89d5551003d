"""A table opened: its columns as arrays, read once and kept in a file where that takes long."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.shards.build_index import cache_folder
from fastfeed.sources.tables.annotations import BoxColumn, ExtraColumn, WeightColumn
from fastfeed.sources.tables.columns import ColumnArrays, ColumnParser, LabelColumn, PathColumn, RowLocator
from fastfeed.sources.tables.mmap_arrays import alone, joined, load, save
from fastfeed.sources.tables.read_files import TableFile, read_files
from fastfeed.storage.expand import local_stat
from fastfeed.storage.storage import Stat, Storage, is_local

__all__ = ["OpenedTable", "RequestedColumns", "open_table", "reopen_table"]

KEEP_BYTES = 4 << 20  # of the table, from which on its columns are kept in a file: less is read in no time

Files = Sequence[tuple[str, Stat]]


@dataclass(frozen=True, slots=True)
class RequestedColumns:
    """What is wanted of a table, by the names of its columns."""

    image: str
    label: str | None = None
    weight: str | None = None
    box: tuple[str, ...] = ()  # one name or four
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, names in (("image", (self.image,)), ("label", (self.label,)), ("weight", (self.weight,))):
            if not isinstance(names[0], str) and (names[0] is not None or what == "image"):
                raise ConfigError(f"Table: {what} must be the name of a column, got {names[0]!r}")
        if self.image in (self.label, self.weight, *self.box):
            raise ConfigError(
                f"Table: column {self.image!r} holds the images; it cannot be label, weight or box as well"
            )
        if len(self.box) != len(set(self.box)) or len(self.box) not in (0, 1, 4) or not _are_names(self.box):
            raise ConfigError(f"Table: box must name one column, or four (x, y, width, height), got {self.box!r}")
        if not _are_names(self.columns):
            raise ConfigError(f"Table: columns must be names of columns, got {self.columns!r}")

    def others(self) -> dict[str, bool]:
        """The columns beside the images', and whether their texts are wanted as Codes."""
        named = (self.label, self.weight, *self.box, *self.columns)
        return {name: name == self.label for name in named if name is not None}

    def meanings(self, where: RowLocator, as_paths: bool) -> list[ColumnParser]:
        """Of each column, or group of columns."""
        found: list[ColumnParser] = [PathColumn([self.image], where)] if as_paths else []
        found += [LabelColumn([self.label], where)] if self.label is not None else []
        found += [WeightColumn([self.weight], where)] if self.weight is not None else []
        found += [BoxColumn(self.box, where)] if self.box else []
        return found + [ExtraColumn([name], where) for name in self.columns]


def _are_names(names: tuple[object, ...]) -> bool:
    return all(isinstance(name, str) for name in names)


@dataclass(frozen=True, slots=True, eq=False)
class OpenedTable:
    """Files, what was found out, and arrays by name. `rows` counts those of each file."""

    files: list[tuple[str, Stat]]
    rows: list[int]
    arrays: dict[str, np.ndarray]
    leaf: str | None = None  # where a Parquet file has the images' bytes; None: the table names paths
    urls: bool = False  # some paths are
    classes: tuple[str, ...] = ()  # names by label
    textual: bool = False  # labels are texts: `classes` are all of them, sorted
    kept: Path | None = None  # where the arrays are mapped from


def open_table(files: Files, asked: RequestedColumns, storage: Storage) -> OpenedTable:
    """Read a table, or take what was kept of it."""
    if sum(stat.size for _, stat in files) < KEEP_BYTES:
        opened, arrays = _read_all(files, asked, storage)
        return replace(opened, arrays=joined(arrays))
    place = _place(files, asked)
    found = _taken(place, files, asked)
    if found is None:
        with alone(place):
            found = _taken(place, files, asked) or _kept(*_read_all(files, asked, storage), asked, place)
    return found


def reopen_table(opened: OpenedTable, asked: RequestedColumns, storage: Storage) -> OpenedTable:
    """The same again, for another process. SourceError where the table is another one by now."""
    found = _taken(opened.kept, opened.files, asked) if opened.kept is not None else None
    if found is not None:
        return found
    remote = [uri for uri, _ in opened.files if not is_local(uri)]
    stats: dict[str, object] = dict(zip(remote, storage.stat(remote), strict=True))
    for uri, before in opened.files:
        if (local_stat(uri) if is_local(uri) else stats[uri]) != before:
            raise SourceError(f"Table: {uri} has changed since this Table was made; make it anew")
    return open_table(opened.files, asked, storage)


def _place(files: Files, asked: RequestedColumns) -> Path:
    uris = [os.path.abspath(uri) if is_local(uri) else uri for uri, _ in files]
    name = hashlib.sha256("\0".join([repr(asked), *uris]).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return cache_folder() / "tables" / f"{name}.ffarrays"


def _taken(place: Path, files: Files, asked: RequestedColumns) -> OpenedTable | None:
    if not all(stat.version for _, stat in files):  # it could change unseen
        return None
    kept = load(place)
    if kept is None:
        return None
    header, arrays = kept
    if header["asked"] != repr(asked) or header["stats"] != [[stat.size, stat.version] for _, stat in files]:
        return None
    classes, textual = tuple(header["classes"]), header["textual"]
    return OpenedTable(list(files), header["rows"], arrays, header["leaf"], header["urls"], classes, textual, place)


def _read_all(files: Files, asked: RequestedColumns, storage: Storage) -> tuple[OpenedTable, ColumnArrays]:
    where, meanings, rows, reads = RowLocator(), [], [], []
    with closing(read_files(files, asked.image, asked.others(), asked.label, storage)) as found:
        for (uri, _), read in zip(files, found, strict=True):
            if not reads:
                meanings = asked.meanings(where, read.leaf is None)
            elif read.leaf != reads[0].leaf:
                raise SourceError(f"Table: {asked.image!r} is of one kind in {files[0][0]} and of another in {uri}")
            where.begin(uri, sum(rows))
            rows.append(_add(read, meanings))
            reads.append(read)
    if not sum(rows):
        more = f", nor have the other {len(files) - 1} files" if len(files) > 1 else ""
        raise SourceError(f"Table: {files[0][0]} has no rows{more}")
    arrays: ColumnArrays = _units(reads) if reads[0].leaf is not None else {}
    for meaning in meanings:
        arrays |= meaning.arrays()
    texts = next((m.texts for m in meanings if isinstance(m, LabelColumn)), None)
    urls = any(m.urls for m in meanings if isinstance(m, PathColumn))
    classes = reads[0].classes if texts is None else texts
    return OpenedTable(list(files), rows, {}, reads[0].leaf, urls, classes, texts is not None), arrays


def _add(read: TableFile, meanings: Sequence[ColumnParser]) -> int:
    """A file's parts to all that want them; how many rows it has."""
    before = [dict(meaning.rows) for meaning in meanings]
    for name, part in read.parts:
        for meaning in meanings:
            if name in meaning.names:
                meaning.add(name, part)
    read.parts = ()  # their memory is not needed twice
    if read.leaf is not None:
        return sum(unit.rows for unit in read.units)
    return next(m.rows[name] - old[name] for m, old in zip(meanings, before, strict=True) for name in m.names)


def _units(reads: Sequence[TableFile]) -> ColumnArrays:
    """Row groups, and the footers that say how they are written."""
    units = [(file, *astuple(unit)) for file, read in enumerate(reads) for unit in read.units]
    names = ("unit_file", "unit_group", "unit_rows", "unit_start", "unit_stop", "unit_unpacked")
    footers = [np.frombuffer(read.footer, np.uint8) for read in reads]
    ends = np.cumsum([len(footer) for footer in footers], dtype=np.int64)
    table = np.array(units, np.int64).reshape(-1, len(names))
    return {name: [table[:, i].copy()] for i, name in enumerate(names)} | {"footers": footers, "footer_ends": [ends]}


def _kept(opened: OpenedTable, arrays: ColumnArrays, asked: RequestedColumns, place: Path) -> OpenedTable:
    header = {
        "asked": repr(asked), "stats": [[stat.size, stat.version] for _, stat in opened.files], "rows": opened.rows,
        "leaf": opened.leaf, "urls": opened.urls, "classes": opened.classes, "textual": opened.textual,
    }  # fmt: skip
    try:
        save(place, header, arrays)
        kept = load(place)
        if kept is not None:
            return replace(opened, arrays=kept[1], kept=place)
    except OSError as error:
        warnings.warn(
            f"cannot keep a table at {place}: {error.strerror}; set FASTFEED_CACHE to a folder that can be written, "
            "or the table takes memory and is read anew each time",
            RuntimeWarning,
            stacklevel=2,
        )
    return replace(opened, arrays=joined(arrays))
