"""Samples of a shard that was built before, read back as the entries that its writer was given."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from fastfeed.decode.base import DecodeFailure
from fastfeed.errors import SourceError
from fastfeed.preprocess.model.layout import SUFFIXES
from fastfeed.preprocess.model.record import BadSample, Entry, Record, ShardFile
from fastfeed.preprocess.pixels.image_info import image_info
from fastfeed.preprocess.targets.ranges import Read, reader, sha256_of, size_of
from fastfeed.preprocess.targets.target import Target
from fastfeed.preprocess.writers.base import npy_header
from fastfeed.sources.mds.shard import column_locations, header
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.shards.index import Notes
from fastfeed.sources.tables.column_types import ColumnType
from fastfeed.sources.tar.headers import members
from fastfeed.sources.tfrecord.example import Example, FeatureNames, to_python
from fastfeed.sources.tfrecord.protobuf import LazyMessage
from fastfeed.sources.tfrecord.source import records

_BLOCK = 8 << 20  # bytes read at once
_ROWS = 64  # of a table that are converted at once


class DamagedShard(SourceError):
    """A shard whose files are neither those of its record nor newer ones."""


@dataclass(frozen=True, slots=True)
class StoredShard:
    """The files of a shard's record, or newer ones that an interrupted run has left there."""

    target: Target
    record: Record
    format: str
    gone: frozenset[int]  # ids that newer files lack
    types: dict[str, ColumnType] = field(default_factory=dict)  # of metadata columns

    def entries(self) -> Iterator[Entry]:
        """All samples in order, of newer files maybe without those that are gone. DamagedShard."""
        try:
            yield from _ENTRIES[self.format](self)
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise DamagedShard(f"{self.record.shard} cannot be read: {error}") from error

    def check(self, written: Sequence[ShardFile] = ()) -> None:
        """DamagedShard if a file is neither as recorded nor as it is `written` again."""
        again = {file.name: file.sha256 for file in written}
        for file in self.record.files:
            if file.name.endswith(".idx"):  # not read
                continue
            try:
                size = size_of(self.target, file.name)
                sha256 = sha256_of(self.target, file.name, size)
            except OSError as error:
                raise DamagedShard(f"{file.name} cannot be read: {error}") from error
            if sha256 not in (file.sha256, again.get(file.name)):
                raise DamagedShard(f"{file.name} has another content than was written")

    def make_way(self, written: Sequence[ShardFile]) -> None:
        """Remove files that the shard will have no more, before those that are `written` replace it.

        DamagedShard as of `check`.
        """
        self.check(written)
        names = {file.name for file in self.record.files}
        for name in names - {file.name for file in written}:
            self.target.remove(name)

    @property
    def bad(self) -> tuple[BadSample, ...]:
        """Bad images of the record, without those that are gone."""
        return tuple(bad for bad in self.record.bad if bad.id not in self.gone)

    @property
    def main(self) -> str:
        """Name of the main file."""
        return self.record.shard + SUFFIXES[self.format]

    def open(self, suffix: str | None = None) -> ForwardReader:
        """A reader of the main file, or of another one of the shard. OSError."""
        name = self.main if suffix is None else self.record.shard + suffix
        return ForwardReader(name, size_of(self.target, name), reader(self.target, name), _BLOCK)

    @property
    def binary(self) -> list[str]:
        """Metadata columns of bytes."""
        return [name for name, kind in self.types.items() if kind == "bytes"]

    def blobs(self, values: Mapping[str, bytes | None]) -> dict[str, bytes]:
        """Metadata columns of bytes that a sample has."""
        return {name: blob for name in self.binary if (blob := values.get(name))}

    def array(self, name: str, value: Any) -> np.ndarray:
        """An array of a sample with the type and shape that it was given with."""
        dtype, shape = self.record.arrays[name]
        return np.asarray(value).astype(dtype).reshape(shape)


def _in_tar(shard: StoredShard) -> Iterator[Entry]:
    notes: list[str] = []
    file = shard.open()
    for key, group in groupby(members(file, notes), lambda member: member.name.partition(".")[0]):
        parts = {
            member.name.partition(".")[2]: file.read(member.offset, member.size) for member in group
        }
        extension, image = next(iter(parts.items()))
        text, label = parts.get("txt"), parts.get("cls")
        yield Entry(
            key,
            image,
            extension,
            *_size(extension, image),
            None if label is None else int(label),
            None if text is None else text.decode(),
            json.loads(parts["json"]),
            {name: np.load(io.BytesIO(parts[f"{name}.npy"])) for name in shard.record.arrays},
            shard.blobs(parts),
        )
    if notes:
        raise ValueError("; ".join(notes[:3]))


def _size(extension: str, image: bytes) -> tuple[int, int]:
    """Height and width of an image."""
    if extension == "npy":
        height, width, _ = np.load(io.BytesIO(image), mmap_mode=None).shape
        return height, width
    info = image_info(image)
    if isinstance(info, DecodeFailure):
        raise ValueError(f"an image of it is {info.reason}")
    return info.height, info.width


