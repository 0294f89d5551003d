"""Indexes of tar shards from other tools: wids' lists of shards, and DALI's `.idx` files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Set
from pathlib import PurePosixPath
from typing import Any

from fastfeed.errors import SourceError
from fastfeed.faults import REASONS
from fastfeed.printable import printable
from fastfeed.runtime.json_file import parse_json
from fastfeed.sources.access import Allow, IndexNames
from fastfeed.sources.shards.base import Paths
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.tar.headers import (
    BLOCK,
    Member,
    header_matches,
    leads_to,
    strip_dot_slash,
    why_excluded,
)
from fastfeed.storage.expand import listed_paths, read_whole
from fastfeed.storage.reads import Unread, is_local
from fastfeed.storage.storage import Storage
from fastfeed.system.descriptors import open_regular

_KIND = "wids-shard-index-v1"
_GAP = 1 << 20  # bytes between two members that are looked at
_HEAD = 30  # bytes of the first line of an .idx, at most


def shards_from_wids(
    shards: Paths, storage: Storage, allow: Allow, who: str
) -> tuple[list[Any], dict[str, int], Storage]:
    """Shards, with wids indexes (`.json`) replaced by theirs; listed samples; the storage."""
    items = listed_paths(shards)
    indexes = [_wids_index(item) for item in items]
    names = IndexNames(items, [index for index in indexes if index], allow, storage, who)
    uris: list[Any] = []
    counts: dict[str, int] = {}
    for item, index in zip(items, indexes, strict=True):
        if not index:
            uris.append(item)
            continue
        for uri, samples in _wids(index, names, who):
            uris.append(uri)
            if isinstance(samples, int):
                counts[uri] = samples
    return uris, counts, names.storage


def _wids_index(item: Any) -> str:
    """Address of a wids index; "" for anything else."""
    path = os.fspath(item).removeprefix("file://") if isinstance(item, (str, os.PathLike)) else ""
    return path if isinstance(path, str) and path.endswith(".json") else ""


def _wids(uri: str, names: IndexNames, who: str, nested: bool = False) -> Iterator[tuple[str, Any]]:
    """Address and number of samples of each shard. Addresses are relative to the index."""
    try:
        index = parse_json(_read(uri, names.storage, who))
        if (
            not isinstance(index, dict)
            or index.get("__kind__", _KIND) != _KIND
            or index.get("wids_version", 1) != 1
        ):
            raise ValueError(f'a "__kind__" of "{_KIND}" or a "wids_version" of 1 is needed')
        for part in [index, *index.get("datasets", ())]:
            base = (
                names.resolve(uri, uri, part["base"].rstrip("/") + "/") if part.get("base") else uri
            )
            for shard in part.get("shardlist", ()):
                yield names.resolve(uri, base, shard["url"]), shard.get("nsamples")
            if part is not index and "source_url" in part and not nested:
                yield from _wids(
                    names.resolve(uri, uri, part["source_url"]), names, who, nested=True
                )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(
            f"{who}: {uri} is not a wids index: {type(error).__name__} {error}"
        ) from error


def _read(uri: str, storage: Storage, who: str) -> bytes:
    data = read_whole(uri, storage)
    if isinstance(data, Unread):
        raise SourceError(f"{who}: cannot read {uri}: {data.detail or REASONS[data.reason]}")
    return data


class _Mismatch(Exception):
    """An index that does not fit its shard."""


def members_from_dali(
    reader: ForwardReader, read: Callable[[str], bool], notes: list[str]
) -> list[Member]:
    """Members listed by an `.idx` next to a shard; none if it is missing or does not fit.

    The headers of the first, the last, and of those whose content will be read at once (`read`
    tells by the name) are compared with it, so that a wrong one can give no wrong label; those of
    the images are, whenever they are read.
    """
    path = _idx(reader.uri)
    if path is None:
        return []
    try:
        if os.stat(path).st_mtime_ns < os.stat(reader.uri).st_mtime_ns:
            raise _Mismatch("older than the shard")
        with open(open_regular(path), "rb") as file:
            content = file.read(reader.size + 1)
        if len(content) > reader.size:
            raise _Mismatch("larger than the shard")
        entries = _parse_idx(content)
        _check(entries, reader, read)
    except (_Mismatch, OSError) as error:
        notes.append(f"{PurePosixPath(path).name} is not used: {error}")
        return []
    return [member for member in entries if not why_excluded(member.name, member.size)]


def samples_in_dali(uri: str) -> tuple[int, str] | None:
    """Number of samples in the `.idx` next to a shard, and its name; None without one."""
    path = _idx(uri)
    if path is None:
        return None
    try:
        with open(open_regular(path), "rb") as file:
            version, _, count = file.readline(_HEAD).partition(b" ")
    except OSError:
        return None
    known = version in (b"v1.1", b"v1.2") and count.strip().isdigit()
    return (int(count), os.path.basename(path)) if known else None


def _idx(uri: str) -> str | None:
    """Path of DALI's index of a shard; None if it does not exist."""
    if not is_local(uri):
        return None
    folder, base = os.path.split(uri)
    stem = base[:1] + base[1:].partition(".")[0]  # as wds2idx has it
    path = os.path.join(folder, stem + ".idx")
    return path if os.path.isfile(path) else None


