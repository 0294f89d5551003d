"""Counts the samples in a shard's main file, as the reader of its format sees them."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.tables.parquet_footer import row_groups

__all__ = ["Read", "count_samples"]

Read = Callable[[int, int], bytes]  # bytes [start, start + count) of a file


def count_samples(format: str, name: str, size: int, read: Read) -> int:
    """Number of samples that the format's reader finds in a shard's main file.

    SourceError if it is unreadable.
    """
    try:
        return _COUNTERS[format](ForwardReader(name, size, read, 1 << 16))
    except (ValueError, KeyError, OSError) as error:
        raise SourceError(f"{name} cannot be read: {error}") from error


def _in_tar(reader: ForwardReader) -> int:
    from fastfeed.sources.tar.headers import members

    notes: list[str] = []
    keys = {member.name.partition(".")[0] for member in members(reader, notes)}
    _raise_notes(notes)
    return len(keys)


def _in_tfrecord(reader: ForwardReader) -> int:
    from fastfeed.sources.tfrecord.source import Notes, records

    notes = Notes()
    count = sum(1 for _ in records(reader, notes))
    _raise_notes(notes.all())
    return count


def _in_parquet(reader: ForwardReader) -> int:
    tail = reader.read(reader.size - 8, 8)  # the footer's length, and the magic
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > reader.size - 12:
        raise ValueError("it does not end as a Parquet file does")
    return sum(
        group.rows
        for group in row_groups(reader.read(reader.size - 8 - length, length), reader.size)
    )


def _in_mds(reader: ForwardReader) -> int:
    """u32 count, u32 offsets[count + 1], JSON, samples (MosaicML streaming, base/format/mds)."""
    count = int.from_bytes(reader.read(0, 4), "little")
    offsets = np.frombuffer(reader.read(4, 4 * (count + 1)), "<u4").astype(np.int64)
    is_complete = len(offsets) == count + 1 and int(offsets[-1]) == reader.size
    if not is_complete or bool(np.any(np.diff(offsets) < 0)):
        raise ValueError(f"its offset table does not match the file size, {reader.size}")
    return count


def _in_arrays(reader: ForwardReader) -> int:
    from numpy.lib import format as npy

    file = io.BytesIO(reader.read(0, 1 << 12))
    version = npy.read_magic(file)
    shape, _, dtype = (
        npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    )(file)
    if file.tell() + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize != reader.size:
        raise ValueError(f"an array {shape} of {dtype} does not fit {reader.size} bytes")
    return int(shape[0])


def _raise_notes(notes: list[str]) -> None:
    if notes:
        raise ValueError("; ".join(notes[:3]))


_COUNTERS = {
    "webdataset": _in_tar,
    "tfrecord": _in_tfrecord,
    "parquet": _in_parquet,
    "mds": _in_mds,
    "raw": _in_arrays,
}
