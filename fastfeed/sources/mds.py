"""Shards of MosaicML's streaming (MDS): read at random, without its package.

A shard is `u32 n, u32 offsets[n + 1], configuration as JSON, samples`; a sample the sizes (u32) of those columns that
vary, then all columns, sorted by name: streaming/base/format/mds/writer.py. Little endian. The folder's `index.json`
lists the shards.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.shards.base import Packed, Paths
from fastfeed.sources.shards.build_index import Peek
from fastfeed.sources.shards.extra_columns import Place, names_of, note
from fastfeed.sources.shards.index import Found
from fastfeed.storage.byte_range import Span, Stat, is_local
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.expand import find_files
from fastfeed.storage.local_file import read_file
from fastfeed.storage.retry import Unread
from fastfeed.storage.storage import Storage

__all__ = ["MDSShards", "columns_of"]

_INDEX = "index.json"
_IMAGES = ("bytes", "jpeg", "png", "jpeg_array", "jpegarray")  # encodings whose bytes are a file's
_NAMES = ("uri", "key", "filename", "id")  # columns that name a sample, where they are texts
_LONGEST_NAME = 255  # bytes
_MOST = 1 << 20  # bytes of a configuration
_NOTES = 50  # kept per shard
_DAMAGED = 1  # in place of a check

_INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
_NUMBERS = {kind: np.dtype(kind).newbyteorder("<") for kind in (*_INTEGERS, "float16", "float32", "float64")}
_NUMBERS["int"] = np.dtype("<i8")
_TEXTS: dict[str, Callable[[str], Any]] = {
    "str": str, "bytes": str, "str_int": int, "str_float": float, "str_decimal": str, "json": json.loads,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Columns:
    """Of a shard, in the order in which they are written."""

    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int, ...]  # bytes; 0: varies


class MDSShards(Packed):
    """Images in the shards of MosaicML's streaming: `MDSShards("folder")`, with its `index.json`.

    `shards` is such a folder, an `index.json`, `.mds` files, a pattern, or a list of these, local or remote. `image`
    names the column with the encoded image, `label` the one with an integer (below 0: none) or a text; None for images
    without; `columns` others that are carried along. Compressed shards cannot be read at random and are refused.
    """

    suffix = ".mds"

    def __init__(
        self,
        shards: Paths,
        *,
        image: str = "image",
        label: str | None = "label",
        columns: Sequence[str] = (),
        classes: Sequence[str] | None = None,
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        index: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
    ) -> None:
        for option, name in (("image", image), ("label", image if label is None else label)):
            if not isinstance(name, str) or not name:
                raise ConfigError(f"MDSShards: {option} must be the name of a column, got {name!r}")
        self._image, self._label, self._names = image, label, names_of(columns, "MDSShards")
        self._kinds: dict[str, str] = {}
        super().__init__(
            shards, f"mds 1 image {image!r} label {label!r}", labeled=label is not None, classes=classes,
            storage=storage, cache=cache, index=index, progress=progress, columns=self._names,
        )  # fmt: skip

    def _files(self, shards: Paths, storage: Storage) -> list[tuple[str, Stat]]:
        files = find_files(listed(shards, storage), self.suffix, storage, "MDSShards", self._folder_notes)
        there = columns_of(*files[0], storage)
        for name in dict.fromkeys([self._image, *([self._label] if self._label else []), *self._names]):
            if name not in there:
                raise ConfigError(f"MDSShards: no column {name!r} in {files[0][0]}; it has {', '.join(there)}")
        if there[self._image] not in _IMAGES:
            raise ConfigError(
                f"MDSShards: column {self._image!r} holds {there[self._image]!r}, no encoded images; "
                f"{', '.join(_IMAGES)} can be read"
            )
        for name in self._names:
            if there[name] not in _TEXTS and there[name] not in _NUMBERS:
                raise ConfigError(f"MDSShards: column {name!r} holds {there[name]!r}, which is not carried along")
        self._kinds = there
        return files

    def _scan(self, peek: Peek) -> Found:
        return self._walk(peek, Found(), Found())[0]

    def _scan_beside(self, peek: Peek) -> Found:
        return self._walk(peek, Found(), Found())[1]

    def _walk(self, peek: Peek, found: Found, beside: Found) -> tuple[Found, Found]:
        offsets, columns = _head(peek)
        kinds = dict(zip(columns.names, columns.encodings, strict=True))
        for name in (self._image, self._label, *self._names):
            if name is None or len(offsets) == 1:
                continue
            kind, needed = kinds.get(name, "missing"), self._kinds[name]
            if kind != needed and not (name == self._image and kind in _IMAGES):
                raise SourceError(f"MDSShards: column {name!r} is {kind} in {peek.uri}, {needed} in the first shard")
        name_of = next((name for name in _NAMES if kinds.get(name) == "str"), None)
        notes: list[str] = []
        for k, (start, stop) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
            try:
                places = _places(peek, columns, start, stop)
                image, label = places[self._image], None
                if self._label is not None:
                    label = self._label_in(peek, places[self._label], k, notes)
                name = _short(peek, places[name_of]) if name_of else b""
                found.add(image.offset, image.size, label, name or b"%06d" % k)
            except _Damaged as error:
                places = {}
                notes.append(f"sample {k} at {start} is damaged: {error}")
                found.add(min(start, peek.size), 0, None, b"%06d" % k, _DAMAGED)
            note(beside, self._names, places)
        found.notes = notes[:_NOTES] + ([f"and {len(notes) - _NOTES} more"] if len(notes) > _NOTES else [])
        return found, beside

    def _label_in(self, peek: Peek, place: Place, k: int, notes: list[str]) -> int | str | None:
        assert self._label is not None
        try:
            if place.size > 1000:
                raise ValueError(f"{place.size} bytes, too long for a label")
            value = self._value(self._label, peek.at(place.offset, place.size))
            if isinstance(value, str) and value.isprintable():
                return value or None
            if isinstance(value, bool) or not isinstance(value, int) or value >= 1 << 31:
                raise ValueError(f"got {value!r:.60}, an integer or a text is needed")
            return value if value >= 0 else None
        except (ValueError, RecursionError) as error:
            notes.append(f"no label in sample {k}: {error}")
            return None

    def _value(self, name: str, data: bytes) -> Any:
        kind = self._kinds[name]
        if kind in _TEXTS:
            return _TEXTS[kind](data.decode())
        if len(data) != _NUMBERS[kind].itemsize:
            raise ValueError(f"{len(data)} bytes where {kind} has {_NUMBERS[kind].itemsize}")
        return np.frombuffer(data, _NUMBERS[kind])[0].item()

    def _cuts(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        starts = self._index.offsets[ids]
        return starts, starts, starts + self._index.lengths[ids]

    def _unwrap(self, i: int, head: bytes, data: bytes) -> bytes | Unread:
        if self._index.checks[i] == _DAMAGED:
            return Unread("corrupt", "the sizes in the sample make no sense")
        return data

    def _label_advice(self) -> str:
        return "pass label='the column that holds it', or label=None for images without"


class _Damaged(ValueError):
    """A sample that is not what the shard's head says."""


