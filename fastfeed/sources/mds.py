"""Shards of MosaicML's streaming (MDS): random access, without its package.

A shard is `u32 n, u32 offsets[n + 1], configuration as JSON, samples`; a sample the sizes (u32) of those columns that
vary, then all columns, sorted by name: streaming/base/format/mds/writer.py. Little endian. The folder's `index.json`
lists the shards.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.runtime.addresses import FileRanges
from fastfeed.sources.access import allow_of
from fastfeed.sources.shards.base import Paths, ShardedSource
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.shards.extra_columns import LARGEST, LARGEST_ARRAY, ValueLocation, add_row, column_names
from fastfeed.sources.shards.index import ShardScan
from fastfeed.sources.shards.labels import LabelKind
from fastfeed.sources.shards.mds_file import (
    NUMBERS,
    Damaged,
    array_kind,
    column_encodings,
    column_locations,
    header,
    short_value,
)
from fastfeed.sources.shards.mds_index import expand_indexes
from fastfeed.storage.byte_range import Stat
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.expand import find_files
from fastfeed.storage.retry import Unread
from fastfeed.storage.storage import Storage

__all__ = ["MDSShards"]

_IMAGES = ("bytes", "jpeg", "png", "jpeg_array", "jpegarray")  # encodings whose bytes are a file's
_NAMES = ("uri", "key", "filename", "id")  # columns that name a sample, where they are texts
_NOTES = 50  # kept per shard
_DAMAGED = 1  # in place of a check

_TEXTS: dict[str, Callable[[str], Any]] = {
    "str": str, "bytes": str, "str_int": int, "str_float": float, "str_decimal": str, "json": json.loads,
}  # fmt: skip


class MDSShards(ShardedSource):
    """Images in the shards of MosaicML's streaming, without its package.

    Compressed shards cannot be read at random and are refused.

    Args:
        shards (str | os.PathLike[str] | Sequence): A folder with its `index.json`, such a file, `.mds` files, a
            pattern, or a list of these, local or remote (`s3://...`).
        image (str): Column with the encoded image. Default: "image".
        label (str | None): Column with an integer (below 0: none) or a text; None for none. Default: "label".
        columns (Sequence[str]): Other columns that are carried to the batch. Default: ().
        label_kind (str | None): "index": integers are labels already, and `classes` names them; "name": they are names
            of classes, sorted and numbered as texts are. Default: None, "index" in a column named `label` or `cls`,
            else "name".
        classes (Sequence[str] | None): Names of classes in the order of their labels; `train.classes` for validation.
            Default: None, the sorted names of the data.
        storage (dict[str, Any] | Storage | None): Options for fsspec (key, secret, endpoint_url, anon ...), or a
            Storage that several sources share. Default: None.
        cache (str | os.PathLike[str] | Cache | None): Local folder in which what is read from remote storage is kept.
            Default: None, nothing is kept.
        index (str | os.PathLike[str] | None): File of the index of samples. Default: None, next to the shards or, where
            that cannot be written, in FASTFEED_CACHE (`~/.cache/fastfeed`).
        progress (bool | None): Show how far indexing is. Default: None, on a terminal.
        allow_path (Sequence[str | os.PathLike[str]]): Other folders, or addresses, below which an `index.json` may name
            shards, as in Table: it may be from elsewhere. Default: ().
        allow_host (Sequence[str]): As in Table. Default: ().
        allow_scheme (Sequence[str]): As in Table. Default: ().

    Raises:
        ConfigError: If an argument is wrong.
        SourceError: If shards cannot be read, or no sample has an image or a label.

    Example:
        >>> ff.MDSShards("mds")
        MDSShards(mds/shard.00000.mds and 1 more): 8 images
    """

    suffix = ".mds"

    def __init__(
        self,
        shards: Paths,
        *,
        image: str = "image",
        label: str | None = "label",
        columns: Sequence[str] = (),
        label_kind: LabelKind | None = None,
        classes: Sequence[str] | None = None,
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        index: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
        allow_path: Sequence[str | os.PathLike[str]] = (),
        allow_host: Sequence[str] = (),
        allow_scheme: Sequence[str] = (),
    ) -> None:
        for option, name in (("image", image), ("label", image if label is None else label)):
            if not isinstance(name, str) or not name:
                raise ConfigError(f"MDSShards: {option} must be the name of a column, got {name!r}")
        self._image, self._label, self._names = image, label, column_names(columns, "MDSShards")
        self._kinds: dict[str, str] = {}
        self._allow = allow_of(allow_path, allow_host, allow_scheme, "MDSShards")
        super().__init__(
            shards, f"mds 1 image {image!r} label {label!r}", label=label, label_kind=label_kind, classes=classes,
            storage=storage, cache=cache, index=index, progress=progress, columns=self._names,
        )  # fmt: skip

    def _files(self, shards: Paths, storage: Storage) -> tuple[list[tuple[str, Stat]], Storage]:
        paths, storage = expand_indexes(shards, storage, self._allow)
        files = find_files(paths, self.suffix, storage, "MDSShards", self._folder_notes)
        encodings = column_encodings(*files[0], storage)
        for name in dict.fromkeys([self._image, *([self._label] if self._label else []), *self._names]):
            if name not in encodings:
                raise ConfigError(f"MDSShards: no column {name!r} in {files[0][0]}; it has {', '.join(encodings)}")
        if encodings[self._image] not in _IMAGES:
            raise ConfigError(
                f"MDSShards: the image column must hold {', '.join(_IMAGES)}, got {self._image!r} with "
                f"{encodings[self._image]!r}; pass image='its name'"
            )
        for name in self._names:
            if encodings[name] not in _TEXTS and encodings[name] not in NUMBERS and not array_kind(encodings[name]):
                raise ConfigError(
                    f"MDSShards: columns must hold {', '.join((*_TEXTS, *NUMBERS))}, ndarray:TYPE:SHAPE, "
                    f"got {name!r} with {encodings[name]!r}; leave it out of columns"
                )
        self._kinds = encodings
        return files, storage

    def _scan(self, reader: ForwardReader) -> ShardScan:
        return self._scan_samples(reader, ShardScan(), ShardScan())[0]

    def _scan_columns(self, reader: ForwardReader) -> ShardScan:
        return self._scan_samples(reader, ShardScan(), ShardScan())[1]

    def _scan_samples(
        self, reader: ForwardReader, scan: ShardScan, column_scan: ShardScan
    ) -> tuple[ShardScan, ShardScan]:
        offsets, columns = header(reader)
        kinds = dict(zip(columns.names, columns.encodings, strict=True))
        for name in (self._image, self._label, *self._names):
            if name is None or len(offsets) == 1:
                continue
            kind, needed = kinds.get(name, "missing"), self._kinds[name]
            if kind != needed and not (name == self._image and kind in _IMAGES):
                raise SourceError(f"MDSShards: column {name!r} is {kind} in {reader.uri}, {needed} in the first shard")
        name_column = next((name for name in _NAMES if kinds.get(name) == "str"), None)
        notes: list[str] = []
        for k, (start, stop) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
            try:
                locations = column_locations(reader, columns, start, stop)
                image, label = locations[self._image], None
                if self._label is not None:
                    label = self._label_in(reader, locations[self._label], k, notes)
                name = short_value(reader, locations[name_column]) if name_column else b""
                scan.add(image.offset, image.size, label, name or b"%06d" % k)
            except Damaged as error:
                locations = {}
                notes.append(f"sample {k} at {start} is damaged: {error}")
                scan.add(min(start, reader.size), 0, None, b"%06d" % k, _DAMAGED)
            add_row(column_scan, self._names, locations)
        scan.notes = notes[:_NOTES] + ([f"and {len(notes) - _NOTES} more"] if len(notes) > _NOTES else [])
        return scan, column_scan

    def _label_in(self, reader: ForwardReader, location: ValueLocation, k: int, notes: list[str]) -> int | str | None:
        assert self._label is not None
        try:
            if location.size > 1000:
                raise ValueError(f"{location.size} bytes, too long for a label")
            value = self._value(self._label, reader.read(location.offset, location.size))
            if isinstance(value, str) and value.isprintable():
                return value or None
            value = int(value) if isinstance(value, float) and value.is_integer() else value
            if isinstance(value, bool) or not isinstance(value, int) or value >= 1 << 31:
                raise ValueError(f"got {value!r:.60}, must be an integer or a string")
            return value if value >= 0 else None
        except (ValueError, RecursionError) as error:
            notes.append(f"no label in sample {k}: {error}")
            return None

    def _value(self, name: str, data: bytes) -> Any:
        kind = self._kinds[name]
        if kind in _TEXTS:
            return _TEXTS[kind](data.decode())
        if of_array := array_kind(kind):
            return np.frombuffer(data, of_array[0]).reshape(of_array[1])
        if len(data) != NUMBERS[kind].itemsize:
            raise ValueError(f"{len(data)} bytes where {kind} has {NUMBERS[kind].itemsize}")
        return np.frombuffer(data, NUMBERS[kind])[0].item()

    def _largest(self, name: str) -> int:
        return LARGEST_ARRAY if array_kind(self._kinds[name]) else LARGEST

    def _cuts(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        starts = self._index.offsets[ids]
        return starts, starts, starts + self._index.lengths[ids]

    def addresses(self, ids: np.ndarray) -> FileRanges | None:
        """Local images; None for remote shards."""
        return self._addresses(ids, self._index.checks[ids] == _DAMAGED)

    def _unwrap(self, i: int, head: bytes, data: bytes) -> bytes | Unread:
        if self._index.checks[i] == _DAMAGED:
            return Unread("corrupt", "the sizes in the sample are invalid")
        return data

    def _label_advice(self) -> str:
        return "pass label='the column that holds it', or label=None for images without"
