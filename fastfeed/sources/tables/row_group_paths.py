"""Images of struct rows with a path and no bytes, in a column with bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from fastfeed.printable import printable
from fastfeed.sources.access import Access
from fastfeed.sources.tables.columns import RowLocator
from fastfeed.sources.tables.image_files import ImageFiles
from fastfeed.sources.tables.parquet import BadFile, PartialFile, TooLarge, images, metadata
from fastfeed.sources.tables.parquet_footer import row_groups
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.reads import Completed, MappedRead, Pending, Unread
from fastfeed.storage.shard_files import ShardReader
from fastfeed.storage.storage import Storage

_KEPT = 16  # row groups whose paths are in memory
FOOTERS = 64  # of files, unpacked
_EACH = 64  # bytes of a text besides its characters


class RowGroupPaths:
    """Files named by rows of Parquet, under the same rules as those of a table of paths.

    Paths are read when needed.
    """

    def __init__(
        self,
        arrays: dict[str, np.ndarray],
        leaf: str,  # the column of images, in which such a row has null
        shards: ShardReader,
        roots: list[str],
        storage: Storage,
        access: Access | None,  # None: all that this process may read
        memory: int,
    ) -> None:
        self._shards = shards
        self._roots = roots
        self._storage = storage
        self._access = access
        self._memory = memory
        # "": no struct
        self._name = f"{leaf.removesuffix('.bytes')}.path" if leaf.endswith(".bytes") else ""
        self._column = lru_cache(FOOTERS)(partial(_column, arrays, self._name, shards))
        self.forget()

    def forget(self) -> None:
        """Begin again, as after a fork: a thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        # by file and row group
        self._files: OrderedDict[tuple[int, int], ImageFiles] = OrderedDict()

    def fetch(self, file: int, group: int, row: int) -> Pending | None:
        """Begin to read the file that a row names; None if it names none.

        `row` counts those of the row group.
        """
        if not self._name:
            return None
        with self._lock:
            files: ImageFiles | Unread | None = self._files.get((file, group))
        if files is None:
            files = self._named(file, group)
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

    def _named(self, file: int, group: int) -> ImageFiles | Unread | None:
        try:
            column = self._column(file)
            if column is None:
                return None
            start, stop = column.spans[group]
            chunk = self._shards.read(file, start, stop)
            if isinstance(chunk, Unread):
                return chunk
            pieces = PartialFile(self._shards, file, [(start, chunk)])
            first, end = column.edges[group : group + 2]
            paths = images(
                pieces, column.about, group, self._name, end - first, chunk, self._memory
            )
            texts = _texts(paths, self._memory)
        except TooLarge as error:
            return Unread("bomb", f"row group {group}: {error}")
        except (BadFile, ValueError) as error:  # such as texts that are not UTF-8
            return Unread("corrupt", f"row group {group}: {error}")
        where = RowLocator()
        where.begin(self._shards.uris[file], -first)
        root = self._roots[file]
        return ImageFiles(
            StringColumn.of(texts),
            None,
            where,
            [root],
            self._storage,
            self._shards.remote,
            self._access,
        )


class _Column(NamedTuple):
    """Paths in a file: byte spans of row groups and their first rows; the last edge is all rows."""

    about: Any  # of PyArrow
    spans: list[tuple[int, int]]
    edges: list[int]


def footer_metadata(arrays: dict[str, np.ndarray], file: int) -> Any:
    """PyArrow's metadata from a file's footer. BadFile."""
    return metadata(_footer(arrays, file))


def _footer(arrays: dict[str, np.ndarray], file: int) -> bytes:
    start = int(arrays["footer_ends"][file - 1]) if file else 0
    stop = int(arrays["footer_ends"][file])
    return arrays["footers"][start:stop].tobytes()


def _column(
    arrays: dict[str, np.ndarray], name: str, shards: ShardReader, file: int
) -> _Column | None:
    """None where structs have no paths. ValueError, BadFile."""
    groups = row_groups(_footer(arrays, file), shards.stats[file].size)
    if not all(group.chunks_of(name) for group in groups):
        return None
    edges = [0, *accumulate(group.rows for group in groups)]
    return _Column(footer_metadata(arrays, file), [group.span(name)[:2] for group in groups], edges)


def _texts(column: Any, memory: int) -> list[str]:
    """Paths as texts; "" for null.

    TooLarge for more than `memory` bytes, ValueError for texts that are not UTF-8.
    """
    texts: list[str] = []
    size = 0
    for value in column:  # one after another: in a dictionary they take less than as texts
        path = value.as_py()
        texts.append(path if isinstance(path, str) else "")
        size += _EACH + len(texts[-1])
        if size > memory:
            raise TooLarge(
                f"its paths take more than {memory:,} bytes, pass memory= to Table for more"
            )
    return texts


def _with_path(data: Any, path: str) -> Any:
    if not isinstance(data, Unread):
        return data
    return Unread(
        data.reason, f"{printable(path)}: {data.detail}" if data.detail else printable(path)
    )
