"""Per-sample metadata columns stored in shards, with a separate index."""

from __future__ import annotations

import io
import math
import tokenize
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.runtime.extension import extension
from fastfeed.sources.shards.index import NOWHERE, Index, ShardScan
from fastfeed.storage.reads import Unread
from fastfeed.storage.shard_files import ShardReader

# bytes of one value; more is damage, or no text
LARGEST = 1 << 20
LARGEST_ARRAY = 64 << 20
# instead of an offset: the sample has no such value; what holds it is damaged, as an offset behind
# all shards is
_NONE = NOWHERE - 1
_UNREADABLE = NOWHERE
_BYTES = ":bytes"  # after the name of a column whose bytes are not text

# of a column's bytes: a type, if they are a number; "feature": a tf.train.Feature
Kind = Literal["text", "json", "feature", "npy", "bytes"] | np.dtype[Any]
# what native code makes values of: of JSON and features only those that are one text or number
_NATIVE_KINDS = {"text": b"t", "json": b"n", "feature": b"f"}
_FEATURE_TYPES = {int: np.int64, float: np.float32}  # of its numbers


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
    """Check that names are unique texts. ConfigError."""
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


@dataclass(eq=False)
class ExtraColumns:
    """Values of samples, read on demand."""

    _index: Index
    _shards: ShardReader
    names: tuple[str, ...]
    _head: int  # bytes before each value that belong to it
    _largest_of: Callable[[str], int]
    _kind_of: Callable[[str], Kind]

    def __post_init__(self) -> None:
        self._largest = np.array([self._largest_of(name) for name in self.names])
        self._kinds: dict[str, Kind] = {name: self._kind_of(name) for name in self.names}
        self._native_kinds = b"".join(_NATIVE_KINDS.get(str(k), b"b") for k in self._kinds.values())

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each value, name by name for each sample: uint32."""
        return self._index.lengths

    def values(
        self, ids: Sequence[int], convert: Callable[[str, bytes], Any]
    ) -> dict[str, list[Any]]:
        """Values by name, one per sample; None for a missing one, or an Unread.

        A ValueError of `convert` becomes an Unread, too.
        """
        count = len(self.names)
        entries = (np.asarray(ids, np.int64)[:, None] * count + np.arange(count)).reshape(-1)
        values = self._read_natively(entries)
        rest = [k for k, value in enumerate(values) if value is None]
        if rest:
            for k, value in zip(rest, self._read(entries[rest]), strict=True):
                values[k] = value
        return {
            name: _converted_column(name, self._kinds[name], values[k::count], convert)
            for k, name in enumerate(self.names)
        }

    def _read_natively(self, entries: np.ndarray) -> list[Any]:
        """Values of local shards without the GIL; None for what `_read` is asked for.

        Texts and numbers are converted as the format does, other values are bytes.
        """
        index = self._index
        native = extension()
        offsets = index.offsets[entries]
        lengths = index.lengths[entries].astype(np.int64)
        skip = (offsets >= _NONE) | (lengths > self._largest[entries % len(self.names)])
        shards = np.where(skip, -1, index.find_shards(entries))
        ranges = self._shards.ranges(
            shards, offsets, offsets + lengths, head=self._head, checks=index.checks[entries]
        )
        if ranges is None or native is None:
            return [None] * len(entries)
        locations = native.Locations(len(entries))
        locations.ranges(None, **ranges._asdict())
        return native.read_values(locations, self._native_kinds)

    def _read(self, entries: np.ndarray) -> list[bytes | Unread | None]:
        """Bytes of values; None for missing ones."""
        head = self._head
        index = self._index
        shards = index.find_shards(entries).tolist()
        checks = index.checks[entries].tolist()
        lengths = index.lengths[entries].tolist()
        largest = self._largest[entries % len(self.names)].tolist()
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
        return values

    def missing(self) -> list[str]:
        """Names that no sample has a value of."""
        present = self._index.offsets.reshape(-1, len(self.names)) != _NONE
        return [
            name for name, found in zip(self.names, present.any(axis=0), strict=True) if not found
        ]


def as_json(values: dict[str, Any]) -> dict[str, Any]:
    """Values as in JSON: lists for arrays, texts for bytes; bytes that are no text stay bytes."""
    return {name: _json_value(value) for name, value in values.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def read_npy(data: bytes) -> np.ndarray:
    """The array of an .npy file. ValueError."""
    start = npy_start(data)
    shape, is_fortran, dtype = npy_header(data[:start])
    if dtype.hasobject:
        raise ValueError("no .npy file: pickled objects are not loaded")
    if math.prod(shape) * dtype.itemsize != len(data) - start:
        raise ValueError(f"{len(data) - start} bytes for {dtype} {shape}")
    return np.ndarray(shape, dtype, data, start, order="F" if is_fortran else "C").copy("K")


def npy_start(data: bytes) -> int:
    """Bytes of the header of an .npy file."""
    size = 2 if data[6:8] == b"\1\0" else 4  # of the header's length, which follows
    return 8 + size + int.from_bytes(data[8 : 8 + size], "little")


def _arrays_of_one_header(files: Sequence[bytes]) -> list[np.ndarray] | None:
    """Arrays of .npy files that differ in their values alone; None if others are among them."""
    start = npy_start(files[0])
    size = len(files[0])
    if set(map(len, files)) != {size} or not 0 < start < size:
        return None
    bytes_of_all = np.frombuffer(b"".join(files), np.uint8).reshape(len(files), size)
    if (bytes_of_all[:, :start] != bytes_of_all[0, :start]).any():
        return None
    shape, is_fortran, dtype = npy_header(files[0][:start])
    if is_fortran or dtype.hasobject or math.prod(shape) * dtype.itemsize != size - start:
        return None
    values = bytes_of_all[:, start:].copy().view(dtype).reshape(len(files), *shape)
    return [values[row, ...] for row in range(len(files))]


@lru_cache(maxsize=64)  # NumPy parses it as Python, and samples have the same one
def npy_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the order is Fortran's, and type. ValueError."""
    file = io.BytesIO(header)
    try:
        if np.lib.format.read_magic(file) == (1, 0):
            return np.lib.format.read_array_header_1_0(file)
        return np.lib.format.read_array_header_2_0(file)
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


def _converted_column(
    name: str, kind: Kind, values: list[Any], convert: Callable[[str, bytes], Any]
) -> list[Any]:
    """Values of a column; those that are bytes still are converted."""
    types = set(map(type, values))
    if isinstance(kind, np.dtype) and types == {bytes} and set(map(len, values)) == {kind.itemsize}:
        return list(np.frombuffer(b"".join(values), kind))
    if kind == "npy" and types == {bytes}:
        with suppress(ValueError):  # `convert` says which
            values = _arrays_of_one_header(values) or values
            types = set(map(type, values))
    if kind == "feature" and len(types) == 1 and types <= _FEATURE_TYPES.keys():
        return list(np.array(values, _FEATURE_TYPES[type(values[0])]))
    if kind == "feature" and not types.isdisjoint(_FEATURE_TYPES):
        values = [_FEATURE_TYPES.get(type(value), lambda own: own)(value) for value in values]
    if types.isdisjoint((bytes, Unread)):
        return values
    return [_converted(name, value, convert) for value in values]


def _converted(name: str, value: Any, convert: Callable[[str, bytes], Any]) -> Any:
    if isinstance(value, Unread):
        return Unread(value.reason, f"{name}: {value.detail or value.reason}")
    try:
        return convert(name, value) if isinstance(value, bytes) else value
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
