"""What lies beside the images in shards: texts, numbers, by name. An index of its own says where, so that the images'
index stays as it is."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.sources.shards.index import Found, Index
from fastfeed.storage.pending import Pending
from fastfeed.storage.retry import Unread
from fastfeed.storage.shard_files import Known, Shards, Then, divided

__all__ = ["LARGEST", "Beside", "Extended", "Place", "names_of", "note"]

LARGEST = 1 << 20  # bytes of one value; more is damage, or no text
_NONE = -1  # in place of an offset: this sample has none


@runtime_checkable
class Extended(Protocol):
    """A source that can say more of a sample, if it can be read."""

    def beside(self, ids: Sequence[int]) -> list[dict[str, Any] | Failure]:
        """By name, values as JSON has them, None where there is none; or the Failure that happened instead."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Of one value in its shard."""

    offset: int
    size: int
    head: int = 0  # bytes before it that show whether it is still the same
    check: int = 0  # their CRC-32; 0: not known


def names_of(columns: Sequence[str], who: str) -> tuple[str, ...]:
    """Names, each once. ConfigError."""
    if isinstance(columns, str):
        raise ConfigError(f"{who}: columns must be a list of names, got {columns!r}; pass [{columns!r}]")
    names = tuple(columns)
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise ConfigError(f"{who}: columns must be names, each once, got {names!r}")
    return names


def note(found: Found, names: Sequence[str], places: dict[str, Place]) -> None:
    """The values of one more sample: an entry for each name."""
    for name in names:
        place = places.get(name)
        if place is None:
            found.add(_NONE, 0, None, b"")
        else:
            found.add(place.offset, min(place.size, (1 << 32) - 1), None, b"", place.check)


class Beside:
    """Values of samples, read when asked for."""

    def __init__(self, index: Index, shards: Shards, names: tuple[str, ...], head: int) -> None:
        self._index, self._shards, self.names = index, shards, names
        self._head = head  # bytes before each value that belong to it

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each value, name by name for each sample: uint32."""
        return self._index.lengths

    def read(self, ids: Sequence[int]) -> list[list[bytes | Unread | None]]:
        """Of each sample, its values in the order of the names; None where there is none."""
        count = len(self.names)
        entries = [int(i) * count + k for i in ids for k in range(count)]
        pending = self._begin(entries)
        found = [one.result() for one in pending]
        return [found[row * count : (row + 1) * count] for row in range(len(ids))]

    def values(self, ids: Sequence[int], mean: Callable[[str, bytes], Any]) -> list[dict[str, Any] | Unread]:
        """The same by name; `mean` says what the bytes mean, or raises ValueError."""
        return [self._named(values, mean) for values in self.read(ids)]

    def columns(self, ids: np.ndarray, mean: Callable[[str, bytes], Any]) -> dict[str, np.ndarray]:
        """The same by name, as objects; "" in place of what is not there."""
        found = {name: np.full(len(ids), "", object) for name in self.names}
        for row, values in enumerate(self.values(np.asarray(ids).tolist(), mean)):
            for name, value in ({} if isinstance(values, Unread) else values).items():
                found[name][row] = "" if value is None else value
        return found

    def _named(self, values: Sequence[bytes | Unread | None], mean: Callable[[str, bytes], Any]) -> Any:
        said: dict[str, Any] = {}
        for name, data in zip(self.names, values, strict=True):
            if isinstance(data, Unread):
                return Unread(data.reason, f"{name}: {data.detail}")
            try:
                said[name] = None if data is None else mean(name, data)
            except (ValueError, RecursionError) as error:
                return Unread("corrupt", f"{name}: {error}")
        return said

    def _begin(self, entries: list[int]) -> list[Pending]:
        index, shards = self._index, self._shards
        out: list[Pending] = [Known(None)] * len(entries)
        asked: list[tuple[int, int, int, int]] = []  # row, shard, start, stop
        for row, entry in enumerate(entries):
            offset, size = int(index.offsets[entry]), int(index.lengths[entry])
            if offset == _NONE:
                continue
            if size > LARGEST:
                out[row] = Known(Unread("bomb", f"{size} bytes, the limit is {LARGEST}"))
            else:
                asked.append((row, index.shard_of(entry), offset - self._head, offset + size))
        begun = shards.fetch_all([place[1:] for place in asked]) if shards.remote else [None] * len(asked)
        for (row, shard, start, stop), remote in zip(asked, begun, strict=True):
            cuts, check = (start, start + self._head, stop), int(index.checks[entries[row]])
            if remote is None:
                out[row] = Known(_checked(shards.pieces(shard, *cuts), check))
            else:
                out[row] = Then(remote, lambda data, cuts=cuts, check=check: _checked(divided(data, *cuts), check))
        return out


def _checked(pieces: tuple[bytes, ...] | Unread, check: int) -> bytes | Unread:
    if isinstance(pieces, Unread):
        return pieces
    head, data = pieces
    if check and zlib.crc32(head) != check:
        return Unread("changed", "another member lies there than was indexed; build the source anew")
    return data
