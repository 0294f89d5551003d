"""Remote folders for tests: in fsspec's memory, with a count of what was asked, and errors on
request.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


def uploaded(folder: Path, protocol: str = "memory") -> str:
    """The files of a folder, as they are now, and nothing else, as memory://path/of/the/folder."""
    memory, place = fsspec.filesystem("memory"), str(folder)
    if memory.exists(place):
        memory.rm(place, recursive=True)
    memory.makedirs(place)
    for file in folder.rglob("*"):
        if file.is_file():
            memory.pipe(str(file), file.read_bytes())
    return f"{protocol}://{place.lstrip('/')}"


def put(uri: str, content: bytes | None) -> None:
    """Write a file; None removes it."""
    memory, path = fsspec.filesystem("memory"), "/" + uri.partition("://")[2]
    if content is None:
        memory.rm(path)
    else:
        memory.pipe(path, content)


class Watched(MemoryFileSystem):
    """The same files, as watched://..."""

    protocol = "watched"
    cachable = False
    asked: Counter[tuple[str, str]] = Counter()  # (what, the path's last name)
    refused: set[str] = set()  # last names of folders that may not be listed
    _inside = threading.local()

    def find(self, path: str, *args: Any, **options: Any) -> Any:
        """List all below a folder."""
        self._note("find", path)
        self._inside.find = True  # older fsspec calls ls for it
        try:
            return super().find(path, *args, **options)
        finally:
            self._inside.find = False

    def ls(self, path: str, *args: Any, **options: Any) -> Any:
        """List a folder."""
        if not getattr(self._inside, "find", False):
            self._note("ls", path)
        return super().ls(path, *args, **options)

    def cat_file(self, path: str, *args: Any, **options: Any) -> Any:
        """Read a file."""
        self._note("cat", path)
        return super().cat_file(path, *args, **options)

    @classmethod
    def _note(cls, what: str, path: str) -> None:
        name = path.rstrip("/").rpartition("/")[2]
        cls.asked[what, name] += 1
        if what != "cat" and name in cls.refused:
            raise PermissionError(f"{name} is locked")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("watched://", "memory://"))

    @classmethod
    def forget(cls) -> None:
        """Nothing was asked, nothing is refused."""
        cls.asked.clear()
        cls.refused.clear()


fsspec.register_implementation("watched", Watched)
