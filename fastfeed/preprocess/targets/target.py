"""The target protocol: a folder or a bucket in which a file under its final name is complete."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.layout import Layout
from fastfeed.preprocess.model.record import ShardFile
from fastfeed.preprocess.writers import File


class Attempt(Protocol):
    """One attempt at a shard. Files are renamed once all of them are complete and on disk."""

    def create(self, name: str) -> File:
        """A new file, under a temporary name until `commit`, hashed as it is written."""
        ...

    def link(self, source: Any, file: ShardFile, name: str) -> bool:
        """Add a complete file of another target, called `name` here, without reading it.

        False if a link, or a copy within the store, is impossible: `create` it then.
        """
        ...

    def commit(
        self,
        record: Callable[[Sequence[ShardFile]], tuple[str, bytes]],
        replaces: bool = False,
    ) -> None:
        """Complete all files, then write what `record` returns: (name, bytes).

        If the record is visible, the files are complete. TargetError leaves no temporary file and
        no record, but with `replaces` an earlier one, of files that may be older.
        """
        ...

    def abandon(self) -> None:
        """Remove all files of this attempt."""
        ...


class Target(Protocol):
    """Thread-safe; pickles. Errors of the disk or the network are TargetErrors."""

    @property
    def text(self) -> str:
        """The target's text as the user wrote it."""
        ...

    @property
    def layout(self) -> Layout:
        """Places of files below the target; methods take and return names as in CURRENT."""
        ...

    def read(self, name: str) -> bytes | None:
        """Content of a file; None if it does not exist."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write a small file atomically; it is on disk on return."""
        ...

    def swap(self, name: str, content: bytes, before: bytes | None) -> bool:
        """Write a small file whose content is `before`, None for no file; False if it is another.

        Atomic on local disks with locks and on S3; elsewhere the file is compared and then written.
        """
        ...

    def files(self, folder: str = "") -> dict[str, int]:
        """Names and sizes in bytes of all files below a folder, except temporary ones.

        folder: "" or a name with a slash at its end.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file; no error if it does not exist."""
        ...

    def attempt(self) -> Attempt:
        """Start an attempt at a shard."""
        ...

    def sweep(self, everything: bool = False) -> int:
        """Remove temporary files of ended processes of this machine, or of all processes."""
        ...

    def free_bytes(self) -> int | None:
        """Free space; None if unknown."""
        ...


def open_target(
    path: str | os.PathLike[str], options: dict[str, Any] | None = None, *, writes: bool = True
) -> Target:
    """Open a folder or a URL; without `writes` it must exist. ConfigError, TargetError.

    `options` go to the storage client.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise ConfigError.of("the target", "a folder or a URL such as s3://bucket/train", text)
    local = text.removeprefix("file://")
    if "://" in local or "::" in local:
        return importlib.import_module("fastfeed.preprocess.targets.remote").open_remote(
            text, options or {}, writes
        )
    if options:
        raise ConfigError(
            f"storage options are for URLs, got {', '.join(sorted(options))} for the folder {text}",
            field="target_storage",
        )
    return importlib.import_module("fastfeed.preprocess.targets.local").open_local(
        text, local, writes
    )
