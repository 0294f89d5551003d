"""Columns of an MDS shard: its header, and the sizes before each sample."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.printable import printable
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.shards.extra_columns import ValueLocation
from fastfeed.storage.byte_range import ByteRange, Stat, is_local
from fastfeed.storage.local_file import unread
from fastfeed.storage.retry import Unread
from fastfeed.storage.storage import Storage
from fastfeed.system.descriptors import open_regular

__all__ = [
    "ColumnLayout",
    "Damaged",
    "column_encodings",
    "column_locations",
    "header",
    "short_value",
]

_LONGEST_NAME = 255  # bytes
_MAX_CONFIG = 1 << 20  # bytes of a configuration


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """A shard's columns, in the order in which they are written."""

    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int, ...]  # bytes; 0: varies


class Damaged(ValueError):
    """A sample that does not fit the shard's header."""


def column_encodings(uri: str, stat: Stat, storage: Storage) -> dict[str, str]:
    """Names of a shard's columns, and how each is encoded. SourceError."""

    def read(start: int, count: int) -> bytes:
        span = ByteRange(uri, start, start + count, stat)
        data = _read_local(start, count) if is_local(uri) else storage.read([span])[0]
        if isinstance(data, Unread):
            raise SourceError(f"MDSShards: cannot read {uri}: {data.detail or data.reason}")
        return data

    def _read_local(start: int, count: int) -> bytes | Unread:
        try:
            with open(open_regular(uri), "rb") as file:
                file.seek(start)
                return file.read(count)
        except OSError as error:
            return unread(error)

    columns = header(ForwardReader(uri, stat.size, read, 64 << 10))[1]
    return dict(zip(columns.names, columns.encodings, strict=True))


def header(reader: ForwardReader) -> tuple[np.ndarray, ColumnLayout]:
    """Bounds of the samples, int64 (n + 1,), and the columns.

    SourceError.
    """
    try:
        count = int.from_bytes(_bytes(reader, 0, 4), "little")
        table = 4 + 4 * (count + 1)
        if table > reader.size:
            raise ValueError(f"{count} samples in {reader.size} bytes")
        offsets = np.frombuffer(_bytes(reader, 4, table - 4), "<u4").astype(np.int64)
        if not 0 < offsets[0] - table <= _MAX_CONFIG or np.any(np.diff(offsets) < 0):
            raise ValueError(
                f"sample offsets must not decrease, and begin at most {_MAX_CONFIG} bytes after"
                f" {table}, got"
                f" {', '.join(map(str, offsets[:3].tolist()))}{', ...' * (len(offsets) > 3)}"
            )
        config = json.loads(_bytes(reader, table, int(offsets[0]) - table))
        if config["format"] != "mds" or config["version"] != 2:
            raise ValueError(f"format {config['format']!r}, version {config['version']!r}")
        sizes = [size or 0 for size in config["column_sizes"]]
        layout = ColumnLayout(
            tuple(config["column_names"]), tuple(config["column_encodings"]), tuple(sizes)
        )
        if not all(isinstance(text, str) for text in (*layout.names, *layout.encodings)):
            names, encodings = printable(repr(layout.names)), printable(repr(layout.encodings))
            raise ValueError(f"names and encodings must be strings, got {names}, {encodings}")
        if not len(layout.names) == len(layout.encodings) == len(sizes) or not all(
            isinstance(size, int) and size >= 0 for size in sizes
        ):
            raise ValueError(
                "each column must have one encoding and a size of 0 or more, got"
                f" {len(layout.names)} names, {len(layout.encodings)} encodings, sizes"
                f" {printable(repr(sizes))}"
            )
        return offsets, layout
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = f"{type(error).__name__} {error}" if not isinstance(error, Damaged) else str(error)
        raise SourceError(
            f"MDSShards: {reader.uri} must be an uncompressed MDS shard of version 2: {what};"
            " decompress it, or copy it again if it is damaged"
        ) from error


def column_locations(
    reader: ForwardReader, columns: ColumnLayout, start: int, stop: int
) -> dict[str, ValueLocation]:
    """Locations of a sample's columns."""
    varying = columns.sizes.count(0)
    sizes = iter(struct.unpack(f"<{varying}I", _bytes(reader, start, 4 * varying)))
    at, locations = start + 4 * varying, {}
    for name, size in zip(columns.names, columns.sizes, strict=True):
        own = size or next(sizes)
        locations[name] = ValueLocation(at, own)
        at += own
    if at != stop:
        raise Damaged(f"its columns end at {at}, it ends at {stop}")
    if at > reader.size:
        raise Damaged(f"it ends at {at}, the shard at {reader.size}")
    return locations


def short_value(reader: ForwardReader, location: ValueLocation) -> bytes:
    return reader.read(location.offset, location.size) if location.size <= _LONGEST_NAME else b""


def _bytes(reader: ForwardReader, start: int, count: int) -> bytes:
    data = reader.read(start, count)
    if len(data) < count:
        raise Damaged(f"cut off at {reader.size}")
    return data
