"""Listings of images as files with columns path, class, label, size, version.

The same as arrays (`.ffarrays`), which only ImageFolder reads, loads at once and holds every name,
even if it is not UTF-8.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, MissingExtra, SourceError
from fastfeed.printable import printable
from fastfeed.runtime.atomic_write import atomic_write
from fastfeed.sources import mmap_arrays as mapped
from fastfeed.sources.listing.file_table import FileTable, unpacked
from fastfeed.sources.listing.skipped_files import SkippedFiles
from fastfeed.sources.tables.columns import Codes, ColumnPart
from fastfeed.sources.tables.read_files import read_files
from fastfeed.sources.tables.string_column import StringColumn, numbers
from fastfeed.storage.expand import stat_file
from fastfeed.storage.reads import readable
from fastfeed.storage.shard_files import ShardReader
from fastfeed.storage.storage import Storage

ARRAYS = ".ffarrays"

_COLUMNS = ("path", "class", "label", "size", "version")


def check_suffix(path: str, who: str) -> str:
    """`.parquet`, `.csv`, `.jsonl` or ARRAYS.

    ConfigError for another one, MissingExtra without PyArrow.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in _WRITERS:
        raise ConfigError(
            f"{who}: a listing must end in .parquet, .csv, .jsonl, got {printable(path)}",
            field="out",
        )
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise MissingExtra(
            f"{MissingExtra.of(f'{who}: a listing in Parquet', 'PyArrow', 'parquet')}; or write a"
            " .csv"
        )
    return suffix


# -- writing


_Facts = Callable[[], dict[str, Any]]  # known once all images are written


def write_listing(
    path: str, parts: Iterable[FileTable], classes: Sequence[str], skipped: SkippedFiles, root: str
) -> None:
    """Write images with labels, sizes and versions, all or nothing.

    `classes` and `skipped` may grow while images are written.
    """

    def facts() -> dict[str, Any]:
        return {"root": root, "left_out": skipped.counts, "left_out_examples": skipped.examples}

    with atomic_write(path, hidden=True) as file:
        _WRITERS[os.path.splitext(path)[1].lower()](file, parts, classes, facts)


