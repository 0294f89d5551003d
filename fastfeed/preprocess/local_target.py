"""A folder as a target: temporary name, fsync, rename, fsync of the folder; then the record in the same way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from fastfeed.errors import ConfigError
from fastfeed.preprocess.drafts import Draft, clear, sync_folder
from fastfeed.preprocess.owner import has_ended, temporary_name
from fastfeed.preprocess.record import Part
from fastfeed.preprocess.refusals import refusal

__all__ = ["TEMPORARY", "LocalAttempt", "LocalTarget", "open_local"]

TEMPORARY = "_tmp"  # below the target; nothing in it counts
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
                with open(self._path(name), "rb") as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, name: str, content: bytes) -> None:
        """A small file: whole or not at all, on the disk when this returns."""
        with self._doing("write", name, "to"):
            attempt = self.attempt()
            try:
                draft = attempt.begin(name)
                draft.write(content)
                draft.sync()
                self.name(draft)
                sync_folder(os.path.dirname(self._path(name)))
            finally:
                attempt.abandon()

    def files(self) -> dict[str, int]:
        """Names and bytes of all files below it, but for temporary ones."""
        with self._doing("list", "the files", "in"):
            return dict(_walk(self.folder, ""))

    def remove(self, name: str) -> None:
        """No error where it is not there."""
        with self._doing("remove", name, "from"):
            path = self._path(name)
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
                    clear(os.path.join(top, name))
                    swept += 1
            with suppress(OSError):  # somebody is at work
                os.rmdir(top)
        return swept

    def free_bytes(self) -> int | None:
        """That may be written by this user."""
        with self._doing("look at", "the free space", "of"):
            status = os.statvfs(self.folder)
            return status.f_bavail * status.f_frsize

    def name(self, draft: Draft) -> None:
        """Give a complete file its name. OSError."""
        path = self._path(draft.name)
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

    def _path(self, name: str) -> str:
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts) or parts[0] == TEMPORARY or "\0" in name:
            raise ConfigError(f"a file of a target must have a name below it, without '..', got {name!r}")
        return os.path.join(self.folder, *parts)

    @contextmanager
    def _doing(self, verb: str, what: str, where: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise refusal(error, f"{verb} {what} {where} {self.text}") from error


class LocalAttempt:
    """One try at a shard, in a temporary folder that is made with the first file."""

    def __init__(self, target: LocalTarget) -> None:
        self._target = target
        self._folder: str | None = None
        self._drafts: list[Draft] = []
        self._failed: BaseException | None = None

    def begin(self, name: str) -> Draft:
        """A file; its writes give plain OSErrors."""
        self._target._path(name)
        if self._folder is None:
            self._folder = self._target.make_temporary()
        draft = Draft(os.path.join(self._folder, str(len(self._drafts))), name)
        self._drafts.append(draft)
        return draft

    def create(self, name: str) -> LocalFile:
        """A new file, under a temporary name until `commit`."""
        with self._doing(name):
            return LocalFile(self, self.begin(name))

    def commit(self, record: Callable[[Sequence[Part]], tuple[str, bytes]]) -> None:
        """Close, fsync and name all files, then the record."""
        target = self._target
        if self._failed is not None:
            raise self._failed
        try:
            for draft in self._drafts:
                with self._doing(draft.name):
                    draft.close()
            parts: list[Part] = []
            for draft in self._drafts:
                with self._doing(draft.name):
                    parts.append(draft.sync())
            name, content = record(parts)
            if target.read(name) not in (None, content):
                target.remove(name)  # it would speak of files that are no more
            for draft in self._drafts:
                with self._doing(draft.name):
                    target.name(draft)
            for folder, draft in {os.path.dirname(target._path(draft.name)): draft for draft in self._drafts}.items():
                with self._doing(draft.name):
                    sync_folder(folder)
            with self._doing(name):
                draft = self.begin(name)
                draft.write(content)
                draft.sync()
                target.name(draft)
                sync_folder(os.path.dirname(target._path(name)))
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Remove what is there of it."""
        for draft in self._drafts:
            draft.drop()
        self._drafts = []
        folder, self._folder = self._folder, None
        if folder is not None:
            with suppress(OSError):  # `sweep` will; what went wrong before this is more important
                clear(folder)

    @contextmanager
    def _doing(self, name: str) -> Iterator[None]:
        with self._target._doing("write", name, "to"):
            if isinstance(self._failed, OSError):
                raise self._failed  # also where whoever wrote took no notice
            try:
                yield
            except BaseException as error:
                self._failed = error
                self.abandon()
                raise


class LocalFile:
    """A draft whose errors say what could not be written, and where."""

    def __init__(self, attempt: LocalAttempt, draft: Draft) -> None:
        self._attempt, self._draft = attempt, draft

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """To the end of it. TargetError."""
        with self._attempt._doing(self._draft.name):
            return self._draft.write(data)

    def close(self) -> None:
        """Nothing more will come."""
        with self._attempt._doing(self._draft.name):
            self._draft.close()


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
    if os.path.exists(target.folder) and not os.path.isdir(target.folder):
        raise ConfigError(f"the target must be a folder, got the file {text}; name another place")
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
