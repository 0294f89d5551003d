"""Shard files, by format. A writer turns entries into files, the same bytes for the same entries; it names and commits
nothing: `create` gives files, and whoever gave them commits."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from fastfeed.preprocess.entry import Entry
from fastfeed.preprocess.recipe import Packing

__all__ = ["SUFFIXES", "Create", "File", "Writer", "writer_for"]

SUFFIXES = {"webdataset": ".tar", "tfrecord": ".tfrecord", "parquet": ".parquet", "mds": ".mds", "raw": ".npy"}
_MODULES = {"webdataset": "tar", "tfrecord": "tfrecord", "parquet": "parquet", "mds": "mds", "raw": "arrays"}


class File(Protocol):
    """Bytes that go to the end of a file; OSError where they cannot."""

    def write(self, data: Any, /) -> int: ...
    def close(self) -> None: ...


Create = Callable[[str], File]  # a new file of this (final) name


class Writer(Protocol):
    """One shard's files. Made as `Writer(create, stem, packing)`; `stem` is the name without suffix: "shard-000012"."""

    def add(self, entry: Entry) -> None:
        """The next sample."""
        ...

    def close(self) -> list[int]:
        """Complete the files; where each sample begins in the main one, bytes ([] where that means nothing)."""
        ...


def writer_for(packing: Packing) -> Callable[[Create, str, Packing], Writer]:
    """The writer of a format; MissingExtra where it needs a package that is not there."""
    return importlib.import_module(f"fastfeed.preprocess.writers.{_MODULES[packing.format]}").Writer