def _write_parquet(
    file: Any, parts: Iterable[FileTable], classes: Sequence[str], facts: _Facts
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    def strings(texts: StringColumn) -> Any:
        ends = np.concatenate([[0], texts.ends]).astype(np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(texts.blob))]
        return pa.Array.from_buffers(pa.string(), len(texts), buffers)

    kinds = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.string())
    schema = pa.schema(list(zip(_COLUMNS, kinds, strict=True)))
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in parts:
            assert rows.sizes is not None and rows.versions is not None and rows.labels is not None
            names = pa.DictionaryArray.from_arrays(
                rows.labels + np.int32(1), pa.array(["", *classes], pa.string())
            )
            columns = [
                strings(rows.paths),
                names.cast(pa.string()),
                pa.array(rows.labels, pa.int32()),
                pa.array(rows.sizes, pa.int64(), mask=rows.sizes < 0),
                strings(rows.versions),
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
        writer.add_key_value_metadata({"fastfeed": json.dumps(facts())})


def _write_csv(
    file: Any, parts: Iterable[FileTable], classes: Sequence[str], facts: _Facts
) -> None:
    text = io.TextIOWrapper(file, "utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for rows in parts:
        writer.writerows(_values(rows, classes))
    text.detach()


def _write_jsonl(
    file: Any, parts: Iterable[FileTable], classes: Sequence[str], facts: _Facts
) -> None:
    for rows in parts:
        for values in _values(rows, classes):
            file.write(json.dumps(dict(zip(_COLUMNS, values, strict=True))).encode() + b"\n")


def _write_arrays(
    file: Any, parts: Iterable[FileTable], classes: Sequence[str], facts: _Facts
) -> None:
    rows = FileTable.joined(list(parts))
    assert rows.sizes is not None and rows.versions is not None and rows.labels is not None
    arrays = {
        "paths": [rows.paths.blob],
        "path_ends": [rows.paths.ends],
        "sizes": [rows.sizes],
        "labels": [rows.labels],
        "versions": [rows.versions.blob],
        "version_ends": [rows.versions.ends],
    }
    mapped.put(file, {**facts(), "classes": list(classes)}, arrays)


_WRITERS = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ARRAYS: _write_arrays,
}


def _values(rows: FileTable, classes: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    assert rows.sizes is not None and rows.versions is not None and rows.labels is not None
    sizes = [size if size >= 0 else None for size in rows.sizes.tolist()]
    columns = zip(
        unpacked(rows.paths), rows.labels.tolist(), sizes, unpacked(rows.versions), strict=True
    )
    for path, label, size, version in columns:
        yield path.decode(), classes[label] if label >= 0 else "", label, size, version.decode()


# -- reading


def read_listing(
    path: str, storage: Storage, versions: bool, who: str
) -> tuple[FileTable, list[str], SkippedFiles]:
    """Images labeled by folder, folders' names, and skipped files if the file has them."""
    if check_suffix(path, who) == ARRAYS:
        return _read_arrays(path, versions, who)
    requested = {"class": True, "size": False} | ({"version": False} if versions else {})
    columns: dict[str, list[ColumnPart]] = {name: [] for name in ("path", *requested)}
    stat = readable(stat_file(path, storage), path, who)
    for part_of in read_files([(path, stat)], "path", requested, None, storage):
        for name, part in part_of.parts:
            columns[name].append(part)

    def texts(column: str) -> StringColumn:
        return StringColumn.joined([_texts(part, path, who) for part in columns[column]])

    folders: dict[str, int] = {"": -1}
    labels = [_codes(part, folders) for part in columns["class"]]
    rows = FileTable(
        texts("path"),
        _sizes(columns["size"], path, who),
        texts("version") if versions else None,
        labels=np.concatenate([np.empty(0, np.int32), *labels]),
    )
    _check(rows.paths, path, who)
    facts: Any = {}
    if check_suffix(path, who) == ".parquet":
        from fastfeed.sources.tables.parquet import read_footer  # loads PyArrow

        metadata = read_footer(ShardReader([path], [stat], storage), 0).about.metadata or {}
        facts = json.loads(metadata.get(b"fastfeed", b"{}"))
        facts = facts if isinstance(facts, dict) else {}
    return rows, list(folders)[1:], _skipped(facts)


def _skipped(facts: dict[str, Any]) -> SkippedFiles:
    return SkippedFiles(Counter(facts.get("left_out", {})), facts.get("left_out_examples", {}))


def _read_arrays(path: str, versions: bool, who: str) -> tuple[FileTable, list[str], SkippedFiles]:
    """Load arrays into memory: reading a mapped file that is truncated kills the process."""
    header, stored = _arrays(path, who)
    try:
        arrays = {name: np.array(array) for name, array in stored.items()}
        rows = FileTable(
            StringColumn(arrays["paths"], arrays["path_ends"]),
            arrays["sizes"],
            StringColumn(arrays["versions"], arrays["version_ends"]) if versions else None,
            labels=arrays["labels"],
        )
        folders = [str(name) for name in header["classes"]]
    except (KeyError, TypeError) as error:
        raise _not_a_listing(path, who, f"it lacks {error}") from error
    _check(rows.paths, path, who)
    return rows, folders, _skipped(header)


def _arrays(path: str, who: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    loaded = mapped.load(Path(path))
    if loaded is None:
        raise _not_a_listing(path, who, "it is missing or damaged")
    return loaded


def read_header(path: str, who: str) -> dict[str, Any]:
    """The header of a listing as arrays: "root", and "left_out", file counts by extension."""
    return _arrays(path, who)[0]


def _codes(part: ColumnPart, folders: dict[str, int]) -> np.ndarray:
    """Index of each image's folder; new ones are added to `folders`."""
    if not isinstance(part.values, Codes):  # all are null
        return np.full(len(part), -1, np.int32)
    table = np.array(
        [folders.setdefault(name, len(folders) - 1) for name in part.values.texts], np.int32
    )
    return np.where(
        part.missing(), np.int32(-1), table[part.values.codes] if len(table) else np.int32(-1)
    )


def _texts(part: ColumnPart, path: str, who: str) -> StringColumn:
    if isinstance(part.values, StringColumn):
        return part.values
    if part.missing().all():
        return StringColumn(np.empty(0, np.uint8), np.zeros(len(part), np.int64))
    raise _not_a_listing(path, who, "its paths, classes or versions are not texts")


def _sizes(parts: Sequence[ColumnPart], path: str, who: str) -> np.ndarray:
    texts = [part.values for part in parts if isinstance(part.values, StringColumn)]
    arrays = [part.values for part in parts if isinstance(part.values, np.ndarray)]
    arrays = (numbers(texts) or []) if texts else arrays
    if len(arrays) != len(parts) or any(array.ndim > 1 for array in arrays):
        raise _not_a_listing(path, who, "its sizes are not numbers")
    sizes = [
        np.where(part.missing(), -1, array).astype(np.int64)
        for part, array in zip(parts, arrays, strict=True)
    ]
    return np.concatenate([np.empty(0, np.int64), *sizes])


def _check(paths: StringColumn, path: str, who: str) -> None:
    """Check that every path is valid, and inside the folder."""
    for row, name in enumerate(unpacked(paths)):
        if not name or name.startswith(b"/") or (b".." in name and b".." in name.split(b"/")):
            problem = f"leads out of the folder: {os.fsdecode(name)!r}" if name else "is empty"
            raise _not_a_listing(path, who, f"the path of row {row} {problem}")


def _not_a_listing(path: str, who: str, problem: str) -> SourceError:
    return SourceError(
        f"{who}: {path} is not a listing, {problem}; `fastfeed index` makes one, and Table reads"
        " other tables"
    )
