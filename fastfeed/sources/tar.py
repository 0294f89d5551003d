"""Tar shards in the layout of WebDataset: members that share a name up to its first dot are one sample.

Formats: POSIX.1-1988 ustar, POSIX.1-2001 pax headers, GNU long names and base-256 numbers (GNU tar manual, "Tar
internals"). Nothing is ever extracted. Links, devices and names that lead out of the archive are left out and listed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.build import Peek
from fastfeed.sources.cache import Cache
from fastfeed.sources.fetch import Unread
from fastfeed.sources.folder import IMAGE_EXTENSIONS
from fastfeed.sources.index import Found
from fastfeed.sources.packed import Packed, Paths
from fastfeed.sources.storage import Storage

__all__ = ["TarShards", "members"]

_BLOCK = 512
_FILES = b"0\x007"  # regular ones; 7: contiguous, of old
_KINDS = {b"1": "a link", b"2": "a link", b"3": "a device", b"4": "a device", b"6": "a pipe", b"S": "a sparse file"}
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
_MOST = 1 << 20  # bytes of a label, or of a pax header; more is damage
_NOTES = 50  # kept per shard


class TarShards(Packed):
    """Images in tar files as WebDataset writes them: `0001.jpg`, `0001.cls`, `0002.jpg`, ...

    `shards` is a path, a pattern (`train-{000..099}.tar`, `*.tar`), a folder, or a list of them, local or remote
    (`s3://...`). `label` names the member that holds a sample's label: "cls", or "json:landmark_id" for a field of a
    JSON member; None for none. Labels that are not numbers are sorted and numbered. An index is built when the shards
    are first used, and kept beside them or in the cache folder.
    """

    suffix = ".tar"

    def __init__(
        self,
        shards: Paths,
        *,
        label: str | None = "cls",
        images: Sequence[str] = tuple(e[1:] for e in IMAGE_EXTENSIONS),
        classes: Sequence[str] | None = None,
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        index: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
    ) -> None:
        if isinstance(images, str):
            raise ConfigError(f"TarShards: images must be a list of extensions, got {images!r}; pass [{images!r}]")
        self._images = tuple(e.lower().lstrip(".") for e in images)
        extension, _, self._field = (label or "").partition(":")
        self._label = extension.lower().lstrip(".")
        kind = f"tar 1 images {','.join(self._images)} label {label}"
        super().__init__(
            shards, kind, labeled=label is not None, classes=classes, storage=storage, cache=cache, index=index,
            progress=progress,
        )  # fmt: skip

    def _scan(self, peek: Peek) -> Found:
        found, grouping = Found(), _Samples()
        for member in members(peek, found.notes):
            grouping.add(member, self, peek, found)
        grouping.end(self, found)
        if len(found.notes) > _NOTES:
            found.notes[_NOTES:] = [f"and {len(found.notes) - _NOTES} more"]
        return found

    def _span(self, i: int) -> tuple[int, int]:
        start = int(self._index.offsets[i])
        header = _BLOCK if self.remote else 0  # a remote shard may change unseen: its header says what lies there
        return start - header, start + int(self._index.lengths[i])

    def _unwrap(self, i: int, data: bytes) -> bytes | Unread:
        if not self.remote:
            return data
        length = int(self._index.lengths[i])
        if not _intact(data[:_BLOCK]) or _number(data[124:136]) != length:
            return Unread("changed", "another member lies there than was indexed; build the source anew")
        return data[_BLOCK:]

    def _label_advice(self) -> str:
        return "pass label='json:field' or the extension that holds it, or label=None for images without"

    def _label_of(self, member: Member, peek: Peek, notes: list[str]) -> int | str | None:
        data = peek.at(member.offset, min(member.size, _MOST))
        if len(data) < member.size:
            notes.append(f"no label in {member.name} at {member.offset}: {len(data)} of {member.size} bytes are there")
            return None
        try:
            value: Any = data.decode("utf-8").strip()
            if self._field:
                value = json.loads(value)
                for name in self._field.split("."):
                    value = value[name]
        except (ValueError, KeyError, TypeError) as error:
            notes.append(f"no label in {member.name} at {member.offset}: {type(error).__name__} {error}")
            return None
        if isinstance(value, bool) or not isinstance(value, (int, str)) or value == "":
            notes.append(f"no label in {member.name} at {member.offset}: got {value!r}, a number or a text is needed")
            return None
        text = str(value)
        return int(text) if text.isascii() and text.isdigit() and int(text) < 2**31 else text


@dataclass(frozen=True, slots=True)
class Member:
    """A file in a tar."""

    name: str
    offset: int  # of its content
    size: int


class _Samples:
    """Puts the members of a sample together, as they come."""

    def __init__(self) -> None:
        self._key: str | None = None
        self._image: Member | None = None
        self._label: int | str | None = None
        self._has: set[str] = set()
        self._seen: set[str] = set()

    def add(self, member: Member, tar: TarShards, peek: Peek, found: Found) -> None:
        """The next member."""
        folder, _, base = member.name.rpartition("/")
        stem, _, extension = base.partition(".")
        key, extension = f"{folder}/{stem}", extension.lower()
        if key != self._key or extension in self._has:
            self.end(tar, found)
            if key in self._seen:
                found.notes.append(f"duplicate key {key.lstrip('/')} at {member.offset}")
            self._seen.add(key)
            self._key = key
        self._has.add(extension)
        if extension in tar._images and self._image is None:
            self._image = member
        elif tar._label and extension == tar._label:
            self._label = tar._label_of(member, peek, found.notes)

    def end(self, tar: TarShards, found: Found) -> None:
        """The sample is complete."""
        if self._image is not None:
            image = self._image
            found.add(image.offset, image.size, self._label, os.fsencode(image.name))
            if tar._label and tar._label not in self._has:
                found.notes.append(f"no .{tar._label} for {image.name} at {image.offset}")
        elif self._key is not None:
            found.notes.append(f"no image for key {self._key.lstrip('/')}, only {', '.join(sorted(self._has))}")
        self._key, self._image, self._label, self._has = None, None, None, set()


def members(peek: Peek, notes: list[str]) -> Iterator[Member]:
    """The files of a tar in their order; what is damaged or left out goes to `notes`, with its offset."""
    at, named, head = 0, {}, peek.at(0, 8)
    for magic, packing in _PACKED.items():
        if head.startswith(magic):
            raise SourceError(
                f"{peek.uri} is compressed with {packing}: samples in it cannot be found without unpacking all before "
                "them; unpack it to a plain .tar once (images do not shrink any further)"
            )
    while True:
        block = peek.at(at, _BLOCK)
        if len(block) < _BLOCK:
            notes.append(f"cut off at {at}: the end of the archive is missing")
            return
        if block.count(0) == _BLOCK:
            return
        if not _intact(block):
            what = "no tar file" if at == 0 else "damaged header"
            notes.append(f"{what} at {at}: nothing after it can be read")
            return
        kind, size, start = block[156:157], _number(block[124:136]), at + _BLOCK
        if size < 0:
            notes.append(f"damaged header at {at}: a size of {size}")
            return
        if kind in b"xgLK" and kind:
            if size > _MOST or start + size > peek.size:
                notes.append(f"damaged header at {at}: {size} bytes of names")
                return
            if kind == b"x":
                named |= _pax(peek.at(start, size))
            elif kind == b"L":
                named["path"] = peek.at(start, size).rstrip(b"\0").decode("utf-8", "surrogateescape")
        else:
            name = named.get("path") or _name(block)
            size = int(named["size"]) if named.get("size", "").isdigit() else size
            kind = b"S" if any(key.startswith("GNU.sparse") for key in named) else kind
            named = {}
            why = _refused(kind, name)
            if why:
                notes.append(f"left out {name!r} at {at}: {why}")
            elif kind in _FILES:
                yield Member(name, start, size)
                if start + size > peek.size:
                    notes.append(f"cut off at {peek.size}: {name} should end at {start + size}")
                    return
            if kind in b"12346" and kind:  # these have no content, whatever their size field says
                size = 0
        at = start + -(-size // _BLOCK) * _BLOCK


def _refused(kind: bytes, name: str) -> str:
    if kind in _KINDS:
        return _KINDS[kind]
    if name.startswith("/") or ".." in name.split("/"):
        return "its name leads out of the archive"
    if kind not in _FILES and kind != b"5":
        return f"of unknown kind {kind!r}"
    return ""


def _intact(block: bytes) -> bool:
    """The checksum of a header is right: the sum of its bytes, its own field counted as spaces."""
    stated = _number(block[148:156])
    return stated == sum(block) - sum(block[148:156]) + 256


def _number(field: bytes) -> int:
    """An octal number, or GNU's base-256; -1 for neither."""
    if field[0] & 0x80:
        return int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1) if field[0] == 0x80 else -1
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        return -1


def _name(block: bytes) -> str:
    name = block[:100].partition(b"\0")[0]
    if block[257:262] == b"ustar" and block[262:263] == b"\0":
        prefix = block[345:500].partition(b"\0")[0]
        name = prefix + b"/" + name if prefix else name
    name = name.decode("utf-8", "surrogateescape")
    return name[2:] if name.startswith("./") else name


def _pax(data: bytes) -> dict[str, str]:
    """Records `length key=value\\n`."""
    found: dict[str, str] = {}
    while data:
        length, _, rest = data.partition(b" ")
        if not length.isdigit() or int(length) > len(data) or int(length) <= len(length) + 1:
            break
        key, _, value = rest[: int(length) - len(length) - 2].partition(b"=")
        found[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        data = data[int(length) :]
    return found
