"""Targets: a folder or a bucket in which a file under its final name is complete.

An attempt at a shard completes all of its files, or none.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from fastfeed.errors import ConfigError, TargetError
from fastfeed.preprocess.model.record import ShardFile
from fastfeed.system.descriptors import NEW, open_file, start_writeback

_BLOCK = 1 << 20  # bytes buffered before a write call
_AHEAD = 8 << 20  # bytes after which writeback is started


class Target(Protocol):
    """Thread-safe; pickles. Errors of the disk or the network are TargetErrors."""

    text: str  # as the user named it
    is_local: ClassVar[bool]  # temporary files are on the target's own disk, where they stay

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
        return Attempt(self)

    def sweep(self, everything: bool = False) -> int:
        """Remove temporary files of ended processes of this machine, or of all processes."""
        ...

    def free_bytes(self) -> int | None:
        """Free space available to this user; None if unknown."""
        ...

    # -- for an Attempt

    def path(self, name: str) -> str:
        """Path or URL of a file below the target. ConfigError if it would be outside."""
        ...

    def make_temporary(self) -> str:
        """Create a local temporary folder of this process. OSError."""
        ...

    def link(self, source: Any, name: str, path: str) -> str | None:
        """Link a file of another target to `path`, or its URL to be copied; None if impossible."""
        ...

    def write_error_for(self, error: OSError, name: str) -> TargetError:
        """The TargetError for an OSError of a local file."""
        ...

    def place(self, attempt: Attempt, written: Sequence[ShardFile]) -> None:
        """Move all completed files to their final names, durably."""
        ...

    def write_record(self, attempt: Attempt, name: str, content: bytes) -> None:
        """Write the record of an attempt whose files are placed."""
        ...


class Attempt:
    """One attempt at a shard: its files, in a temporary folder until all are complete and on disk.

    After an error none is left.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._folder: str | None = None
        self._error: BaseException | None = None
        self._paths = 0  # names in the folder that are used
        self.files: list[AtomicFile | LinkedFile] = []

    def create(self, name: str) -> AtomicFile:
        """A new file, under a temporary name until `commit`, hashed as it is written."""
        self._target.path(name)
        with self.writing(name):
            file = AtomicFile(self, self._new_path(), name, self._target.is_local)
            self.files.append(file)
        return file

    def link(self, source: Any, file: ShardFile, name: str) -> bool:
        """Add a complete file of another target, called `name` here, without reading it.

        False if a link, or a copy within the store, is impossible: `create` it then.
        """
        self._target.path(name)
        with self.writing(name):
            path = self._target.link(source, file.name, self._new_path())
            if path is not None:
                self.files.append(LinkedFile(path, replace(file, name=name)))
        return path is not None

    def _new_path(self) -> str:
        if self._folder is None:
            self._folder = self._target.make_temporary()
        self._paths += 1  # a link to a file that is in place already is not renamed
        return os.path.join(self._folder, str(self._paths))

    def commit(
        self,
        record: Callable[[Sequence[ShardFile]], tuple[str, bytes]],
        replaces: bool = False,
    ) -> None:
        """Complete all files, then write what `record` returns: (name, bytes).

        If the record is visible, the files are complete. TargetError leaves no temporary file and
        no record, but with `replaces` an earlier one, of files that may be older.
        """
        target = self._target
        try:
            written = self.finish()
            name, content = record(written)
            if not replaces and target.read(name) not in (None, content):
                target.remove(name)  # it would describe files that no longer exist
            target.place(self, written)
            self.files.clear()
            target.write_record(self, name, content)
        finally:
            self.abandon()

    def finish(self) -> list[ShardFile]:
        """Close all files; local ones are fsynced."""
        for file in self.files:
            with self.writing(file.name):
                file.close()
        written: list[ShardFile] = []
        for file in self.files:  # all are submitted to the disk before the first wait
            with self.writing(file.name):
                written.append(file.finish(self._target.is_local))
        self._check()
        return written

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Convert errors inside to errors of this file, and abandon all files."""
        self._check()
        try:
            yield
        except BaseException as error:  # Ctrl-C too: no partial file may remain
            is_os_error = isinstance(error, OSError)
            raised = self._target.write_error_for(error, name) if is_os_error else error
            self._error = raised
            self.abandon()
            if raised is error:
                raise
            raise raised from error

    def _check(self) -> None:
        """Raise an earlier error, even if the writer ignored it."""
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Remove all files written so far."""
        for file in self.files:
            with suppress(OSError):  # the content is discarded
                file.drop()
        self.files = []
        folder = self._folder
        self._folder = None
        if folder is not None:
            with suppress(OSError):  # `sweep` removes it later; an earlier error matters more
                remove_tree(folder)


