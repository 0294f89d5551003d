"""A local folder as a target: fsync, atomic rename, fsync of the folder; the record last."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from fastfeed.errors import ConfigError, TargetError
from fastfeed.preprocess.model.layout import (
    CURRENT,
    LOCKS,
    TEMPORARY,
    TEMPORARY_FOLDERS,
    Layout,
    layout_in,
)
from fastfeed.preprocess.model.record import ShardFile
from fastfeed.preprocess.targets.atomic_files import Attempt, outside, remove_tree, write_error
from fastfeed.preprocess.targets.lock import has_ended, temporary_name
from fastfeed.system.descriptors import closing_file, open_file, open_regular
from fastfeed.system.folders import free_bytes, sync_folder
from fastfeed.system.locks import lock

_ATTEMPTS = 10  # to create a temporary folder: another process may remove its parent at the end

# of locks on folders: some network mounts, systems without locks, and Windows
_UNLOCKABLE = (
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.ENOLCK,
    errno.ENOSYS,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
)
# of hard links: other disks, file systems without them, files of other users, too many links
_UNLINKABLE = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """Files below an existing folder."""

    text: str  # as the user named it
    folder: str  # absolute
    layout: Layout = CURRENT
    is_local: ClassVar[bool] = True

    def read(self, name: str) -> bytes | None:
        """Content of a file; None if it does not exist."""
        with self._target_errors("read", name, "in"):
            try:
                with open(open_regular(self.path(name)), "rb") as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, name: str, content: bytes) -> None:
        """Write a small file atomically; it is on disk on return."""
        for k in range(_ATTEMPTS):
            attempt = self.attempt()
            try:
                attempt.create(name).write(content)
                self.place(attempt, attempt.finish())
                return
            except TargetError as error:
                # another run that completed the job may have swept everything
                swept = error.errno == errno.ENOENT and os.path.isdir(self.folder)
                if not swept or k == _ATTEMPTS - 1:
                    raise
            finally:
                attempt.abandon()

    def swap(self, name: str, content: bytes, before: bytes | None) -> bool:
        """Write a small file whose content is `before`, None for no file; False if it is another."""
        with self._alone():
            if self.read(name) != before:
                return False
            self.write(name, content)
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the folder, where it can be locked, for as long as a small file is swapped."""
        with ExitStack() as stack:
            with self._target_errors("lock", "the folder", "of"):
                try:
                    fd = open_file(self.folder)
                    stack.enter_context(closing_file(fd))
                    lock(fd)
                except OSError as error:
                    if error.errno not in _UNLOCKABLE:
                        raise
            yield

    def files(self, folder: str = "") -> dict[str, int]:
        """Names and sizes in bytes of all files below a folder, except temporary ones."""
        with self._target_errors("list", "the files", "in"):
            inside = self.layout.path(folder)
            walked = _walk(os.path.join(self.folder, inside), inside)
            return {self.layout.name(path): size for path, size in walked}

    def remove(self, name: str) -> None:
        """Remove a file; no error if it does not exist."""
        with self._target_errors("remove", name, "from"):
            path = self.path(name)
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                return
            sync_folder(os.path.dirname(path))
            if name.startswith(LOCKS):  # of a run that was refused nothing stays
                folder = os.path.dirname(path)
                for empty in (
                    folder,
                    os.path.dirname(folder),
                    os.path.join(self.folder, TEMPORARY),
                ):
                    with suppress(OSError):  # others are there
                        os.rmdir(empty)

    def attempt(self) -> Attempt:
        """Start an attempt at a shard."""
        return Attempt(self)

    def sweep(self, everything: bool = False) -> int:
        """Remove temporary files of ended processes of this machine, or of all processes."""
        swept = 0
        with self._target_errors("remove", "temporary files", "from"):
            for top in (os.path.join(self.folder, name) for name in TEMPORARY_FOLDERS):
                try:
                    names = os.listdir(top)
                except FileNotFoundError:
                    continue
                for name in names:
                    if everything or has_ended(name):
                        remove_tree(os.path.join(top, name))
                        swept += 1
                with suppress(OSError):  # another process is using it
                    os.rmdir(top)
        return swept

    def free_bytes(self) -> int | None:
        """Free space available to this user."""
        with self._target_errors("look at", "the free space", "of"):
            return free_bytes(self.folder)[0]

    def write_error_for(self, error: OSError, name: str) -> TargetError:
        """The TargetError for an OSError of a file."""
        return write_error(error, f"write {name} to {self.text}")

    def place(self, attempt: Attempt, written: Sequence[ShardFile]) -> None:
        """Rename all completed files to their final names, and fsync their folders."""
        folders: dict[str, str] = {}
        for file in attempt.files:
            path = self.path(file.name)
            with attempt.writing(file.name):
                try:
                    os.replace(file.path, path)
                except FileNotFoundError:
                    self._make_folders(file.name)
                    os.replace(file.path, path)
            folders[os.path.dirname(path)] = file.name
        for folder, name in folders.items():
            with attempt.writing(name):
                sync_folder(folder)

    def write_record(self, attempt: Attempt, name: str, content: bytes) -> None:
        """Write the record of an attempt whose files are placed."""
        attempt.create(name).write(content)
        written = attempt.finish()
        try:
            self.place(attempt, written)
        except TargetError:
            with suppress(TargetError):
                self.remove(name)  # it may be renamed, but not durably
            raise

    def make_temporary(self) -> str:
        """Create a temporary folder of this process. OSError."""
        top = os.path.join(self.folder, TEMPORARY)
        path = os.path.join(top, temporary_name())
        for k in range(_ATTEMPTS):
            try:
                os.mkdir(path)
                break
            except FileNotFoundError:
                if k == _ATTEMPTS - 1:
                    raise
            with suppress(FileExistsError):
                os.mkdir(top)
        return path

    def link(self, source: object, name: str, path: str) -> str | None:
        """Link a file of another folder to `path`; None if their file systems cannot. OSError."""
        if not isinstance(source, LocalTarget):
            return None
        try:
            os.link(source.path(name), path)
        except OSError as error:
            if error.errno not in _UNLINKABLE:
                raise
            return None
        return path

    def _make_folders(self, name: str) -> None:
        """Create the folders of a file, but not the target, which may be removed on purpose."""
        path = self.folder
        for part in self.layout.path(name).split("/")[:-1]:
            outer, path = path, os.path.join(path, part)
            try:
                os.mkdir(path)
            except FileExistsError:
                continue
            sync_folder(outer)

    def path(self, name: str) -> str:
        """Path of a file below the target. ConfigError if it would be outside."""
        parts = self.layout.path(name).split("/")
        if parts[0] in TEMPORARY_FOLDERS or "\0" in name:
            raise outside(name)
        if any(part in ("", ".", "..") for part in parts):
            raise outside(name)
        return os.path.join(self.folder, *parts)

    @contextmanager
    def _target_errors(self, verb: str, what: str, where: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise write_error(error, f"{verb} {what} {where} {self.text}") from error


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as entries:
            children = list(entries)
    except FileNotFoundError:
        if not prefix:
            raise
        return  # removed in the meantime
    for entry in children:
        name = prefix + entry.name
        if name in TEMPORARY_FOLDERS:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, name + "/")
            continue
        try:
            if entry.is_file():
                yield name, entry.stat().st_size
        except FileNotFoundError:
            continue


def open_local(text: str, path: str, writes: bool) -> LocalTarget:
    """Open a folder, created if missing and `writes`. ConfigError, TargetError."""
    target = LocalTarget(text, os.path.abspath(path))
    existing = target.folder
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise ConfigError(
            f"the target must be a folder, got {text}: {existing} is not a folder; choose another"
            " path",
            field="target",
        )
    if not writes:
        if not os.path.isdir(target.folder):
            what_next = "pass the folder that a job was written to"
            raise ConfigError(f"there is no folder {text}; {what_next}")
        return _with_layout(target)
    with target._target_errors("write", "shards", "to"):
        for part in Path(target.folder).relative_to(existing).parts:
            folder = os.path.join(existing, part)
            if not os.path.isdir(folder):
                os.makedirs(folder, exist_ok=True)  # another part of the job may do the same
                sync_folder(existing)
            existing = folder
        top = target.make_temporary()  # tests whether the folder is writable
        os.rmdir(top)
        with suppress(OSError):  # another process is using it
            os.rmdir(os.path.dirname(top))
    return _with_layout(target)


def _with_layout(target: LocalTarget) -> LocalTarget:
    layout = layout_in(lambda path: os.path.exists(os.path.join(target.folder, path)))
    return replace(target, layout=layout)
