"""Records of a TFRecord file: where each begins and ends, and whether it is intact.

A record is its length (uint64), the length's checksum, the data, the data's checksum; all little
endian: TensorFlow, core/lib/io/record_writer.h. A checksum is CRC32C, rotated and with a constant
added, since data may contain checksums: `Mask` in core/lib/hash/crc32c.h.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import google_crc32c

from fastfeed.errors import SourceError
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.shards.known_counts import in_record, missing
from fastfeed.storage.reads import is_local
from fastfeed.system.descriptors import open_regular

HEADER = 12  # bytes: length and its checksum
TAIL = 4  # bytes: the data's checksum
_MOST = 1 << 31  # bytes of a record: protobuf takes no message of that size
_SMALLEST = 16  # bytes of a record: two checksums and a length
_LINE = 40  # bytes of a line of an index: two numbers
_MOST_LINES = 1 << 24


def records(reader: ForwardReader, notes: list[str]) -> Iterator[tuple[int, int]]:
    """Offset and length of every record with its frame; the last may be cut off.

    What is damaged goes to `notes`.

    Where a record of damaged length ends is known only if DALI's `tfrecord2idx` left its list next
    to the shard.
    """
    begin = 0
    at = 0
    count = 0
    listed = None
    if not reader.size:
        notes.append("empty: no records")
    while at < reader.size:
        begin = at
        header = reader.read(at, HEADER)
        if len(header) < HEADER:
            at = reader.size + 1
            break
        if is_intact(header):
            length = HEADER + int.from_bytes(header[:8], "little") + TAIL
        else:
            if at == 0:
                _refuse_compressed(reader.uri, header)
            if listed is None:
                listed = lengths_from_idx(reader, notes)
            if at not in listed:
                what = "no TFRecord file: wrong checksum" if at == 0 else "damaged length"
                notes.append(f"{what} at {at}: nothing after it can be found")
                return
            length = listed[at]
            notes.append(f"damaged length at {at}: the .idx file says where the record ends")
        if length < _MOST:
            count += 1
            yield at, length
        else:
            notes.append(
                f"left out the record at {at}: {length} bytes, more than an Example can have"
            )
        at += length
    incomplete = f"the record at {begin} is incomplete" if at > reader.size else ""
    if lost := missing_records(reader, count):
        incomplete = f"{incomplete}; {lost}" if incomplete else lost
    if incomplete:
        notes.append(f"cut off at {reader.size}: {incomplete}")


def _refuse_compressed(uri: str, header: bytes) -> None:
    # RFC 1950: deflate, a window of 32 kB
    zlib = header[:1] == b"\x78" and int.from_bytes(header[:2], "big") % 31 == 0
    if zlib or header.startswith(b"\x1f\x8b"):
        raise SourceError(
            f"{uri} is compressed with {'zlib' if zlib else 'gzip'}: records in it cannot be found"
            " without unpacking all before them; write it without compression once (images do not"
            " shrink any further)"
        )


def is_intact(data: bytes) -> bool:
    """True if the last 4 bytes are the checksum of those before them.

    Compares CRCs of all of it, which copies nothing.
    """
    tail = data[-TAIL:]
    masked = (int.from_bytes(tail, "little") - 0xA282EAD8) & 0xFFFFFFFF
    return google_crc32c.value(data) == google_crc32c.extend(
        (masked >> 17 | masked << 15) & 0xFFFFFFFF, tail
    )


def lengths_from_idx(reader: ForwardReader, notes: list[str]) -> dict[int, int]:
    """Lengths by offset, if an index covers the shard and is newer than it."""
    for name in _alongside(reader.uri):
        words = []
        why = "it does not list the shard's records"
        try:
            words = _numbers(name, reader.size // _SMALLEST + 1)
            if os.stat(name).st_mtime_ns < os.stat(reader.uri).st_mtime_ns:
                words = []
                why = "older than the shard"
        except OSError as error:
            why = str(error.strerror)
        offsets = words[::2]
        lengths = words[1::2]
        if _chained(offsets, lengths) and offsets[-1] + lengths[-1] == reader.size:
            return dict(zip(offsets, lengths, strict=True))
        notes.append(f"{os.path.basename(name)} is not used: {why}")
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
        offsets = words[::2]
        lengths = words[1::2]
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
    """True if each record begins at the end of the previous one."""
    ends = [offset + length for offset, length in zip(offsets, lengths, strict=False)]
    return (
        bool(ends)
        and len(offsets) == len(lengths)
        and [0, *ends[:-1]] == offsets
        and min(lengths) >= _SMALLEST
    )
