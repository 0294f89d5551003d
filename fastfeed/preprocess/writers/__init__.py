"""Writers of shard files, by format.

Equal entries give equal bytes; the caller of a writer commits its files.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from fastfeed.preprocess.model.entry import Entry
from fastfeed.preprocess.model.recipe import Packing
from fastfeed.preprocess.writers.npy import ArrayColumns

__all__ = ["Create", "File", "Writer", "writer_for"]

_MODULES = {
    "webdataset": "tar",
    "tfrecord": "tfrecord",
    "parquet": "parquet",
    "mds": "mds",
    "raw": "arrays",
}


class File(Protocol):
    """An append-only file; raises OSError."""

    def write(self, data: Any, /) -> int: ...
    def close(self) -> None: ...


Create = Callable[[str], File]  # a new file of this (final) name


class Writer(Protocol):
    """Writes one shard.

    Created as `Writer(create, stem, packing)`; `stem` is such as "shard-000012".
    """

    @property
    def columns(self) -> ArrayColumns:
        """What arrays its samples have."""
        ...

    def add(self, entry: Entry) -> None:
        """Write the next sample. An error other than one of the file leaves the shard as it was."""
        ...

    def close(self) -> list[int]:
        """Complete the files; returns each sample's byte offset in the main file ([] for formats
        without offsets).
        """
        ...


def writer_for(packing: Packing) -> Callable[[Create, str, Packing], Writer]:
    """The writer class of a format; MissingExtra if its package is not installed."""
    return importlib.import_module(f"fastfeed.preprocess.writers.{_MODULES[packing.format]}").Writer