def _parse_idx(text: bytes) -> list[Member]:
    """Parse version and number of samples, then extension, offset, size and name of members."""
    first, *lines = text.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")
    version, _, count = first.partition(" ")
    if version == "v1.1":
        raise _Mismatch("v1.1 lists no names, wds2idx of today does")
    if version != "v1.2" or not lines or count != str(len(lines)):
        got = f"{printable(repr(first), 80)} and {len(lines)} lines"
        raise _Mismatch(f"must be a complete index of version v1.2, got {got}")
    entries: list[Member] = []
    for line in lines:
        words = line.split(" ")
        for offset, size, name in zip(words[1::4], words[2::4], words[3::4], strict=False):
            if len(words) % 4 or not (
                offset.isascii() and offset.isdigit() and size.isascii() and size.isdigit()
            ):
                raise _Mismatch(f"{printable(repr(line), 80)} is not extension, offset, size, name")
            if "\\" in name:
                raise _Mismatch(f"{name} is an escaped name")
            entries.append(Member(strip_dot_slash(name), int(offset), int(size)))
    return entries


def _check_links(reader: ForwardReader, first: int, last: int, names: Set[str]) -> None:
    """_Mismatch if there are links to members in these bytes, of which it lists none."""
    for at in range(first, min(last, first + _GAP), BLOCK):
        target = leads_to(reader.read(at, BLOCK))
        if target is not None and (target in names or at > first):
            # behind another header, its names may be longer
            raise _Mismatch("it leaves out the links of the archive")


def _check(entries: list[Member], reader: ForwardReader, read: Callable[[str], bool]) -> None:
    end = 0
    checked = {0, len(entries) - 1}
    names = {member.name for member in entries}
    for i, member in enumerate(entries):
        if (
            member.offset % BLOCK
            or member.offset < end + BLOCK
            or member.offset + member.size > reader.size
        ):
            raise _Mismatch(f"{member.name} has an invalid offset, {member.offset}")
        if read(member.name):
            checked.add(i)
        if member.offset > end + BLOCK:  # a long name: of such, wds2idx lists a wrong offset
            checked |= {max(i - 1, 0), i}
            _check_links(reader, end, member.offset - BLOCK, names)
        end = member.offset + -(-member.size // BLOCK) * BLOCK
    _check_links(reader, end, min(reader.size, end + _GAP), names)
    if reader.read(end, BLOCK) != bytes(BLOCK):
        raise _Mismatch(f"it lists nothing after {end}, but the archive does not end there")
    for member in (entries[i] for i in sorted(checked)):
        if not header_matches(reader.read(member.offset - BLOCK, BLOCK), member.name, member.size):
            raise _Mismatch(f"{member.name} does not lie at {member.offset}")