def _in_tfrecord(shard: StoredShard) -> Iterator[Entry]:
    notes = Notes()
    file = shard.open()
    own = ("caption", "class/label", "encoded", "filename", "height", "key", "meta", "width")
    names = FeatureNames(
        *(f"image/{name}".encode() for name in own),
        *map(str.encode, (*shard.record.arrays, *shard.binary)),
    )
    if not file.size:
        return
    for offset, length in records(file, notes):
        message = LazyMessage.of(file.read(offset + 12, length - 16))
        example = Example(message, 0, length - 16, names)

        def value(name: str, message: LazyMessage = message, example: Example = example) -> Any:
            bounds = example.feature(name.encode())
            return None if bounds is None else to_python(message.bytes(*bounds), text=False)

        text, label = value("image/caption"), value("image/class/label")
        yield Entry(
            value("image/key").decode(),
            value("image/encoded"),
            value("image/filename").decode().partition(".")[2],
            int(value("image/height")),
            int(value("image/width")),
            None if label is None else int(label),
            None if text is None else text.decode(),
            json.loads(value("image/meta")),
            {name: shard.array(name, value(name)) for name in shard.record.arrays},
            shard.blobs({name: value(name) for name in shard.binary}),
        )
    if found := notes.all():
        raise ValueError("; ".join(found[:3]))


def _in_parquet(shard: StoredShard) -> Iterator[Entry]:
    import pyarrow.parquet as pq

    file = shard.open()
    table = pq.ParquetFile(_RangeFile(file.read, file.size))
    own = ("key", "image", "extension", "height", "width", "label", "text", "meta")
    names = [*own, *shard.record.arrays, *shard.binary]
    for batch in table.iter_batches(_ROWS, columns=names):
        for row in batch.to_pylist():
            yield Entry(
                row["key"],
                row["image"],
                row["extension"],
                row["height"],
                row["width"],
                row["label"],
                row["text"],
                json.loads(row["meta"]),
                {name: shard.array(name, row[name]) for name in shard.record.arrays},
                shard.blobs(row),
            )


class _RangeFile(io.RawIOBase):
    """A file for PyArrow from its byte ranges."""

    def __init__(self, read: Read, size: int) -> None:
        self._read = read
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        rest = max(self._size - self._at, 0)
        data = self._read(self._at, rest if size < 0 else min(size, rest))
        self._at += len(data)
        return data


def _in_mds(shard: StoredShard) -> Iterator[Entry]:
    file = shard.open()
    offsets, columns = header(file)
    for k in range(len(offsets) - 1):
        places = column_locations(file, columns, int(offsets[k]), int(offsets[k + 1]))
        row = {name: file.read(place.offset, place.size) for name, place in places.items()}
        height, width, label = (_integer(row[name]) for name in ("height", "width", "label"))
        yield Entry(
            row["key"].decode(),
            row["image"],
            row["extension"].decode(),
            height,
            width,
            None if label < 0 else label,
            row["text"].decode() or None,
            json.loads(row["meta"]),
            {
                name: shard.array(name, np.frombuffer(row[name], np.dtype(kind).newbyteorder("<")))
                for name, (kind, _) in shard.record.arrays.items()
            },
            shard.blobs(row),
        )


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _in_arrays(shard: StoredShard) -> Iterator[Entry]:
    lines = [json.loads(line) for line in _whole(shard.open(".meta.jsonl")).splitlines()]
    kept = [k for k, line in enumerate(lines) if int(line["key"]) not in shard.gone]

    def rows(suffix: str | None) -> tuple[Callable[[int], bytes], tuple[int, ...], np.dtype]:
        """The content of the row of each line, its shape and its type."""
        file = shard.open(suffix)
        head = io.BytesIO(file.read(0, 1 << 10))
        np.lib.format.read_magic(head)
        (count, *shape), _, dtype = np.lib.format.read_array_header_1_0(head)
        listed = range(len(lines)) if count == len(lines) else kept
        if count != len(listed):
            raise ValueError(f"{file.uri} has {count} rows, {len(lines)} or {len(kept)} are listed")
        place = {k: row for row, k in enumerate(listed)}
        first, size = head.tell(), int(np.prod(shape)) * dtype.itemsize
        return lambda k: file.read(first + place[k] * size, size), tuple(shape), dtype

    pixels, shape, _ = rows(None)
    arrays = {name: rows(f".{name}.npy") for name in shard.record.arrays}
    head = npy_header("|u1", shape)
    for k in kept:
        meta = lines[k]["meta"]
        coded = lines[k].get("bytes", {})
        yield Entry(
            lines[k]["key"],
            head + pixels(k),
            "npy",
            shape[0],
            shape[1],
            meta.get("label"),
            lines[k]["text"],
            meta,
            {
                name: np.frombuffer(row(k), dtype).reshape(sides)
                for name, (row, sides, dtype) in arrays.items()
            },
            shard.blobs({name: base64.b64decode(coded[name] or "") for name in shard.binary}),
        )


def _whole(file: ForwardReader) -> bytes:
    return file.read(0, file.size)


_ENTRIES: dict[str, Callable[[StoredShard], Iterator[Entry]]] = {
    "webdataset": _in_tar,
    "tfrecord": _in_tfrecord,
    "parquet": _in_parquet,
    "mds": _in_mds,
    "raw": _in_arrays,
}
