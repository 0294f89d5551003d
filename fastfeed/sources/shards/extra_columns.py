"""Per-sample metadata columns stored in shards, with a separate index."""

from __future__ import annotations

import io
import math
import tokenize
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.sources.shards.index import NOWHERE, Index, ShardScan
from fastfeed.storage.reads import Unread
from fastfeed.storage.shard_files import ShardReader

LARGEST, LARGEST_ARRAY = 1 << 20, 64 << 20  # bytes of one value; more is damage, or no text
# instead of an offset: the sample has no such value; what holds it is damaged, as an offset behind
# all shards is
_NONE = NOWHERE - 1
_UNREADABLE = NOWHERE
_BYTES = ":bytes"  # after the name of a column whose bytes are not text


@runtime_checkable
class HasExtraColumns(Protocol):
    """A source with metadata columns that are read from storage."""

    def extra_columns(self, ids: Sequence[int]) -> list[dict[str, Any] | Failure]:
        """Values by name as in JSON, None for a missing one; or the Failure of a sample."""
        ...


@dataclass(frozen=True, slots=True)
class ValueLocation:
    """Location of a value in its shard."""

    offset: int
    size: int
    head: int = 0  # bytes before it that show whether it is still the same
    check: int = 0  # their CRC-32; 0: not known


def column_names(columns: Sequence[str], who: str) -> tuple[str, ...]:
    """Names, each once. ConfigError."""
    if isinstance(columns, str):
        raise ConfigError.of(f"{who}: columns", "a list of names", columns, f"pass [{columns!r}]")
    names = tuple(columns)
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise ConfigError.of(f"{who}: columns", "names, each once", names)
    return names


def bytes_columns(names: Sequence[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Names without `:bytes`, and those that had it: their values stay bytes."""
    plain = tuple(name.removesuffix(_BYTES) for name in names)
    return plain, frozenset(
        short for short, name in zip(plain, names, strict=True) if short != name
    )


def add_row(
    scan: ShardScan, names: Sequence[str], locations: dict[str, ValueLocation] | None
) -> None:
    """Add an entry per name for one more sample; None for a sample that cannot be parsed."""
    for name in names:
        location = None if locations is None else locations.get(name)
        if location is None:
            scan.add(_UNREADABLE if locations is None else _NONE, 0, None, b"")
        else:
            scan.add(location.offset, min(location.size, (1 << 32) - 1), None, b"", location.check)


class ExtraColumns:
    """Values of samples, read on demand."""

    def __init__(
        self,
        index: Index,
        shards: ShardReader,
        names: tuple[str, ...],
        head: int,
        largest: Callable[[str], int],
    ) -> None:
        self._index = index
        self._shards = shards
        self.names = names
        self._largest = [largest(name) for name in names]
        self._head = head  # bytes before each value that belong to it

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each value, name by name for each sample: uint32."""
        return self._index.lengths

    def read(self, ids: Sequence[int]) -> list[list[bytes | Unread | None]]:
        """Values of each sample in the order of the names; None for a missing one."""
        count, head, index = len(self.names), self._head, self._index
        entries = [int(i) * count + k for i in ids for k in range(count)]
        shards, checks = index.shards_of(entries).tolist(), index.checks[entries].tolist()
        lengths, largest = index.lengths[entries].tolist(), self._largest * len(ids)
        values: list[bytes | Unread | None] = [None] * len(entries)
        ranges: dict[int, tuple[int, int, int]] = {}  # by position in `values`
        for k, offset in enumerate(index.offsets[entries].tolist()):
            if offset == _NONE:
                continue
            if offset == _UNREADABLE:
                values[k] = Unread("corrupt", "what holds the columns is damaged")
            elif lengths[k] > largest[k]:
                values[k] = Unread("bomb", f"{lengths[k]} bytes, the limit is {largest[k]}")
            else:
                ranges[k] = shards[k], offset - head, offset + lengths[k]
        found = self._shards.read_all(list(ranges.values()))
        for k, data in zip(ranges, found, strict=True):
            values[k] = _checked(data, head, checks[k])
        return [values[row * count : (row + 1) * count] for row in range(len(ids))]

    def values(
        self, ids: Sequence[int], convert: Callable[[str, bytes], Any]
    ) -> list[dict[str, Any]]:
        """Converted values by name; a ValueError of `convert` becomes an Unread."""
        return [
            {
                name: _converted(name, data, convert)
                for name, data in zip(self.names, values, strict=True)
            }
            for values in self.read(ids)
        ]

    def missing(self) -> list[str]:
        """Names that no sample has a value of."""
        present = self._index.offsets.reshape(-1, len(self.names)) != _NONE
        return [
            name for name, found in zip(self.names, present.any(axis=0), strict=True) if not found
        ]


def as_json(values: dict[str, Any]) -> dict[str, Any]:
    """Values as in JSON: lists for arrays, texts for bytes. ValueError for other bytes."""
    return {name: _json_value(name, value) for name, value in values.items()}


def _json_value(name: str, value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, list):
        return [_json_value(name, item) for item in value]
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name}: bytes that are not text, which JSON cannot hold: {error}"
        ) from error


def read_npy(data: bytes) -> np.ndarray:
    """The array of an .npy file. ValueError."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            read_header = np.lib.format.read_array_header_1_0
        else:
            read_header = np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
        if math.prod(shape) * dtype.itemsize != len(data) - file.tell():
            raise ValueError(f"{len(data) - file.tell()} bytes for {dtype} {shape}")
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)
    except (
        EOFError,
        OSError,
        SyntaxError,
        TypeError,
        KeyError,
        OverflowError,
        tokenize.TokenError,
    ) as error:
        raise ValueError(f"no .npy file: {error}") from error


def _converted(name: str, data: bytes | Unread | None, convert: Callable[[str, bytes], Any]) -> Any:
    if isinstance(data, Unread):
        return Unread(data.reason, f"{name}: {data.detail or data.reason}")
    try:
        return None if data is None else convert(name, data)
    except (ValueError, RecursionError) as error:
        return Unread("corrupt", f"{name}: {error}")


def _checked(data: bytes | Unread, head: int, check: int) -> bytes | Unread:
    """The value behind a head that shows whether it is still the same."""
    if isinstance(data, Unread):
        return data
    if check and zlib.crc32(data[:head]) != check:
        return Unread(
            "changed", "the shard has changed since it was indexed; create the source again"
        )
    return data[head:] if head else data
