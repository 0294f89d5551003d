"""Writes Parquet: one row per sample, in row groups small enough to be read with little memory.

Columns: key, image (binary: the encoded file; of several images one by the name of each), extension, height, width, label (null: none) and
class, which are lists where samples have several classes, text, uri, meta (all metadata, JSON), a (nested) list of numbers for each array, float32 for
float16, which few readers know, and metadata columns in Parquet's own types. Hugging Face datasets read `image` with `cast_column("image",
Image())`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np

from fastfeed.errors import MissingExtra
from fastfeed.preprocess.model.record import Entry
from fastfeed.preprocess.writers import base
from fastfeed.preprocess.writers.base import File, as_json, as_text, class_texts, meta_text
from fastfeed.sources.tables.column_types import ColumnType

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtra.of("Parquet shards", "PyArrow", "parquet") from error

_BATCH_BYTES = 4 << 20  # bytes kept as Python objects before conversion to an Arrow batch
_MAX_GROUP = 1 << 30  # bytes per row group: readers need columns below 2 GiB
_PAGE = 1 << 20  # bytes
_ROWS = 8  # rows between checks whether a page is full
_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("image", pa.binary(), nullable=False),
        pa.field("extension", pa.string(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("label", pa.int64()),
        pa.field("class", pa.string()),
        pa.field("text", pa.string()),
        pa.field("uri", pa.string()),
        pa.field("meta", pa.string(), nullable=False),
    ]
)


class ParquetWriter(base.ShardWriter):
    """Writes one `.parquet`. A row group is kept in memory until it is complete."""

    format = "parquet"

    def _begin(self) -> None:
        self._group_bytes = min(self._packing.group_bytes, _MAX_GROUP)
        self._guarded = _GuardedFile(self._file)
        self._rows: list[dict[str, Any]] = []
        self._batches: list[pa.RecordBatch] = []
        self._bytes = self._loose = 0  # of the group; of rows not in a batch yet
        self._column_fields = [
            pa.field(name, _arrow_type(kind)) for name, kind in self.types.items()
        ]
        lists = [pa.field(name, pa.list_(_SCHEMA.field(name).type)) for name in ("label", "class")]
        several = {field.name: [field] for field in lists if self.multi}
        several["image"] = [_SCHEMA.field("image").with_name(name) for name in self._image_names]
        self._plain = [own for field in _SCHEMA for own in several.get(field.name, [field])]
        self._schema = pa.schema([*self._plain, *self._column_fields])
        self._values: dict[str, list[Any]] = {name: [] for name in self.types}  # of loose rows
        self._parquet = None

    @property
    def _image_names(self) -> tuple[str, ...]:
        return self.images or ("image",)

    def add(self, entry: Entry) -> None:
        """Append one sample as a row."""
        arrays = self.columns.arrays(entry)
        if self._parquet is None:
            self._schema = pa.schema(
                [
                    *self._plain,
                    *(pa.field(name, _lists(a)) for name, a in arrays),
                    *self._column_fields,
                ]
            )
        row = {
            "key": entry.key,
            **{name or "image": image.image for name, image in self.named_images(entry).items()},
            "extension": entry.extension,
            "height": entry.height,
            "width": entry.width,
            "label": entry.label,
            "class": class_texts(entry) if self.multi else meta_text(entry, "class") or None,
            "text": None if entry.text is None else as_text(entry.text),
            "uri": meta_text(entry, "uri") or None,
            "meta": as_json(entry.meta).decode(),
            **{name: array.tolist() for name, array in arrays},
        }
        texts = [item.encode() if isinstance(item, str) else item for item in row.values()]
        size = sum(len(item) if isinstance(item, bytes) else 8 for item in texts)
        size += sum(array.nbytes for _, array in arrays)
        values = entry.columns(self.types)
        size += sum(len(value) if hasattr(value, "__len__") else 8 for _, _, value in values)
        if self._bytes and self._bytes + size > self._group_bytes:
            self._flush()
        self._rows.append(row)
        for name, _, value in values:
            self._values[name].append(value)
        self._bytes += size
        self._loose += size
        if self._loose >= _BATCH_BYTES:
            self._gather()

    def close(self) -> list[int]:
        """Complete the file; rows have no offsets."""
        self._flush()
        parquet = self._opened()
        with self._guarded.in_use():
            parquet.close()
        self._guarded.file.close()
        return []

    def _opened(self) -> pq.ParquetWriter:
        """Created when the first row group is written: its arrays are known then."""
        if self._parquet is None:
            compression = dict.fromkeys(self._schema.names, "ZSTD")
            compression |= dict.fromkeys(self._image_names, "NONE")
            with self._guarded.in_use():
                self._parquet = pq.ParquetWriter(
                    self._guarded,
                    self._schema,
                    version="2.6",
                    data_page_version="1.0",
                    compression=compression,
                    use_dictionary=["extension", "class"],
                    write_statistics=["key", "height", "width", "label"],
                    data_page_size=_PAGE,
                    write_batch_size=_ROWS,
                    # Parquet's types suffice, and PyArrow versions add different schemas
                    store_schema=False,
                )
        return self._parquet

    def _gather(self) -> None:
        """Convert loose rows to a batch."""
        if self._rows:
            plain = (
                self._schema
                if not self._column_fields
                else pa.schema(list(self._schema)[: -len(self._column_fields)])
            )
            batch = pa.RecordBatch.from_pylist(self._rows, plain)
            own = [
                pa.array([_python(kind, value) for value in self._values[name]], _arrow_type(kind))
                for name, kind in self.types.items()
            ]
            self._batches.append(
                pa.RecordBatch.from_arrays([*batch.columns, *own], schema=self._schema)
            )
        self._rows = []
        self._values = {name: [] for name in self.types}
        self._loose = 0

    def _flush(self) -> None:
        """Write the batches as a row group."""
        self._gather()
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            parquet = self._opened()
            try:
                with self._guarded.in_use():
                    parquet.write_table(table, row_group_size=table.num_rows)
            except BaseException:  # including Ctrl-C
                parquet.is_open = False  # else PyArrow would complete the file on deletion
                raise
        self._batches = []
        self._bytes = 0


def _lists(array: np.ndarray) -> pa.DataType:
    kind = pa.float32() if array.dtype == np.float16 else pa.from_numpy_dtype(array.dtype)
    for _ in array.shape:
        kind = pa.list_(kind)
    return kind


_ARROW: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "json": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
}


def _arrow_type(kind: ColumnType) -> pa.DataType:
    """The type of a metadata column."""
    if isinstance(kind, str):
        return _ARROW[kind]
    if kind[0] == "list":
        return pa.list_(_arrow_type(kind[1]))
    if kind[0] == "struct":
        return pa.struct([pa.field(name, _arrow_type(own)) for name, own in kind[1]])
    if kind[0] == "timestamp":
        return pa.timestamp(_unit(kind[1]), "UTC" if kind[2] else None)
    return pa.decimal128(kind[1], kind[2]) if kind[1] <= 38 else pa.decimal256(kind[1], kind[2])


def _python(kind: ColumnType, value: Any) -> Any:
    """A value as JSON holds it, or bytes, as PyArrow takes it for the type."""
    if value is None or kind in ("bool", "int", "float", "bytes"):
        return value
    if kind == "json":
        return as_json(value).decode()
    if kind == "text":
        return as_text(value)
    if kind == "date":
        return date.fromisoformat(value)
    name, inner, *_ = kind
    if name == "list":
        return [_python(inner, item) for item in value]
    if name == "struct":
        return {field: _python(own, value.get(field)) for field, own in inner}
    if name == "decimal":
        return Decimal(value)
    return int(np.datetime64(value.removesuffix("Z"), _unit(inner)).astype(np.int64))


def _unit(unit: str) -> str:
    """The unit of a timestamp: Parquet has no seconds."""
    return "ms" if unit == "s" else unit


class _GuardedFile:
    """A file for PyArrow that discards writes when an incomplete file is deleted."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.closed = False
        self._is_open = False

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Writes inside the block go to the file."""
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False

    def write(self, data: Any) -> int:
        if self._is_open:
            self.file.write(data)
        return len(data)

    def flush(self) -> None: ...
    def close(self) -> None: ...
    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False
