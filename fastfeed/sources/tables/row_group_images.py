"""Reads images stored in Parquet files.

The unit of reading is a row group, so those that are needed are cached.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from time import monotonic
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from fastfeed.faults import TRANSIENT
from fastfeed.printable import format_size, printable, warn
from fastfeed.sources.access import Access
from fastfeed.sources.tables.columns import RowLocator
from fastfeed.sources.tables.image_files import ImageFiles
from fastfeed.sources.tables.parquet import BadFile, PrefetchedFile, TooLarge, images, metadata
from fastfeed.sources.tables.parquet_footer import row_groups
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.reads import Completed, MappedRead, Pending, Unread
from fastfeed.storage.shard_files import ShardReader
from fastfeed.storage.storage import Storage

_KEPT = 16  # row groups whose paths are in memory
_FOOTERS = 64  # of files, unpacked
_EACH = 64  # bytes of a text besides its characters
_WASTE = 4  # times what was used may be read before a warning


@dataclass(eq=False)
class RowGroups:
    """Random access to images.

    Keeps `memory` bytes of row groups, and has half as many on their way from storage.

    Row groups of images that have been requested and not taken are kept before others, and of these
    the ones that were used last. If requested ones need more memory than there is, the one used
    longest ago is dropped, and read again.
    """

    _arrays: dict[str, np.ndarray]
    _leaf: str
    _where: RowLocator
    _shards: ShardReader
    memory: int
    _paths: RowGroupPaths

    def __post_init__(self) -> None:
        arrays = self._arrays
        self.remote = self._shards.remote
        self.bounds = np.concatenate(
            [np.zeros(1, np.int64), np.cumsum(arrays["unit_rows"], dtype=np.int64)]
        )
        self._largest = int(arrays["unit_unpacked"].max())  # bytes
        self.expected = 1  # images that may be under way at once
        self._footer = lru_cache(_FOOTERS)(partial(_footer_metadata, arrays))
        self._reset()

    def _reset(self) -> None:
        # again by a request that is collected meanwhile
        self._pid = os.getpid()
        self._lock = threading.RLock()
        # by unit: images, or an Unread; last used last
        self._cache: OrderedDict[int, Any] = OrderedDict()
        # held by those who wait for them
        self._coming: WeakValueDictionary[int, _Coming] = WeakValueDictionary()
        self._requested = Counter[int]()  # by unit: images that were requested and not taken
        self._paths.forget()
        # bytes; whether the warning was given
        self._cached_bytes = 0
        self._read = 0
        self._used = 0
        self._advised = False

    # -- Source

    def uri(self, i: int) -> str:
        """`train.parquet#7`: the row in the file."""
        return self._where.uri(i)

    def read(self, i: int) -> bytes | Unread:
        """The image of row i."""
        return _Image(self, i).result()

    def addresses(self, ids: np.ndarray) -> None:
        """None: row groups are unpacked by Python."""

    def fetch(self, i: int) -> Pending:
        """Hold its row group; of storage, begin to read that, if there is room for it."""
        image = _Image(self, i)
        unit = self._unit(i)
        with self._lock:
            image.held = self._requested, unit
            self._requested[unit] += 1
            if self.remote and unit not in self._cache:
                image.coming = self._coming.get(unit)
                if image.coming is None and self._has_room(unit):
                    image.coming = self._coming[unit] = _Coming(self._span(unit))
                    image.coming.pending = self._begin(unit)
        return image

    def take(self, i: int, image: _Image, timeout: float | None) -> bytes | Unread:
        """Image of row i; TimeoutError if its row group does not arrive in time."""
        unit = self._unit(i)
        column = self._cached(unit)
        if column is None:
            with self._lock:
                image.coming = coming = image.coming or self._coming.setdefault(
                    unit, _Coming(self._span(unit))
                )
            column = self._load(unit, coming, timeout)
        if isinstance(column, Unread):
            return column
        image_bytes = column[i - int(self.bounds[unit])].as_py()
        if image_bytes is None:
            image.named = image.named or self._named(i, unit)
            return image.named.result(timeout)
        self._note(0, len(image_bytes))
        return image_bytes or Unread("empty")

    def _named(self, i: int, unit: int) -> Pending:
        """File of a row without bytes; not_found if it names none."""
        file, *_ = self._location(unit)
        named = self._paths.fetch(
            file, int(self._arrays["unit_group"][unit]), i - int(self.bounds[unit])
        )
        return named or Completed(Unread("not_found", f"row {self._where.row(i)}: no image"))

    def _unit(self, i: int) -> int:
        if self._pid != os.getpid():  # a thread of the parent may have held the lock
            self._reset()
        return int(np.searchsorted(self.bounds, i, side="right")) - 1

    # -- row groups

    def _cached(self, unit: int) -> Any:
        with self._lock:
            if unit in self._cache:
                self._cache.move_to_end(unit)
            return self._cache.get(unit)

    def _load(self, unit: int, coming: _Coming, timeout: float | None) -> Any:
        """Images of a row group, read by the first thread that asks; the others wait for it."""
        end = None if timeout is None else monotonic() + timeout
        if not coming.lock.acquire(timeout=-1 if timeout is None else timeout):
            raise NotYet
        try:
            column = self._cached(unit)
            if column is not None:
                return column
            if self.remote:
                coming.pending = coming.pending or self._begin(unit)
                data = coming.pending.result(None if end is None else max(0.0, end - monotonic()))
            else:
                data = self._shards.read(*self._location(unit))
            column = data if isinstance(data, Unread) else self._unpack(unit, data)
            self._keep(unit, column)
            return column
        finally:
            coming.lock.release()

    def _begin(self, unit: int) -> Pending:
        return self._shards.fetch(*self._location(unit))

    def _location(self, unit: int) -> tuple[int, int, int]:
        arrays = self._arrays
        return (
            int(arrays["unit_file"][unit]),
            int(arrays["unit_start"][unit]),
            int(arrays["unit_stop"][unit]),
        )

    def _span(self, unit: int) -> int:
        """Size of a row group in the file, bytes."""
        _, start, stop = self._location(unit)
        return stop - start

    def _has_room(self, unit: int) -> bool:
        """Return True if the row group fits; call with the lock held."""
        coming = sum(group.size for group in self._coming.values())
        return not coming or coming + self._span(unit) <= self.memory // 2

    def _unpack(self, unit: int, data: bytes) -> Any:
        file, start, _ = self._location(unit)
        pieces = PrefetchedFile(self._shards, file, [(start, data)])
        group = int(self._arrays["unit_group"][unit])
        try:
            rows = int(self._arrays["unit_rows"][unit])
            return images(pieces, self._footer(file), group, self._leaf, rows, data, self.memory)
        except TooLarge as error:
            return Unread("bomb", f"row group {group}: {error}")
        except BadFile as error:
            return Unread("corrupt", f"row group {group}: {error}")

    def _keep(self, unit: int, column: Any) -> None:
        size = 0 if isinstance(column, Unread) else column.nbytes
        with self._lock:
            self._coming.pop(unit, None)
            if isinstance(column, Unread) and column.reason in TRANSIENT:
                return  # the next one to ask tries again
            self._cache[unit] = column
            self._cached_bytes += size
            while self._cached_bytes > self.memory and len(self._cache) > 1:
                evicted = self._cache.pop(self._dispensable(unit))
                self._cached_bytes -= 0 if isinstance(evicted, Unread) else evicted.nbytes
        self._note(size, 0)

    def _dispensable(self, latest: int) -> int:
        """The row group to drop of those that are kept. With the lock held.

        `latest` was just read, for one image.
        """
        if (
            unit := next(
                (unit for unit in self._cache if not self._requested[unit] and unit != latest), None
            )
        ) is None:
            return next(iter(self._cache)) if self._requested[latest] else latest
        return unit

    def release(self, held: tuple[Counter[int], int]) -> None:
        """An image was taken, or is not wanted any more."""
        counts, unit = held
        if self._pid != os.getpid():  # of the parent, whose thread may hold the lock
            return
        with self._lock:
            counts[unit] -= 1
            if not counts[unit]:
                del counts[unit]

    def _note(self, read: int, used: int) -> None:
        """Count bytes; warn once if row groups are read over and over."""
        with self._lock:
            self._read += read
            self._used += used
            if self._advised or self._read < _WASTE * max(self._used, self.memory, self._largest):
                return
            self._advised = True
        each = max(1, int(self._arrays["unit_unpacked"].mean()))
        rows = max(1, round(int(self.bounds[-1]) / (len(self.bounds) - 1)))
        at_once = open_at_once(self.memory // each, self.expected, rows)
        window = min(max(at_once, 1), 4)
        more = "more memory to Table"
        if not at_once:
            needed = touched(1, self.expected, rows) * each
            more = (
                f"memory={needed} to Table, or make batch or prefetch smaller: {self.expected}"
                " images are under way"
            )
        warn(
            f"Table: {format_size(self._read)} of row groups were read for {format_size(self._used)} of images:"
            f" there are {len(self.bounds) - 1} row groups of about {format_size(each)}, and"
            f" {format_size(self.memory)} are kept; pass shuffle=Blocks(window={window},"
            f" lanes={max(at_once, 1) // window}) to the feed, {'or' if at_once else 'and'} {more}",
            stacklevel=2,
        )

    # -- Sharded

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Bytes of a sample: those of its row group, shared equally."""
        units = np.searchsorted(self.bounds, ids, side="right") - 1
        arrays = self._arrays
        return (arrays["unit_stop"][units] - arrays["unit_start"][units]) // arrays["unit_rows"][
            units
        ]

    def shard(self, unit: int) -> str:
        """File and number of a row group, for messages."""
        file, *_ = self._location(unit)
        return f"{self._shards.uris[file]} row group {int(self._arrays['unit_group'][unit])}"


