"""Records listed by DALI's `tfrecord2idx` next to a TFRecord file: "offset length"."""

from __future__ import annotations

import os

from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.shards.known_counts import in_record, missing
from fastfeed.sources.shards.notes import Notes
from fastfeed.storage.byte_range import is_local
from fastfeed.system.descriptors import open_regular

__all__ = ["lengths_from_idx", "missing_records"]

_SMALLEST = 16  # bytes of a record: two checksums and a length
_LINE = 40  # bytes of a line: two numbers
_MOST_LINES = 1 << 24


def lengths_from_idx(reader: ForwardReader, notes: Notes) -> dict[int, int]:
    """Lengths by offset, if an index covers the shard and is newer than it."""
    for name in _alongside(reader.uri):
        words, why = [], "it does not list the shard's records"
        try:
            words = _numbers(name, reader.size // _SMALLEST + 1)
            if os.stat(name).st_mtime_ns < os.stat(reader.uri).st_mtime_ns:
                words, why = [], "older than the shard"
        except OSError as error:
            why = str(error.strerror)
        offsets, lengths = words[::2], words[1::2]
        if _chained(offsets, lengths) and offsets[-1] + lengths[-1] == reader.size:
            return dict(zip(offsets, lengths, strict=True))
        notes.add(f"{os.path.basename(name)} is not used: {why}")
    return {}


def missing_records(reader: ForwardReader, found: int) -> str:
    """Text on records after the end that an index or a job's record lists; "" if none."""
    count = in_record(reader.uri, reader.size)
    if count is not None:
        return missing(found, count, "the record of its job lists them")
    for name in _alongside(reader.uri):
        try:
            words = _numbers(name, _MOST_LINES)
        except OSError:
            continue
        offsets, lengths = words[::2], words[1::2]
        if _chained(offsets, lengths) and offsets[-1] + lengths[-1] > reader.size:
            return missing(found, len(offsets), f"{os.path.basename(name)} lists them")
    return ""


def _alongside(uri: str) -> list[str]:
    names = (uri + ".idx", os.path.splitext(uri)[0] + ".idx") if is_local(uri) else ()
    return [name for name in names if os.path.isfile(name)]


def _numbers(name: str, lines: int) -> list[int]:
    """Numbers in an index; -1 for other words. OSError."""
    with open(open_regular(name), "rb") as file:
        words = file.read(_LINE * lines).split()
    return [int(word) if word.isdigit() and len(word) < 20 else -1 for word in words]


def _chained(offsets: list[int], lengths: list[int]) -> bool:
    """Each record begins where the one before it ends."""
    ends = [offset + length for offset, length in zip(offsets, lengths, strict=False)]
    return (
        bool(ends)
        and len(offsets) == len(lengths)
        and [0, *ends[:-1]] == offsets
        and min(lengths) >= _SMALLEST
    )
