"""The files of one try at a shard, in a temporary folder: all of them come to something, or none does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from fastfeed.errors import TargetError
from fastfeed.preprocess.record import ShardFile
from fastfeed.preprocess.targets.temp_files import TempFile, remove_tree

__all__ = ["AtomicFile", "AtomicFiles"]


class AtomicFiles:
    """Its folder is made with the first file. The first error ends it, and is what it says from then on.

    `refuse(error, name)` is the error to raise where the system refused a file of that name; `local`: the folder is on
    the target's own disk, where the files stay.
    """

    def __init__(
        self, make_folder: Callable[[], str], refuse: Callable[[OSError, str], TargetError], local: bool
    ) -> None:
        self._make_folder, self._refuse, self._local = make_folder, refuse, local
        self._folder: str | None = None
        self._failed: BaseException | None = None
        self.drafts: list[TempFile] = []

    def create(self, name: str) -> AtomicFile:
        """A new file. TargetError."""
        return AtomicFile(self, self.begin(name))

    def begin(self, name: str) -> TempFile:
        """The same, for one who uses `writing` as well."""
        with self.writing(name):
            if self._folder is None:
                self._folder = self._make_folder()
            path = os.path.join(self._folder, str(len(self.drafts)))
            self.drafts.append(TempFile(path, name, early=self._local))
            return self.drafts[-1]

    def finish(self) -> list[ShardFile]:
        """Close all files; those that stay where they are are on the disk then."""
        for draft in self.drafts:
            with self.writing(draft.name):
                draft.close()
        parts: list[ShardFile] = []
        for draft in self.drafts:  # while it waits for one, the disk has all the others
            with self.writing(draft.name):
                parts.append(draft.finish(self._local))
        self.check()
        return parts

    def check(self) -> None:
        """Raise what went wrong, also where whoever wrote took no notice."""
        if self._failed is not None:
            raise self._failed

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """What goes wrong inside went wrong with this file, and ends it all."""
        self.check()
        try:
            yield
        except BaseException as error:  # Ctrl-C too: nothing half written may stay
            failed = self._refuse(error, name) if isinstance(error, OSError) else error
            self._failed = failed
            self.abandon()
            if failed is error:
                raise
            raise failed from error

    def abandon(self) -> None:
        """Remove what is there of it."""
        for draft in self.drafts:
            draft.drop()
        self.drafts = []
        folder, self._folder = self._folder, None
        if folder is not None:
            with suppress(OSError):  # `sweep` will; what went wrong before this is more important
                remove_tree(folder)


class AtomicFile:
    """A draft whose errors say what could not be written, and where."""

    def __init__(self, bundle: AtomicFiles, draft: TempFile) -> None:
        self._bundle, self._draft = bundle, draft

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """To the end of it. TargetError."""
        with self._bundle.writing(self._draft.name):
            return self._draft.write(data)

    def close(self) -> None:
        """Nothing more will come. TargetError."""
        with self._bundle.writing(self._draft.name):
            self._draft.close()
