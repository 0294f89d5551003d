"""The base of all writers: metadata as text, arrays as `.npy`, and spooled content."""

from __future__ import annotations

import json
import math
import re
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from fastfeed.preprocess.model.columns import own_columns
from fastfeed.preprocess.model.layout import SUFFIXES
from fastfeed.preprocess.model.recipe import Packing
from fastfeed.preprocess.model.record import Entry, ProcessedImage
from fastfeed.preprocess.model.task import SampleFault
from fastfeed.sources.tables.column_types import ColumnType

HEAD = 128  # bytes of an .npy header
_SURROGATES = re.compile("[\ud800-\udfff]")
_IN_MEMORY = 32 << 20  # bytes; more go to an unnamed temporary file
_COPY_BYTES = 4 << 20  # bytes


class File(Protocol):
    """An append-only file; raises OSError."""

    def write(self, data: Any, /) -> int: ...
    def close(self) -> None: ...


Create = Callable[[str], File]  # a new file of this (final) name


class ShardWriter(ABC):
    """Writes one shard; `stem` is such as "shard-000012"."""

    format: ClassVar[str]

    def __init__(
        self,
        create: Create,
        stem: str,
        packing: Packing,
        types: Mapping[str, ColumnType] | None = None,
        multi: bool = False,
        images: tuple[str, ...] = (),
    ) -> None:
        self._create = create
        self._stem = stem
        self._packing = packing
        self._file = create(stem + SUFFIXES[self.format])
        self._offsets: list[int] = []
        self.multi = multi  # labels are lists
        self.images = images  # names of a sample's images, if it has several
        self.types = own_columns(types or {})  # of metadata columns
        self.columns = ArrayColumns(self.types)
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Set up what the format keeps of a shard; the file is open, types are known."""

    @abstractmethod
    def add(self, entry: Entry) -> None:
        """Write the next sample. An error, unless of the file, leaves the shard unchanged."""

    def named_images(self, entry: Entry) -> dict[str, Entry | ProcessedImage]:
        """The images of a sample by name; "" is the name of a single one."""
        return {self.images[0] if self.images else "": entry, **entry.others}

    def copy(self, data: bytes, starts: Sequence[int], others: Mapping[str, bytes]) -> None:
        """Write the next samples, which begin at `starts` in bytes of a shard of this format.

        others: what further files have of them, by suffix, of raw shards. Their arrays must be
        declared. TypeError for Parquet.
        """
        raise TypeError(f"samples of {self.format} shards cannot be copied as bytes")

    @abstractmethod
    def close(self) -> list[int]:
        """Complete the files, and return each sample's byte offset in the main file, if it has any."""

    def _write_file(self, suffix: str, content: bytes) -> None:
        """Write another file of the shard, completely."""
        file = self._create(self._stem + suffix)
        file.write(content)
        file.close()


def as_json(meta: Any) -> bytes:
    """ASCII JSON, sorted, on one line; non-finite numbers become null."""
    try:
        return _dump(meta)
    except ValueError:
        return _dump(_finite(meta))


def as_text(text: str) -> str:
    """Replace surrogates by U+FFFD: readers fail on invalid UTF-8."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _dump(meta: Any) -> bytes:
    return json.dumps(meta, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def meta_text(entry: Entry, name: str) -> str:
    """The class name or the URI of a sample as plain text; "" if it has none."""
    return as_text(str(entry.meta.get(name) or ""))


def class_texts(entry: Entry) -> list[str]:
    """The names of a sample's several classes."""
    return list(map(as_text, entry.meta.get("class") or ()))


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """A header of NumPy's format 1.0, padded to HEAD bytes, as NumPy versions pad differently."""
    about = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + (HEAD - 10).to_bytes(2, "little") + about.ljust(HEAD - 11) + b"\n"


class ArrayColumns:
    """Names, types and shapes of a shard's arrays, which its first sample decides."""

    def __init__(self, taken: Mapping[str, Any] | None = None) -> None:
        self._taken = taken or {}  # names of metadata columns
        self.kinds: dict[str, list[Any]] = {}  # dtype and shape by name, as records have them
        self._started = False

    def forget(self) -> None:
        """Let the next sample decide: none has been written."""
        self.kinds = {}
        self._started = False

    def declare(self, kinds: dict[str, list[Any]]) -> None:
        """Take names, types and shapes from a shard, unless a sample has decided."""
        if not self._started:
            self.kinds = kinds
            self._started = True

    def arrays(self, entry: Entry) -> list[tuple[str, np.ndarray]]:
        """Arrays of a sample by name. SampleFault if they differ from the first sample's."""
        kinds = {name: [a.dtype.name, list(a.shape)] for name, a in sorted(entry.arrays.items())}
        if shared := sorted(self._taken.keys() & kinds.keys()):
            raise SampleFault(f"the name {shared[0]!r} is that of a metadata column, too")
        self.declare(kinds)
        if kinds != self.kinds:
            raise SampleFault(
                "all samples of a shard must have arrays of the same names, types and shapes:"
                f" {_text(self.kinds)} so far, {entry.meta.get('uri') or entry.key} has"
                f" {_text(kinds)}"
            )
        return [(name, entry.arrays[name]) for name in kinds]


def _text(kinds: dict[str, list[Any]]) -> str:
    words = [f"{name} {dtype} {tuple(shape)}" for name, (dtype, shape) in kinds.items()]
    return ", ".join(words) or "none"


class Spool:
    """Bytes in order, in memory or in the temporary folder (TMPDIR)."""

    def __init__(self) -> None:
        self.size = 0  # bytes
        self._spooled = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  closed by `pour`, or on deletion
        weakref.finalize(self, self._spooled.close)

    def write(self, data: bytes | memoryview) -> None:
        """Append data to the shard."""
        self.size += self._spooled.write(data)

    def pour(self, file: File) -> None:
        """Append everything to a file and discard it here."""
        self._spooled.seek(0)
        while data := self._spooled.read(_COPY_BYTES):
            file.write(data)
        self._spooled.close()
