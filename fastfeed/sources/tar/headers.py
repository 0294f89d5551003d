"""Lists the files in a tar, header by header. Nothing is ever extracted.

Formats: POSIX.1-1988 ustar, POSIX.1-2001 pax headers, GNU long names and base-256 numbers (GNU tar
manual, "Tar internals"). A link is a member with the content of its target, if that is in the
archive. Devices and names that lead out of the archive are left out and listed.
"""

from __future__ import annotations

import posixpath
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.sources.shards.build_index import ForwardReader

BLOCK = 512  # bytes: headers and contents begin at multiples of it
_ZEROS = bytes(BLOCK)
_SHORT = 100  # bytes of a name; a longer one is in another header, too
_FILES = (b"0", b"\0", b"7")  # regular ones; 7: contiguous, of old
_NAMING = (b"x", b"X", b"g", b"L", b"K")  # say more of the next member, g of all that follow
_HOLLOW = b"123456"  # have no content, whatever their size field says
_HARD_LINK = b"1"
_SYMBOLIC_LINK = b"2"
_LINKS = (_HARD_LINK, _SYMBOLIC_LINK)
_MOST_LINKS = 40  # from a link to its file, as Linux allows
_KINDS = {b"3": "a device", b"4": "a device", b"6": "a pipe", b"S": "a sparse file"}
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
_RECORD = re.compile(rb"([0-9]{1,7}) ")
_LIMIT = 1 << 20  # bytes of names before a member, and of zeros behind the end that are looked at
_LARGEST = (1 << 32) - 1  # bytes of a sample: no image has more


@dataclass(frozen=True, slots=True)
class Member:
    """A file in a tar."""

    name: str
    offset: int  # of its content
    size: int
    check: int = 0  # CRC-32 of its header; 0: not known
    target: str | None = None  # of a link: the name of another member, or what no member is called


def members(reader: ForwardReader, notes: list[str]) -> Iterator[Member]:
    """Files of a tar in order; damaged or skipped entries go to `notes`, with offsets.

    A link has the content of its target. The last file may be cut off: then it ends behind the end
    of the archive.
    """
    by_name: dict[str, Member] | None = None
    for member in _entries(reader, notes):
        if member.target is None:
            yield member
            continue
        if by_name is None:  # symbolic links may lead to what comes later
            by_name = {other.name: other for other in _entries(reader, [])}
        target = _followed(member, by_name)
        if target is None:
            notes.append(
                f"left out {member.name!r} at {member.offset - BLOCK}: a link to no file of the"
                " archive"
            )
        else:
            yield replace(target, name=member.name)


def _followed(link: Member, by_name: Mapping[str, Member]) -> Member | None:
    """The target file of a link; None if it is not in the archive."""
    member: Member | None = link
    for _ in range(_MOST_LINKS):
        if member is None or member.target is None:
            return member
        member = by_name.get(member.target)
    return None


def leads_to(block: bytes) -> str | None:
    """The target of a link, by its header; None for other entries."""
    kind = block[156:157]
    if kind in _LINKS and _intact(block):
        return _target(_header_name(block), kind, _link_name(block))
    return None


def _link_name(block: bytes) -> str:
    return block[157:257].partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _target(name: str, kind: bytes, target: str) -> str:
    """Member that a link leads to: hard links from the archive's root, others from their folder."""
    base = posixpath.dirname(name) if kind == _SYMBOLIC_LINK else ""
    return posixpath.normpath(posixpath.join(base, target))


