"""A local folder as a target: fsync, atomic rename, fsync of the folder; the record last."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fastfeed.errors import ConfigError, TargetError
from fastfeed.preprocess.model.layout import LOCKS, TEMPORARY
from fastfeed.preprocess.model.record import ShardFile
from fastfeed.preprocess.targets.base import Attempt, Target, outside, remove_tree, write_error
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
class LocalTarget(Target):
    """Files below an existing folder."""

    text: str  # as the user named it
    folder: str  # absolute
    is_local: ClassVar[bool] = True

    def read(self, name: str) -> bytes | None:
        with self._target_errors("read", name, "in"):
            try:
                with open(open_regular(self.path(name)), "rb") as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, name: str, content: bytes) -> None:
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
        with self._target_errors("list", "the files", "in"):
            return dict(_walk(os.path.join(self.folder, folder), folder))

    def remove(self, name: str) -> None:
        with self._target_errors("remove", name, "from"):
            path = self.path(name)
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                return
            sync_folder(os.path.dirname(path))
            if name.startswith(LOCKS):  # of a run that was refused nothing stays
                folder = os.path.dirname(path)
                temporary = os.path.join(self.folder, TEMPORARY)
                for empty in (folder, os.path.dirname(folder), temporary):
                    with suppress(OSError):  # others are there
                        os.rmdir(empty)

    def sweep(self, everything: bool = False) -> int:
        swept = 0
        with self._target_errors("remove", "temporary files", "from"):
            top = os.path.join(self.folder, TEMPORARY)
            try:
                names = os.listdir(top)
            except FileNotFoundError:
                return 0
            for name in names:
                if everything or has_ended(name):
                    remove_tree(os.path.join(top, name))
                    swept += 1
            with suppress(OSError):  # another process is using it
                os.rmdir(top)
        return swept

    def free_bytes(self) -> int | None:
        with self._target_errors("look at", "the free space", "of"):
            return free_bytes(self.folder)[0]

    def write_error_for(self, error: OSError, name: str) -> TargetError:
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
        attempt.create(name).write(content)
        written = attempt.finish()
        try:
            self.place(attempt, written)
        except TargetError:
            with suppress(TargetError):
                self.remove(name)  # it may be renamed, but not durably
            raise

    def make_temporary(self) -> str:
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
        for part in name.split("/")[:-1]:
            outer = path
            path = os.path.join(path, part)
            try:
                os.mkdir(path)
            except FileExistsError:
                continue
            sync_folder(outer)

    def path(self, name: str) -> str:
        parts = name.split("/")
        if parts[0] == TEMPORARY or "\0" in name or not {"", ".", ".."}.isdisjoint(parts):
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
        if name == TEMPORARY:
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
        return target
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
    return target
