"""Where shards go: a folder, or a bucket. What is there under its name is whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fastfeed.preprocess.record import Part
from fastfeed.preprocess.writers import File

__all__ = ["Attempt", "Target"]


class Attempt(Protocol):
    """One try at a shard. Files get their names when all of them are complete and on the disk."""

    def create(self, name: str) -> File:
        """A new file, under a temporary name until `commit`. Its bytes are hashed and counted as they are written."""
        ...

    def commit(self, record: Callable[[Sequence[Part]], tuple[str, bytes]]) -> None:
        """Close, fsync and name all files in the order of creation, then write what `record` gives: (name, bytes).

        Whoever sees the record sees whole files. OSError leaves no temporary file, and no record.
        """
        ...

    def abandon(self) -> None:
        """Remove what is there of it."""
        ...


class Target(Protocol):
    """Safe for threads; pickles."""

    text: str  # as the user named it

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


def open_target(place: str, options: dict[str, Any] | None = None) -> Target:
    """A folder or a URL. ConfigError, SourceError."""
    raise AssertionError(place, options)