def _entries(reader: ForwardReader, notes: list[str]) -> Iterator[Member]:
    """Files and links in their order."""
    at = 0
    shared = {}
    own: dict[str, str] | None = {}  # for the next member; None: unreadable
    while True:
        block = reader.read(at, BLOCK)
        if at == 0 and not _intact(block):
            _refuse_compressed(reader.uri, block)
        if len(block) < BLOCK:
            notes.append(
                f"cut off at {reader.size}: the end of the archive is missing"
                if reader.size
                else "empty file"
            )
            return
        if block == _ZEROS:
            if not _intact(reader.read(at + BLOCK, BLOCK)):
                notes += _after_end(reader, at + BLOCK)
                return
            notes.append(f"a block of zeros at {at}, amid the archive")
            at += BLOCK
            continue
        if not _intact(block):
            what = "no tar file" if at == 0 else "damaged header"
            notes.append(f"{what} at {at}: nothing after it can be read")
            return
        kind = block[156:157]
        size = _number(block[124:136])
        start = at + BLOCK
        if size < 0 or (kind in _NAMING and size > _LIMIT):
            notes.append(
                f"damaged header at {at}: nothing after it can be read, its size makes no sense"
            )
            return
        if kind in _NAMING:
            if start + size > reader.size:
                notes.append(
                    f"cut off at {reader.size}: the names at {at} should end at {start + size}"
                )
                return
            own, shared = _names(kind, reader.read(start, size), own, shared)
        else:
            overrides = shared | (own or {})
            unreadable = own is None
            own = {}
            name = strip_dot_slash(overrides.get("path") or _header_name(block))
            size = int(overrides["size"]) if "size" in overrides else size
            if kind in _FILES and name.endswith("/"):
                kind = b"5"
            sparse = any(key.startswith("GNU.sparse") for key in overrides)
            if unreadable:
                why = "the names before it are damaged"
            else:
                why = why_excluded(name, size, b"S" if sparse else kind)
            if why:
                notes.append(f"left out {name!r} at {at}: {why}")
            elif kind in _LINKS:
                to = _target(name, kind, overrides.get("linkpath") or _link_name(block))
                yield Member(name, start, 0, zlib.crc32(block), to)
            elif kind in _FILES:
                yield Member(name, start, size, zlib.crc32(block))
                if start + size > reader.size:
                    notes.append(f"cut off at {reader.size}: {name} should end at {start + size}")
                    return
            if kind == b"S":
                start = _skip_sparse_map(reader, block, start)
            if kind in _HOLLOW:
                size = 0
        at = start + -(-size // BLOCK) * BLOCK


def why_excluded(name: str, size: int, kind: bytes = b"0") -> str:
    """Why a member cannot belong to a sample; "" if it can."""
    if kind in _KINDS:
        return _KINDS[kind]
    if name.startswith("/") or ".." in name.split("/"):
        return "its name leads out of the archive"
    if kind not in (*_FILES, *_LINKS) and kind != b"5":
        return f"of unknown kind {kind!r}"
    return f"{size} bytes, too large for a sample" if size > _LARGEST else ""


def _intact(block: bytes) -> bool:
    """The checksum of a header is right: the sum of its bytes, its own field counted as spaces."""
    if len(block) < BLOCK:
        return False
    stated = _number(block[148:156])
    array = np.frombuffer(block, np.uint8)
    total = int(np.add.reduce(array, dtype=np.int64)) - sum(block[148:156]) + 8 * ord(" ")
    if stated == total:
        return True
    # as some old tars counted
    signed = total - 256 * int(np.count_nonzero(np.delete(array, slice(148, 156)) > 127))
    return stated == signed


def header_matches(block: bytes, name: str, size: int) -> bool:
    """Check a header for a member's name and size; long names are in other headers."""
    if not _intact(block) or _number(block[124:136]) != size:
        return False
    return (
        len(name.encode("utf-8", "surrogateescape")) > _SHORT
        or strip_dot_slash(_header_name(block)) == name
    )


def _number(field: bytes) -> int:
    """An octal number, or GNU's base-256; -1 for neither."""
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big") if field[0] == 0x80 else -1
    digits = re.match(rb" *([0-7]*)(?:[ \0]|$)", field)
    return int(digits[1] or b"0", 8) if digits else -1


def _header_name(block: bytes) -> str:
    """The name in the header itself: up to 100 bytes, of ustar 256."""
    name = block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0":
        prefix = block[345:500].partition(b"\0")[0]
        name = prefix + b"/" + name if prefix else name
    return name.decode("utf-8", "surrogateescape")


def strip_dot_slash(name: str) -> str:
    """A path without `./` in front."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def _names(
    kind: bytes, data: bytes, overrides: dict[str, str] | None, shared: dict[str, str]
) -> tuple[dict[str, str] | None, dict[str, str]]:
    """Overrides for the next member and for all further ones, after one naming header."""
    if overrides is None:
        return overrides, shared
    if kind in b"KL":
        text = data.partition(b"\0")[0].decode("utf-8", "surrogateescape")
        return overrides | {"path" if kind == b"L" else "linkpath": text}, shared
    records = _pax(data)
    if records is None:
        return None, shared
    return (overrides, shared | records) if kind == b"g" else (overrides | records, shared)


def _pax(data: bytes) -> dict[str, str] | None:
    """Records `length key=value\\n`; None if they are damaged."""
    records: dict[str, str] = {}
    at = 0
    end = len(data.rstrip(b"\0"))
    while at < end:
        head = _RECORD.match(data, at)
        stop = at + int(head[1]) if head else 0
        if head is None or not head.end() < stop <= end or data[stop - 1 : stop] != b"\n":
            return None
        key, equals, value = data[head.end() : stop - 1].partition(b"=")
        if not equals or (key == b"size" and not re.fullmatch(rb"[0-9]{1,20}", value)):
            return None
        records[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        at = stop
    return records


def _skip_sparse_map(reader: ForwardReader, block: bytes, start: int) -> int:
    """Offset of the content of an old GNU sparse file, after blocks that map its holes."""
    more = block[482]
    while more:
        more = reader.read(start, BLOCK)[504:505].strip(b"\0")
        start += BLOCK
    return start


def _after_end(reader: ForwardReader, at: int) -> list[str]:
    """Notes on the bytes after the end of an archive: zeros, unless two were joined."""
    for start in range(at, min(reader.size, at + _LIMIT), BLOCK):
        block = reader.read(start, BLOCK)
        if block.strip(b"\0"):
            what = "another archive begins" if _intact(block) else "there are bytes"
            return [f"{what} at {start}, after the end of this one: not read (`tar -i` reads both)"]
    return []


def _refuse_compressed(uri: str, block: bytes) -> None:
    for magic, packing in _PACKED.items():
        if block.startswith(magic):
            raise SourceError(
                f"{uri} is compressed with {packing}: samples in it cannot be found without"
                " unpacking all before them; unpack it to a plain .tar once (images do not shrink"
                " any further)"
            )
