"""Writes Parquet: one row per sample, in row groups small enough to be read with little memory.

Columns: key, image (binary: the encoded file), extension, height, width, label (null: none), class,
text, uri, meta (all metadata, JSON), and a (nested) list of numbers for each array, float32 for
float16, which few readers know. Hugging Face datasets read `image` with `cast_column("image",
Image())`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fastfeed.errors import MissingExtra
from fastfeed.preprocess.model.recipe import Packing
from fastfeed.preprocess.model.record import Entry
from fastfeed.preprocess.writers import base
from fastfeed.preprocess.writers.base import Create, File, as_json, as_text, meta_text

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


class Writer(base.Writer):
    """Writes one `.parquet`. A row group is kept in memory until it is complete."""

    format = "parquet"

    def __init__(self, create: Create, stem: str, packing: Packing) -> None:
        super().__init__(create, stem, packing)
        self._group_bytes = min(packing.group_bytes, _MAX_GROUP)
        self._guarded = _GuardedFile(self._file)
        self._rows: list[dict[str, Any]] = []
        self._batches: list[pa.RecordBatch] = []
        self._bytes = self._loose = 0  # of the group; of rows not in a batch yet
        self._schema = _SCHEMA
        self._parquet = None

    def add(self, entry: Entry) -> None:
        """Append the next row."""
        arrays = self.columns.arrays(entry)
        if self._parquet is None:
            self._schema = pa.schema(
                [*_SCHEMA, *(pa.field(name, _lists(array)) for name, array in arrays)]
            )
        row = {
            "key": entry.key,
            "image": entry.image,
            "extension": entry.extension,
            "height": entry.height,
            "width": entry.width,
            "label": entry.label,
            "class": meta_text(entry, "class") or None,
            "text": None if entry.text is None else as_text(entry.text),
            "uri": meta_text(entry, "uri") or None,
            "meta": as_json(entry.meta).decode(),
            **{name: array.tolist() for name, array in arrays},
        }
        texts = [item.encode() if isinstance(item, str) else item for item in row.values()]
        size = sum(len(item) if isinstance(item, bytes) else 8 for item in texts)
        size += sum(array.nbytes for _, array in arrays)
        if self._bytes and self._bytes + size > self._group_bytes:
            self._flush()
        self._rows.append(row)
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
            compression = dict.fromkeys(self._schema.names, "ZSTD") | {"image": "NONE"}
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
            self._batches.append(pa.RecordBatch.from_pylist(self._rows, self._schema))
        self._rows = []
        self._loose = 0

    def _flush(self) -> None:
        """Write the batches as a row group."""
        self._gather()
        if self._batches:
            table, parquet = pa.Table.from_batches(self._batches), self._opened()
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
