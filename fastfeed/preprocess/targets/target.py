"""Where shards go: a folder, or a bucket. What is there under its name is whole."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fastfeed.errors import ConfigError
from fastfeed.preprocess.record import ShardFile
from fastfeed.preprocess.targets.overlap import check_overlap
from fastfeed.preprocess.writers import File

__all__ = ["Attempt", "Target", "check_overlap", "open_target"]


class Attempt(Protocol):
    """One try at a shard. Files get their names when all of them are complete and on the disk."""

    def create(self, name: str) -> File:
        """A new file, under a temporary name until `commit`. Its bytes are hashed and counted as they are written."""
        ...

    def commit(self, record: Callable[[Sequence[ShardFile]], tuple[str, bytes]]) -> None:
        """Close, fsync and name all files in the order of creation, then write what `record` gives: (name, bytes).

        Whoever sees the record sees whole files. TargetError leaves no temporary file, and no record.
        """
        ...

    def abandon(self) -> None:
        """Remove what is there of it."""
        ...


class Target(Protocol):
    """Safe for threads; pickles. What the disk or the network refuses is a TargetError."""

    @property
    def text(self) -> str:
        """As the user named it."""
        ...

    def read(self, name: str) -> bytes | None:
        """A whole file; None where there is none."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """A small file: whole or not at all, on the disk when this returns."""
        ...

    def files(self) -> dict[str, int]:
        """Names and bytes of all files below it, but for temporary ones."""
        ...

    def remove(self, name: str) -> None:
        """No error where it is not there."""
        ...

    def attempt(self) -> Attempt:
        """Begin a try at a shard."""
        ...

    def sweep(self, everything: bool = False) -> int:
        """Remove temporary files of processes of this machine that have ended (or, `everything`: all of them)."""
        ...

    def free_bytes(self) -> int | None:
        """How much may be written; None where nobody says so."""
        ...


def open_target(place: str | os.PathLike[str], options: dict[str, Any] | None = None, *, writes: bool = True) -> Target:
    """A folder or a URL; `options` go to the storage client. Without `writes` nothing is made, and it must be there.

    ConfigError, TargetError, MissingExtra.
    """
    text = os.fspath(place)
    if not isinstance(text, str) or not text:
        raise ConfigError(f"the target must be a folder or a URL such as s3://bucket/train, got {text!r}")
    local = text.removeprefix("file://")
    if "://" in local or "::" in local:
        return importlib.import_module("fastfeed.preprocess.targets.remote").open_remote(text, options or {}, writes)
    if options:
        raise ConfigError(f"storage options are for URLs, got {', '.join(sorted(options))} for the folder {text}")
    return importlib.import_module("fastfeed.preprocess.targets.local").open_local(text, local, writes)
