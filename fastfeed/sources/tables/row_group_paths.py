"""Reads the images of a struct's rows that have a path and no bytes, where other rows have bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fastfeed.printable import printable
from fastfeed.sources.access import Access
from fastfeed.sources.tables.columns import RowLocator
from fastfeed.sources.tables.image_files import ImageFiles
from fastfeed.sources.tables.parquet import BadFile, PartialFile, TooLarge, images, metadata
from fastfeed.sources.tables.parquet_footer import row_groups
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.pending import Pending
from fastfeed.storage.retry import Unread
from fastfeed.storage.shard_files import Completed, MappedRead, Shards
from fastfeed.storage.storage import Storage

__all__ = ["RowGroupPaths"]

_KEPT = 16  # row groups whose paths are in memory
_EACH = 64  # bytes of a text besides its characters


class RowGroupPaths:
    """Files named by rows of Parquet, under the same rules as those of a table of paths. Paths are read when needed."""

    def __init__(self, shards: Shards, roots: list[str], storage: Storage, access: Access, memory: int) -> None:
        self._shards, self._roots, self._storage, self._access = shards, roots, storage, access
        self._memory = memory
        self.forget()

    def forget(self) -> None:
        """Begin again, as after a fork: a thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[int, int], ImageFiles] = OrderedDict()  # by file and row group

    def fetch(self, file: int, footer: Callable[[], bytes], group: int, leaf: str, row: int) -> Pending | None:
        """Begin to read the file that a row names; None where it names none.

        `row` counts those of the row group, `leaf` is where its bytes would be.
        """
        with self._lock:
            files: ImageFiles | Unread | None = self._files.get((file, group))
        if files is None:
            files = self._named(file, footer(), group, leaf)
        if files is None or isinstance(files, Unread):
            return None if files is None else Completed(files)
        with self._lock:
            self._files[file, group] = files
            while len(self._files) > _KEPT:
                self._files.popitem(last=False)
        path = files.path(row)
        if not path:
            return None
        return MappedRead(files.fetch(row), lambda data: _with_path(data, path))

    def _named(self, file: int, footer: bytes, group: int, leaf: str) -> ImageFiles | Unread | None:
        if not leaf.endswith(".bytes"):  # no struct
            return None
        name = leaf.removesuffix(".bytes") + ".path"
        groups = row_groups(footer, self._shards.stats[file].size)
        try:
            start, stop, _ = groups[group].span(name)
        except ValueError:  # a struct without paths
            return None
        chunk = self._shards.read(file, start, stop)
        if isinstance(chunk, Unread):
            return chunk
        pieces = PartialFile(self._shards, file, [(start, chunk)])
        try:
            column = images(pieces, metadata(footer), group, name, groups[group].rows, chunk, self._memory)
            texts = _texts(column, self._memory)
        except TooLarge as error:
            return Unread("bomb", f"row group {group}: {error}")
        except (BadFile, ValueError) as error:  # such as texts that are not UTF-8
            return Unread("corrupt", f"row group {group}: {error}")
        where = RowLocator()
        where.begin(self._shards.uris[file], -sum(own.rows for own in groups[:group]))
        root = self._roots[file]
        return ImageFiles(StringColumn.of(texts), None, where, [root], self._storage, self._shards.remote, self._access)


def _texts(column: Any, memory: int) -> list[str]:
    """Paths as texts; "" for null. TooLarge for more than `memory` bytes, ValueError for texts that are not UTF-8."""
    texts: list[str] = []
    size = 0
    for value in column:  # one after another: in a dictionary they take less than as texts
        path = value.as_py()
        texts.append(path if isinstance(path, str) else "")
        size += _EACH + len(texts[-1])
        if size > memory:
            raise TooLarge(f"its paths take more than {memory:,} bytes, pass memory= to Table for more")
    return texts


def _with_path(data: Any, path: str) -> Any:
    if not isinstance(data, Unread):
        return data
    return Unread(data.reason, f"{printable(path)}: {data.detail}" if data.detail else printable(path))
