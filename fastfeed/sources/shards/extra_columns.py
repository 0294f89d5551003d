"""Per-sample metadata columns stored in shards, with an index of their own."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.sources.shards.index import Index, ShardScan
from fastfeed.storage.pending import Pending
from fastfeed.storage.retry import Unread
from fastfeed.storage.shard_files import Completed, MappedRead, Shards, split_at

__all__ = [
    "LARGEST",
    "LARGEST_ARRAY",
    "ExtraColumns",
    "HasExtraColumns",
    "ValueLocation",
    "add_row",
    "as_json",
    "column_names",
    "read_npy",
]

LARGEST, LARGEST_ARRAY = 1 << 20, 64 << 20  # bytes of one value; more is damage, or no text
_NONE = -1  # instead of an offset: this sample has no such value


@runtime_checkable
class HasExtraColumns(Protocol):
    """A source with metadata columns that are read from storage."""

    def extra_columns(self, ids: Sequence[int]) -> list[dict[str, Any] | Failure]:
        """By name, values as JSON has them, None where there is none; or the Failure that happened instead."""
        ...


@dataclass(frozen=True, slots=True)
class ValueLocation:
    """Where a value is in its shard."""

    offset: int
    size: int
    head: int = 0  # bytes before it that show whether it is still the same
    check: int = 0  # their CRC-32; 0: not known


def column_names(columns: Sequence[str], who: str) -> tuple[str, ...]:
    """Names, each once. ConfigError."""
    if isinstance(columns, str):
        raise ConfigError(f"{who}: columns must be a list of names, got {columns!r}; pass [{columns!r}]")
    names = tuple(columns)
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise ConfigError(f"{who}: columns must be names, each once, got {names!r}")
    return names


def add_row(scan: ShardScan, names: Sequence[str], locations: dict[str, ValueLocation]) -> None:
    """Add the values of one more sample: an entry for each name."""
    for name in names:
        location = locations.get(name)
        if location is None:
            scan.add(_NONE, 0, None, b"")
        else:
            scan.add(location.offset, min(location.size, (1 << 32) - 1), None, b"", location.check)


class ExtraColumns:
    """Values of samples, read on demand."""

    def __init__(
        self, index: Index, shards: Shards, names: tuple[str, ...], head: int, largest: Callable[[str], int]
    ) -> None:
        self._index, self._shards, self.names = index, shards, names
        self._largest = [largest(name) for name in names]
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
        values = [read.result() for read in pending]
        return [values[row * count : (row + 1) * count] for row in range(len(ids))]

    def values(self, ids: Sequence[int], convert: Callable[[str, bytes], Any]) -> list[dict[str, Any] | Unread]:
        """The same by name; `convert` makes values of the bytes, or raises ValueError."""
        return [self._by_name(values, convert) for values in self.read(ids)]

    def columns(self, ids: np.ndarray, convert: Callable[[str, bytes], Any]) -> dict[str, np.ndarray]:
        """The same by name: arrays of one type and shape as one array, all else as objects; "" for missing values."""
        rows = [{} if isinstance(row, Unread) else row for row in self.values(np.asarray(ids).tolist(), convert)]
        return {name: _column([row.get(name) for row in rows]) for name in self.names}

    def _by_name(self, values: Sequence[bytes | Unread | None], convert: Callable[[str, bytes], Any]) -> Any:
        by_name: dict[str, Any] = {}
        for name, data in zip(self.names, values, strict=True):
            if isinstance(data, Unread):
                return Unread(data.reason, f"{name}: {data.detail}")
            try:
                by_name[name] = None if data is None else convert(name, data)
            except (ValueError, RecursionError) as error:
                return Unread("corrupt", f"{name}: {error}")
        return by_name

    def _begin(self, entries: list[int]) -> list[Pending]:
        index, shards = self._index, self._shards
        out: list[Pending] = [Completed(None)] * len(entries)
        ranges: list[tuple[int, int, int, int]] = []  # row, shard, start, stop
        for row, entry in enumerate(entries):
            offset, size = int(index.offsets[entry]), int(index.lengths[entry])
            if offset == _NONE:
                continue
            if size > (largest := self._largest[entry % len(self.names)]):
                out[row] = Completed(Unread("bomb", f"{size} bytes, the limit is {largest}"))
            else:
                ranges.append((row, index.shard_of(entry), offset - self._head, offset + size))
        reads = shards.fetch_all([bounds[1:] for bounds in ranges]) if shards.remote else [None] * len(ranges)
        for (row, shard, start, stop), remote in zip(ranges, reads, strict=True):
            cuts, check = (start, start + self._head, stop), int(index.checks[entries[row]])
            if remote is None:
                out[row] = Completed(_checked(shards.pieces(shard, *cuts), check))
            else:
                out[row] = MappedRead(
                    remote, lambda data, cuts=cuts, check=check: _checked(split_at(data, *cuts), check)
                )
        return out


def _column(values: list[Any]) -> np.ndarray:
    """Where arrays are missing: NaN, or 0 for integers."""
    kinds = {
        (value.dtype, value.shape) if isinstance(value, np.ndarray) else None for value in values if value is not None
    }
    if len(kinds) == 1 and (kind := kinds.pop()) is not None:
        dtype, shape = kind
        missing = np.full(shape, np.nan if dtype.kind == "f" else 0, dtype)
        return np.stack([missing if value is None else value for value in values])
    column = np.full(len(values), "", object)
    for row, value in enumerate(values):
        column[row] = "" if value is None else value
    return column


def as_json(values: dict[str, Any]) -> dict[str, Any]:
    """With lists for arrays."""
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


def read_npy(data: bytes) -> np.ndarray:
    """The array of an .npy file. ValueError."""
    try:
        return np.load(io.BytesIO(data), allow_pickle=False)
    except (EOFError, OSError) as error:
        raise ValueError(f"no .npy file: {error}") from error


def _checked(pieces: tuple[bytes, ...] | Unread, check: int) -> bytes | Unread:
    if isinstance(pieces, Unread):
        return pieces
    head, data = pieces
    if check and zlib.crc32(head) != check:
        return Unread("changed", "the shard has changed since it was indexed; create the source again")
    return data