def columns_of(uri: str, stat: Stat, storage: Storage) -> dict[str, str]:
    """Names of a shard's columns, and how each is encoded. SourceError."""

    def read(start: int, count: int) -> bytes:
        data = storage.read([Span(uri, start, start + count, stat)])[0] if not is_local(uri) else _pread(start, count)
        if isinstance(data, Unread):
            raise SourceError(f"MDSShards: cannot read {uri}: {data.detail or data.reason}")
        return data

    def _pread(start: int, count: int) -> bytes | Unread:
        try:
            with open(uri, "rb") as file:
                file.seek(start)
                return file.read(count)
        except OSError as error:
            return Unread("io_error", error.strerror or str(error))

    columns = _head(Peek(uri, stat.size, read, 64 << 10))[1]
    return dict(zip(columns.names, columns.encodings, strict=True))


def listed(shards: Paths, storage: Storage) -> list[Any]:
    """With each folder that has an index.json, and each index.json, replaced by the shards that it lists."""
    given = [shards] if isinstance(shards, (str, os.PathLike)) else list(shards)
    return [one for item in given for one in (_indexed(os.fspath(item), storage) or [item])]


def _indexed(item: str, storage: Storage) -> list[str]:
    item = item.removeprefix("file://")
    if item.endswith(".mds") or any(c in item for c in "*?[{"):
        return []
    uri = item if item.endswith(_INDEX) else f"{item.rstrip('/')}/{_INDEX}"
    data = read_file(uri) if is_local(uri) else storage.read([Span(uri)])[0]
    if isinstance(data, Unread):
        if uri == item or data.reason != "not_found":
            raise SourceError(f"MDSShards: cannot read {uri}: {data.detail or data.reason}")
        return []
    return list(_names(uri, data))