def touched(open: int, expected: int, rows: int) -> int:
    """Row groups that `expected` consecutive images touch if an order has `open` of them open.

    Those that are open change all at once, so besides the ones in between there are those at either
    end.
    """
    return open * (-(-expected // (open * rows)) + 1)


def open_at_once(capacity: int, expected: int, rows: int) -> int:
    """Row groups an order may have open so that all touched ones are kept; 0 if not even one."""
    return next(
        (open for open in range(capacity, 0, -1) if touched(open, expected, rows) <= capacity), 0
    )


class _Coming:
    """A row group on its way."""

    __slots__ = ("__weakref__", "lock", "pending", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.Lock()
        self.pending: Pending | None = None


@dataclass(eq=False)
class _Image:
    """A pending read, which keeps its row group alive while that is on its way."""

    _groups: RowGroups
    _i: int
    coming: _Coming | None = None
    named: Pending | None = None  # a file, where the row has no bytes
    held: tuple[Counter[int], int] | None = None  # requests by unit, and its own

    def done(self) -> bool:
        """True once the row group has arrived; it is read again if it was evicted since."""
        return (
            self.coming is not None
            and self.coming.pending is not None
            and self.coming.pending.done()
        )

    def cancel(self) -> object:
        """Let go of the row group."""
        self._release()
        return None

    def result(self, timeout: float | None = None) -> bytes | Unread:
        """Wait for the row group; return the image's bytes."""
        data = self._groups.take(self._i, self, timeout)
        self._release()
        return data

    def _release(self) -> None:
        held = self.held
        self.held = None
        self.coming = None
        if held is not None:
            self._groups.release(held)

    # when the interpreter ends, the names of this module may be gone before the last image
    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():
            self._release()


@dataclass(eq=False)
class RowGroupPaths:
    """Files named by rows of Parquet, under the same rules as those of a table of paths.

    Paths are read when needed.
    """

    _arrays: dict[str, np.ndarray]
    _leaf: str  # the column of images, in which such a row has null
    _shards: ShardReader
    _roots: list[str]
    _storage: Storage
    _access: Access | None  # None: all that this process may read
    _memory: int

    def __post_init__(self) -> None:
        # "": no struct
        is_struct = self._leaf.endswith(".bytes")
        self._name = f"{self._leaf.removesuffix('.bytes')}.path" if is_struct else ""
        column = partial(_column, self._arrays, self._name, self._shards)
        self._column = lru_cache(_FOOTERS)(column)
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
            pieces = PrefetchedFile(self._shards, file, [(start, chunk)])
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


def _footer_metadata(arrays: dict[str, np.ndarray], file: int) -> Any:
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
    if not all(group.column_chunks(name) for group in groups):
        return None
    edges = [0, *accumulate(group.rows for group in groups)]
    return _Column(
        _footer_metadata(arrays, file), [group.span(name)[:2] for group in groups], edges
    )


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
