"""The files of one attempt at a shard, in a temporary folder: either all are completed, or all are
removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from fastfeed.errors import TargetError
from fastfeed.preprocess.model.record import ShardFile
from fastfeed.preprocess.targets.temp_files import TempFile, remove_tree

__all__ = ["AtomicFile", "AtomicFiles"]


class AtomicFiles:
    """The folder is created with the first file.

    After an error all files are removed, and that error is raised again.

    `to_error(error, name)` converts an OSError of the file `name`; `is_local`: the folder is on the
    target's own disk, where the files stay.
    """

    def __init__(
        self,
        make_folder: Callable[[], str],
        to_error: Callable[[OSError, str], TargetError],
        is_local: bool,
    ) -> None:
        self._make_folder, self._to_error, self._is_local = make_folder, to_error, is_local
        self._folder: str | None = None
        self._error: BaseException | None = None
        self.files: list[TempFile] = []

    def create(self, name: str) -> AtomicFile:
        """A new file. TargetError."""
        return AtomicFile(self, self.begin(name))

    def begin(self, name: str) -> TempFile:
        """Begin a file, for callers that use `writing` themselves."""
        with self.writing(name):
            if self._folder is None:
                self._folder = self._make_folder()
            path = os.path.join(self._folder, str(len(self.files)))
            self.files.append(TempFile(path, name, writeback=self._is_local))
            return self.files[-1]

    def finish(self) -> list[ShardFile]:
        """Close all files; local ones are fsynced."""
        for file in self.files:
            with self.writing(file.name):
                file.close()
        written: list[ShardFile] = []
        for file in self.files:  # all are submitted to the disk before the first wait
            with self.writing(file.name):
                written.append(file.finish(self._is_local))
        self.check()
        return written

    def check(self) -> None:
        """Raise an earlier error, even if the writer ignored it."""
        if self._error is not None:
            raise self._error

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Convert errors inside to errors of this file, and abandon all files."""
        self.check()
        try:
            yield
        except BaseException as error:  # Ctrl-C too: no partial file may remain
            raised = self._to_error(error, name) if isinstance(error, OSError) else error
            self._error = raised
            self.abandon()
            if raised is error:
                raise
            raise raised from error

    def abandon(self) -> None:
        """Remove all files."""
        for file in self.files:
            file.drop()
        self.files = []
        folder, self._folder = self._folder, None
        if folder is not None:
            with suppress(OSError):  # `sweep` removes it later; an earlier error matters more
                remove_tree(folder)


class AtomicFile:
    """A temporary file whose errors name the file and the target."""

    def __init__(self, atomic: AtomicFiles, file: TempFile) -> None:
        self._atomic, self._file = atomic, file

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Append data. TargetError."""
        with self._atomic.writing(self._file.name):
            return self._file.write(data)

    def close(self) -> None:
        """End of the file. TargetError."""
        with self._atomic.writing(self._file.name):
            self._file.close()
