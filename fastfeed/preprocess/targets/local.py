"""A folder as a target: temporary name, fsync, rename, fsync of the folder; then the record in the same way."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from fastfeed.errors import ConfigError, TargetError
from fastfeed.preprocess.record import ShardFile
from fastfeed.preprocess.targets.atomic_files import AtomicFile, AtomicFiles
from fastfeed.preprocess.targets.lock import TEMPORARY, has_ended, temporary_name
from fastfeed.preprocess.targets.temp_files import TempFile, remove_tree
from fastfeed.preprocess.targets.write_errors import write_error

__all__ = ["LocalAttempt", "LocalTarget", "open_local"]

_TRIES = 10  # at a temporary folder: another process that is done may remove the one around it


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """Files below a folder that is there."""

    text: str  # as the user named it
    folder: str  # absolute

    def read(self, name: str) -> bytes | None:
        """A whole file; None where there is none."""
        with self._doing("read", name, "in"):
            try:
                with open(self.path(name), "rb") as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, name: str, content: bytes) -> None:
        """A small file: whole or not at all, on the disk when this returns."""
        for k in range(_TRIES):
            attempt = self.attempt()
            try:
                attempt.create(name).write(content)
                attempt.commit_alone()
                return
            except TargetError as error:  # another run that saw the job complete may have swept everything
                if error.errno != errno.ENOENT or k == _TRIES - 1 or not os.path.isdir(self.folder):
                    raise
            finally:
                attempt.abandon()

    def files(self) -> dict[str, int]:
        """Names and bytes of all files below it, but for temporary ones."""
        with self._doing("list", "the files", "in"):
            return dict(_walk(self.folder, ""))

    def remove(self, name: str) -> None:
        """No error where it is not there."""
        with self._doing("remove", name, "from"):
            path = self.path(name)
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                return
            sync_folder(os.path.dirname(path))

    def attempt(self) -> LocalAttempt:
        """Begin a try at a shard."""
        return LocalAttempt(self)

    def sweep(self, everything: bool = False) -> int:
        """Remove temporary files of processes of this machine that have ended (or, `everything`: all of them)."""
        top, swept = os.path.join(self.folder, TEMPORARY), 0
        with self._doing("remove", "temporary files", "from"):
            try:
                names = os.listdir(top)
            except FileNotFoundError:
                return 0
            for name in names:
                if everything or has_ended(name):
                    remove_tree(os.path.join(top, name))
                    swept += 1
            with suppress(OSError):  # somebody is at work
                os.rmdir(top)
        return swept

    def free_bytes(self) -> int | None:
        """That may be written by this user."""
        with self._doing("look at", "the free space", "of"):
            status = os.statvfs(self.folder)
            return status.f_bavail * status.f_frsize

    def refuse(self, error: OSError, name: str) -> TargetError:
        """What to raise where the system refused a file."""
        return write_error(error, f"write {name} to {self.text}")

    def name(self, draft: TempFile) -> None:
        """Give a complete file its name. OSError."""
        path = self.path(draft.name)
        try:
            os.replace(draft.path, path)
        except FileNotFoundError:
            self._make_folders(draft.name)
            os.replace(draft.path, path)

    def make_temporary(self) -> str:
        """A folder of this process. OSError."""
        top = os.path.join(self.folder, TEMPORARY)
        path = os.path.join(top, temporary_name())
        for k in range(_TRIES):
            try:
                os.mkdir(path)
                break
            except FileNotFoundError:
                if k == _TRIES - 1:
                    raise
            with suppress(FileExistsError):
                os.mkdir(top)
        return path

    def _make_folders(self, name: str) -> None:
        """Those that a file lies in, but not the target itself: where that has gone, it was not to be."""
        path = self.folder
        for part in name.split("/")[:-1]:
            outer, path = path, os.path.join(path, part)
            try:
                os.mkdir(path)
            except FileExistsError:
                continue
            sync_folder(outer)

    def path(self, name: str) -> str:
        """Of a file below it. ConfigError where it would lie elsewhere."""
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts) or parts[0] == TEMPORARY or "\0" in name:
            raise ConfigError(f"a file of a target must have a name below it, without '..', got {name!r}")
        return os.path.join(self.folder, *parts)

    @contextmanager
    def _doing(self, verb: str, what: str, where: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise write_error(error, f"{verb} {what} {where} {self.text}") from error


class LocalAttempt:
    """One try at a shard."""

    def __init__(self, target: LocalTarget) -> None:
        self._target = target
        self._bundle = AtomicFiles(target.make_temporary, target.refuse, local=True)

    def create(self, name: str) -> AtomicFile:
        """A new file, under a temporary name until `commit`."""
        self._target.path(name)
        return self._bundle.create(name)

    def commit(self, record: Callable[[Sequence[ShardFile]], tuple[str, bytes]]) -> None:
        """Close, fsync and name all files, then the record."""
        target, bundle = self._target, self._bundle
        try:
            name, content = record(bundle.finish())
            if target.read(name) not in (None, content):
                target.remove(name)  # it would speak of files that are no more
            self._name()
            bundle.drafts.clear()
            draft = bundle.begin(name)
            with bundle.writing(name):
                draft.write(content)
                draft.finish(sync=True)
            try:
                self._name()
            except TargetError:
                with suppress(TargetError):
                    target.remove(name)  # it may have its name, but not for good
                raise
        finally:
            bundle.abandon()

    def commit_alone(self) -> None:
        """The same without a record."""
        self._bundle.finish()
        self._name()

    def _name(self) -> None:
        """Give all complete files their names, for good."""
        target, folders = self._target, dict[str, str]()
        for draft in self._bundle.drafts:
            with self._bundle.writing(draft.name):
                target.name(draft)
            folders[os.path.dirname(target.path(draft.name))] = draft.name
        for folder, name in folders.items():
            with self._bundle.writing(name):
                sync_folder(folder)

    def abandon(self) -> None:
        """Remove what is there of it."""
        self._bundle.abandon()


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except FileNotFoundError:
        if not prefix:
            raise
        return  # removed meanwhile
    for entry in found:
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
    """A folder, made where it is missing; ConfigError where it is none, TargetError where nothing can be written."""
    target = LocalTarget(text, os.path.abspath(path))
    known = target.folder
    while not os.path.lexists(known):
        known = os.path.dirname(known)
    if not os.path.isdir(known):
        raise ConfigError(f"the target must be a folder, got {text}: {known} is none; name another place")
    if not writes:
        if not os.path.isdir(target.folder):
            raise ConfigError(f"there is no folder {text}; name the one that a job was written to")
        return target
    with target._doing("write", "shards", "to"):
        missing = target.folder
        made: list[str] = []
        while not os.path.isdir(missing):
            made.append(missing)
            missing = os.path.dirname(missing)
        for folder in reversed(made):
            os.makedirs(folder, exist_ok=True)  # another part of the job may be doing the same
            sync_folder(os.path.dirname(folder))
        top = target.make_temporary()  # shows whether it can be written to
        os.rmdir(top)
        with suppress(OSError):  # somebody is at work
            os.rmdir(os.path.dirname(top))
    return target