def _names(uri: str, data: bytes) -> Iterator[str]:
    """Addresses of the shards that an index.json lists. SourceError."""
    try:
        index = json.loads(data)
        if index["version"] != 2:
            raise ValueError(f"version {index['version']!r}, 2 can be read")
        for shard in index["shards"]:
            if shard["format"] != "mds":
                raise ValueError(f"a shard of format {shard['format']!r}; mds can be read")
            if shard.get("zip_data") is not None or shard.get("compression"):
                raise SourceError(
                    f"MDSShards: the shards of {uri} are compressed with {shard.get('compression')}: samples in them "
                    "cannot be found without unpacking all; unpack them, or write them without compression"
                )
            name = shard["raw_data"]["basename"]
            if name.startswith("/") or "://" in name or ".." in name.split("/"):
                raise ValueError(f"a shard outside its folder: {name!r}")
            yield uri.removesuffix(_INDEX) + name
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"MDSShards: {uri} is no index of MDS shards: {type(error).__name__} {error}") from error


def _head(peek: Peek) -> tuple[np.ndarray, _Columns]:
    """Where the samples begin, and the last one ends: int64 (n + 1,); and the columns. SourceError."""
    try:
        count = int.from_bytes(_bytes(peek, 0, 4), "little")
        table = 4 + 4 * (count + 1)
        if table > peek.size:
            raise ValueError(f"{count} samples in {peek.size} bytes")
        offsets = np.frombuffer(_bytes(peek, 4, table - 4), "<u4").astype(np.int64)
        if not 0 < offsets[0] - table <= _MOST or np.any(np.diff(offsets) < 0):
            raise ValueError("the places of its samples make no sense")
        about = json.loads(_bytes(peek, table, int(offsets[0]) - table))
        if about["format"] != "mds" or about["version"] != 2:
            raise ValueError(f"format {about['format']!r}, version {about['version']!r}")
        sizes = [size or 0 for size in about["column_sizes"]]
        found = _Columns(tuple(about["column_names"]), tuple(about["column_encodings"]), tuple(sizes))
        if not len(found.names) == len(found.encodings) == len(sizes) or not all(
            isinstance(size, int) and size >= 0 for size in sizes
        ):
            raise ValueError("its columns make no sense")
        return offsets, found
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = f"{type(error).__name__} {error}" if not isinstance(error, _Damaged) else str(error)
        raise SourceError(f"MDSShards: {peek.uri} is no MDS shard, or compressed, or damaged: {what}") from error


def _places(peek: Peek, columns: _Columns, start: int, stop: int) -> dict[str, Place]:
    """Where the columns of a sample lie."""
    varying = columns.sizes.count(0)
    sizes = iter(struct.unpack(f"<{varying}I", _bytes(peek, start, 4 * varying)))
    at, found = start + 4 * varying, {}
    for name, size in zip(columns.names, columns.sizes, strict=True):
        own = size or next(sizes)
        found[name] = Place(at, own)
        at += own
    if at != stop:
        raise _Damaged(f"its columns end at {at}, it ends at {stop}")
    if at > peek.size:
        raise _Damaged(f"it ends at {at}, the shard at {peek.size}")
    return found


def _short(peek: Peek, place: Place) -> bytes:
    return peek.at(place.offset, place.size) if place.size <= _LONGEST_NAME else b""


def _bytes(peek: Peek, start: int, count: int) -> bytes:
    data = peek.at(start, count)
    if len(data) < count:
        raise _Damaged(f"cut off at {peek.size}")
    return data
