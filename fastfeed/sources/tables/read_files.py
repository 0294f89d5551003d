"""Finds the files of a table, also in Hive's folders, and reads their columns."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import unquote

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.printable import printable
from fastfeed.sources.tables.columns import Codes, ColumnPart
from fastfeed.sources.tables.csv_jsonl import csv_bytes, read_csv, read_json, row_too_large
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.expand import find_files, left_out_note, listed_paths
from fastfeed.storage.reads import ByteRange, Stat, is_local, readable
from fastfeed.storage.shard_files import ShardReader
from fastfeed.storage.storage import Storage
from fastfeed.system.descriptors import open_regular

_FORMATS = {
    ".csv": "CSV",
    ".tsv": "CSV",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".json": "JSON lines",
    ".parquet": "Parquet",
    ".arrow": "Arrow",
}
MEMORY = 512_000_000  # bytes, where a caller has no limit to give
_BLOCK = 16 << 20  # bytes of a table that is read line by line, at once, and in one request
_AHEAD = 4  # such requests at once
_FILES = 16  # Parquet files opened at once

Files = Sequence[tuple[str, Stat]]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class Unit:
    """A row group that holds images."""

    group: int  # its number in the file
    rows: int
    start: int  # bytes of the images' column in the file
    stop: int
    unpacked: int  # bytes of the images


@dataclass(slots=True)
class TableFile:
    """Columns and footer of one file."""

    # of columns by name, each column's in the order of the rows
    parts: Iterable[tuple[str, ColumnPart]]
    leaf: str | None = None  # where the images' bytes are
    has_paths: bool = True  # in `parts`, those of all images; else there are bytes
    classes: tuple[str, ...] = ()
    footer: bytes = b""
    units: list[Unit] = field(default_factory=list)
    # of an Arrow file: where each row's image is, int64 (n,) each; a length of -1 without bytes
    spans: tuple[np.ndarray, np.ndarray] | None = None


# -- which files


def find_table(table: Paths, storage: Storage) -> tuple[list[tuple[str, Stat]], list[str]]:
    """The files meant, and notes on what is left out of folders. ConfigError, SourceError."""
    paths: list[str | os.PathLike[str]] = []
    notes: list[str] = []
    for item in listed_paths(table):
        paths += _tables_in(item, storage, notes) if _is_folder(item) else [item]
    files = find_files(paths, "", storage, "Table")
    kinds = {_format(uri) for uri, _ in files}
    if len(kinds) > 1:
        raise ConfigError(
            f"Table: all files must have one format, got {' and '.join(sorted(kinds))}; pass the"
            " files of one of them",
            field="paths",
        )
    return files, notes


def _is_folder(item: Any) -> bool:
    if not isinstance(item, (str, os.PathLike)):
        return False  # find_files says what is needed
    path = os.fspath(item).removeprefix("file://")
    return os.path.isdir(path) if is_local(path) else path.endswith("/")


def _tables_in(
    folder: str | os.PathLike[str], storage: Storage, notes: list[str]
) -> list[str | os.PathLike[str]]:
    path = os.fspath(folder).removeprefix("file://")
    partitioned = _tables_among(partitioned_files(path, storage))
    if partitioned:
        return list(partitioned)
    uris = [uri for uri, _ in find_files([folder], "", storage, "Table")]
    tables = _tables_among(uris)
    if not tables:
        raise SourceError(
            f"Table: no table in {printable(path)}; {', '.join(_FORMATS)} can be read"
        )
    skipped = sorted(
        {os.path.basename(uri) for uri in uris}.difference(map(os.path.basename, tables))
    )
    if is_local(path):  # what the search did not see: hidden files, and folders
        skipped = sorted(set(os.listdir(path)).difference(map(os.path.basename, tables)))
    notes += left_out_note(skipped, path)
    return list(tables)


def _tables_among(uris: Sequence[str]) -> list[str]:
    return [
        uri
        for uri in uris
        if _suffix(uri) in _FORMATS and not os.path.basename(uri).startswith(("_", "."))
    ]


def _suffix(uri: str) -> str:
    path = uri if is_local(uri) else uri.partition("?")[0]
    return os.path.splitext(path)[1].lower()


def _format(uri: str) -> str:
    kind = _FORMATS.get(_suffix(uri))
    if kind is None:
        raise ConfigError(
            f"Table: cannot tell from its name how {uri} is written; {', '.join(_FORMATS)} can be"
            " read",
            field="paths",
        )
    return kind


# -- what is in them


def read_files(
    files: Files,
    image: str | None,
    other_columns: Mapping[str, bool],
    label: str | None,
    storage: Storage,
    memory: int = MEMORY,
) -> Generator[TableFile, None, None]:
    """Read files in turn; `other_columns` maps names to whether their texts are read as Codes.

    `image` is None where other columns make up the paths.

    `memory`: bytes that columns of Parquet may take, or what is usual for the size of their files,
    if that is more; and that a row of other formats may take, as far as it is not in one block.
    """
    if _format(files[0][0]) == "Parquet":
        yield from _read_parquet(files, image, other_columns, label, storage, memory)
        return
    if _format(files[0][0]) == "Arrow":
        yield from _read_arrow(files, image, other_columns, label, storage)
        return
    for uri, stat in files:
        images = {image: False} if image else {}
        own, requested = partitioned(uri, {**images, **other_columns})
        blocks = _blocks(uri, stat, storage)
        if _format(uri) == "CSV":
            delimiter = "\t" if _suffix(uri) == ".tsv" else ","
            lines = _lines(blocks, uri, memory, partial(csv_bytes, delimiter=delimiter))
            parts = read_csv(lines, uri, requested, delimiter, memory)
        else:
            parts = read_json(_lines(blocks, uri, memory, len), uri, requested, memory)
        yield TableFile(
            (name, part)
            for chunk in parts
            for name, part in (
                chunk | partition_parts(own, other_columns, len(next(iter(chunk.values()))))
            ).items()
        )


def _lines(
    blocks: Iterable[bytes], uri: str, memory: int, size_of: Callable[[bytes], int]
) -> Iterator[io.BytesIO]:
    """Lines with their ends, those that end in a block together.

    SourceError for one that takes more than `memory`, as far as it is not in one block.
    """
    pieces: list[bytes] = []  # of a line whose end is in a later block
    size = 0  # of them
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield io.BytesIO(b"".join([*pieces, block[:end]]))
            pieces = []
            size = 0
        pieces.append(block[end:])
        size += size_of(pieces[-1])
        if size > memory:
            raise row_too_large("line", size, uri, memory)
    yield io.BytesIO(b"".join(pieces))


def _blocks(uri: str, stat: Stat, storage: Storage) -> Iterator[bytes]:
    if is_local(uri):
        try:
            with open(open_regular(uri), "rb") as file:
                yield from iter(partial(file.read, _BLOCK), b"")
        except OSError as error:
            raise SourceError(f"Table: cannot read {uri}: {error.strerror}") from error
        return
    if stat.size <= _BLOCK:  # also where the size is not known
        yield readable(storage.read([ByteRange(uri)])[0], uri, "Table")
        return
    spans = deque(
        ByteRange(uri, at, min(at + _BLOCK, stat.size), stat) for at in range(0, stat.size, _BLOCK)
    )
    pending = deque(storage.fetch([spans.popleft() for _ in range(min(_AHEAD, len(spans)))]))
    while pending:
        block = readable(pending.popleft().result(), uri, "Table")
        pending += storage.fetch([spans.popleft()]) if spans else []
        yield block


def _read_parquet(
    files: Files,
    image: str | None,
    other_columns: Mapping[str, bool],
    label: str | None,
    storage: Storage,
    memory: int,
) -> Iterator[TableFile]:
    from fastfeed.sources.tables import parquet  # loads PyArrow
    from fastfeed.sources.tables.arrow import class_names

    shards = ShardReader([uri for uri, _ in files], [stat for _, stat in files], storage)
    budget = parquet.Budget(memory, sum(stat.size for _, stat in files))

    def read(file: int) -> TableFile:
        footer = parquet.read_footer(shards, file)
        own, inside = partitioned(files[file][0], other_columns)
        constant = partition_parts(
            own, other_columns, sum(group.rows for group in footer.groups)
        ).items()
        classes = class_names(footer.schema, label) if label is not None else ()
        if image is None:
            parts = parquet.read_parquet(shards, file, footer, inside, budget)
            return TableFile(chain(parts, constant), classes=classes)
        leaf, paths = parquet.image_columns(shards, file, footer, image)
        if paths:
            inside = {image: False, **inside}
        elif image in other_columns:
            raise ConfigError(
                f"Table: column {image!r} holds images as bytes; leave it out of columns",
                field="columns",
            )
        fields = {image: paths} if paths else {}
        parts = parquet.read_parquet(shards, file, footer, inside, budget, fields) if inside else ()
        result = TableFile(chain(parts, constant), leaf, bool(paths), classes)
        if leaf is not None:
            result.footer = footer.tail
            result.units = [
                Unit(k, group.rows, *footer.span(k, leaf))
                for k, group in enumerate(footer.groups)
                if group.rows
            ]
        return result

    def read_whole(file: int) -> TableFile:
        table_file = read(file)
        table_file.parts = list(table_file.parts)
        return table_file

    try:
        if len(files) == 1:  # part by part, by the thread that uses them
            yield read(0)
        else:
            with ThreadPoolExecutor(
                min(_FILES, len(files)), thread_name_prefix="fastfeed-table"
            ) as pool:
                try:
                    yield from pool.map(read_whole, range(len(files)))
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
    finally:
        parquet.give_back()


def _read_arrow(
    files: Files,
    image: str | None,
    other_columns: Mapping[str, bool],
    label: str | None,
    storage: Storage,
) -> Iterator[TableFile]:
    from fastfeed.sources.tables.arrow import class_names  # loads PyArrow
    from fastfeed.sources.tables.arrow_file import ArrowFile

    shards = ShardReader([uri for uri, _ in files], [stat for _, stat in files], storage)
    for file, (uri, _) in enumerate(files):
        own, inside = partitioned(uri, other_columns)
        arrow = ArrowFile(shards, file)
        parts, spans = arrow.read(image, inside)
        constant = partition_parts(own, other_columns, arrow.rows)
        classes = () if label is None else class_names(arrow.schema, label)
        yield TableFile([*parts, *constant.items()], classes=classes, spans=spans)


_NULL = "__HIVE_DEFAULT_PARTITION__"


def partitioned_files(folder: str, storage: Storage) -> list[str]:
    """All files in folders called `name=value` below this one, sorted."""
    root = folder.rstrip("/") + "/"
    if is_local(folder):
        return sorted(_walk(folder))
    below = [
        (uri, uri.removeprefix(root).split("/")[:-1]) for uri, _ in storage.find(folder.rstrip("/"))
    ]
    return sorted(uri for uri, parts in below if parts and all("=" in part for part in parts))


def _walk(folder: str) -> Iterator[str]:
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if "=" in name]
        if base != folder:
            yield from (os.path.join(base, name) for name in names)


def partitioned(
    uri: str, requested: Mapping[str, bool]
) -> tuple[dict[str, str | None], dict[str, bool]]:
    """Columns from the names of a file's folders, None for null; and those in the file."""
    columns: dict[str, str | None] = {}
    for part in reversed(uri.split("/")[:-1]):
        name, equals, value = part.partition("=")
        if not equals or not name:
            break
        columns.setdefault(unquote(name), None if value == _NULL else unquote(value))
    return columns, {name: coded for name, coded in requested.items() if name not in columns}


def partition_parts(
    columns: Mapping[str, str | None], coded: Mapping[str, bool], rows: int
) -> dict[str, ColumnPart]:
    """Partition columns repeated for a number of rows; `coded` ones as Codes."""
    return {
        name: _part(value, coded[name], rows) for name, value in columns.items() if name in coded
    }


def _part(value: str | None, coded: bool, rows: int) -> ColumnPart:
    null = np.ones(rows, bool) if value is None else None
    if coded:
        return ColumnPart(Codes(np.zeros(rows, np.int64), (value or "",)), null, typed=False)
    text = np.frombuffer((value or "").encode("utf-8", "surrogateescape"), np.uint8)
    return ColumnPart(
        StringColumn(np.tile(text, rows), np.arange(1, rows + 1) * len(text)), null, typed=False
    )