class AtomicFile:
    """A new file, hashed and counted as it is written, with early writeback.

    Its errors name the file and the target, and abandon the attempt.
    """

    def __init__(self, attempt: Attempt, path: str, name: str, writeback: bool) -> None:
        self.path = path
        self.name = name
        self._attempt = attempt
        self._writeback = writeback
        self._hash = hashlib.sha256()
        self._bytes = 0
        self._buffer = bytearray()
        self._flushed = 0  # bytes for which writeback was started
        self._file: int | None = open_file(path, os.O_WRONLY | NEW, 0o666)

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Append data; TargetError if it cannot be written."""
        with self._attempt.writing(self.name):
            view = memoryview(data).cast("B")
            if len(self._buffer) + len(view) >= _BLOCK:
                self._flush()
            if len(view) < _BLOCK:
                self._buffer += view
            else:
                self._write_through(view)
            return len(view)

    def close(self) -> None:
        """End of the file; writeback continues. TargetError."""
        with self._attempt.writing(self.name):
            self._flush()
            self._start_writeback()

    def finish(self, sync: bool) -> ShardFile:
        """Close, with `sync` after an fsync, and return size and hash. OSError."""
        assert self._file is not None
        if sync:
            os.fsync(self._file)
        self.drop()
        return ShardFile(self.name, self._bytes, self._hash.hexdigest())

    def drop(self) -> None:
        """Close the file descriptor; the folder's owner removes the file."""
        file = self._file
        self._file = None
        if file is not None:
            os.close(file)

    def _flush(self) -> None:
        buffer = self._buffer
        self._buffer = bytearray()
        if buffer:
            self._write_through(memoryview(buffer))

    def _write_through(self, view: memoryview) -> None:
        assert self._file is not None, "not closed"
        self._hash.update(view)
        self._bytes += len(view)
        while view:
            written = os.write(self._file, view)
            if written <= 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            view = view[written:]
        if self._bytes - self._flushed >= _AHEAD:
            self._start_writeback()

    def _start_writeback(self) -> None:
        """Start writeback of new bytes; their pages are not needed again."""
        if self._writeback and self._file is not None and self._bytes > self._flushed:
            start_writeback(self._file, self._flushed, self._bytes - self._flushed)
            self._flushed = self._bytes


@dataclass(frozen=True, slots=True)
class LinkedFile:
    """A complete file that another target has as well."""

    path: str  # a hard link to it in the temporary folder, or the URL of the other object
    part: ShardFile

    @property
    def name(self) -> str:
        """Its final name below the target."""
        return self.part.name

    def close(self) -> None:
        """Nothing is written to it."""

    def finish(self, sync: bool) -> ShardFile:
        """Size and hash, as recorded when the file was written."""
        return self.part

    def drop(self) -> None:
        """Nothing is open; the folder's owner removes a link."""


def remove_tree(path: str) -> None:
    """Remove a file or a folder tree; another process may be doing the same."""
    try:
        os.unlink(path)
        return
    except FileNotFoundError:
        return
    except OSError:
        if not os.path.isdir(path) or os.path.islink(path):
            raise
    shutil.rmtree(path, onerror=_unless_gone)


def _unless_gone(_function: Any, _path: str, raised: Any) -> None:
    if not isinstance(raised[1], FileNotFoundError):
        raise raised[1]


RERUN_HINT = "then run the same command again: finished shards are kept"
_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or ask for more",
    errno.EFBIG: "lower the samples per shard, or choose another folder",
    errno.EIO: "check the disk and the system log",
    errno.EROFS: "mount it for writing, or choose another folder",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "change the folder's owner or mode"),
    errno.ENOENT: "check that the folder still exists and is mounted",
    **dict.fromkeys((errno.ENOTDIR, errno.EISDIR), "check what is at that path"),
    errno.ESTALE: "mount it again",
    **dict.fromkeys((errno.ENXIO, errno.ENODEV), "check that the disk is still attached"),
    errno.EMFILE: "raise `ulimit -n`",
    errno.ENFILE: "close other programs",
    errno.EXDEV: "keep all folders of the target on one file system",
}


def outside(name: str) -> ConfigError:
    """The error for a name that leads out of a target."""
    return ConfigError(f"a file of a target must have a name below it, without '..', got {name!r}")


def write_error(error: OSError, action: str) -> TargetError:
    """The TargetError for an OSError; `action` is such as "write a.tar to /data/out"."""
    if isinstance(error, TargetError):
        return error
    code = error.errno
    message = os.strerror(code) if code is not None else str(error) or type(error).__name__
    message = message[:1].lower() + message[1:]
    advice = "" if code is None or code not in _ADVICE else f"{_ADVICE[code]}, "
    return TargetError(f"cannot {action}: {message}; {advice}{RERUN_HINT}", code)
