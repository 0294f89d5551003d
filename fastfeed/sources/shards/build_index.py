"""Index of a list of shards: loaded if it exists, else built by parallel scans."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from fastfeed.errors import ConfigError, SourceError, StorageError
from fastfeed.printable import warn
from fastfeed.sources.cache_folder import build_lock, cache_folder, trim_cache
from fastfeed.sources.progress import progress_bar
from fastfeed.sources.shards.index import Index, Section, ShardScan, is_index, load, save, sections
from fastfeed.sources.shards.known_counts import add_missing
from fastfeed.storage.local_file import open_to_read, raise_exhausted
from fastfeed.storage.reads import ByteRange, Stat, Unread, is_local
from fastfeed.storage.storage import Storage
from fastfeed.system.descriptors import pread

T = TypeVar("T")

# bytes read at once in a scan
_LOCAL_BLOCK = 64 << 10
_REMOTE_BLOCK = 4 << 20
_REMOTE_SCANS = 16  # shards scanned at once
_INDEX_FOLDER = ".fastfeed"  # folder for indexes, in the folder of the shards
_SAVE_S = 60.0  # between saves, so that an interrupted build can resume


@dataclass(slots=True, eq=False)
class ForwardReader:
    """Reads a shard from its start, with jumps forward, in large blocks."""

    uri: str
    size: int
    _read: Callable[[int, int], bytes]
    _block: int
    _start: int = 0
    _data: bytes = b""

    def read(self, start: int, count: int) -> bytes:
        """Bytes [start, start + count), fewer at the end."""
        first = start - self._start
        if first >= 0 and first + count <= len(self._data):
            return self._data[first : first + count]
        if start >= self.size:
            return b""
        self._start = start
        self._data = self._read(start, min(max(count, self._block), self.size - start))
        return self._data[:count]


@dataclass(frozen=True, slots=True)
class _IndexFile:
    """A file that may hold the index."""

    path: Path
    keys: tuple[tuple[str, Stat], ...]  # its names of the shards, and their versions


def build(
    who: str,
    files: Sequence[tuple[str, Stat]],
    kind: str,
    scan: Callable[[ForwardReader], ShardScan],
    storage: Storage,
    index_path: str | os.PathLike[str] | None,
    progress: bool | None,
) -> Index:
    """Load or build the index of these shards; `kind` names the scan and its options."""
    if index_path is not None and not is_index(Path(index_path)):
        raise ConfigError(
            f"{who}: index={os.fspath(index_path)!r} is not an index; pass a path for a new file",
            field="index",
        )
    index_files = _index_files(files, kind, index_path)
    index = _load_existing(index_files, kind)
    if index is not None:
        return index
    with build_lock(*(index_file.path for index_file in index_files)):
        # another process may have built it while this one waited
        index = _load_existing(index_files, kind)
        if index is not None:
            return index
        parts = _reusable_sections(index_files, kind)
        pending = [(i, uri, stat) for i, (uri, stat) in enumerate(files) if i not in parts]
        try:
            _scan_all(
                who,
                pending,
                scan,
                storage,
                progress,
                parts,
                lambda: _save_sections(index_files, kind, parts),
            )
            _count_missing(index_files, kind, parts, [i for i, _, _ in pending])
        finally:  # after an interruption, too: the next build resumes from there
            trouble = _save_sections(index_files, kind, parts) if parts else ""
        index = _load_existing(index_files, kind)
    if trouble and (index_path is not None or index is None):
        instead = (
            "it is in the cache folder" if index is not None else "each start will scan the shards"
        )
        text = f"{who}: cannot save the index at {trouble}; {instead}"
        warn(text, stacklevel=5)  # where the source is created
    return index if index is not None else Index.of(kind, [parts[i] for i in range(len(files))])


def _load_existing(index_files: Sequence[_IndexFile], kind: str) -> Index | None:
    for index_file in index_files:
        index = load(index_file.path, kind, frozenset(index_file.keys))
        if (
            index is not None
            and tuple(zip(index.uris, index.stats, strict=True)) == index_file.keys
        ):
            return index
    return None


def _reusable_sections(index_files: Sequence[_IndexFile], kind: str) -> dict[int, Section]:
    """Sections of single shards in other indexes there, by the shards' positions in the list."""
    parts: dict[int, Section] = {}
    for index_file in index_files:
        files = [index_file.path]
        with contextlib.suppress(OSError):
            files += sorted(index_file.path.parent.glob("*.ffindex"))
        matches = sections(files, kind, frozenset(index_file.keys))
        for i, key in enumerate(index_file.keys):
            if key in matches and i not in parts:
                index, k = matches[key]
                parts[i] = index.section(k)
    return parts


def _count_missing(
    index_files: Sequence[_IndexFile], kind: str, parts: dict[int, Section], scanned: Sequence[int]
) -> None:
    """Note the samples of earlier indexes of the same shards that are missing now."""
    for index_file in index_files:
        earlier = load(index_file.path, kind) if scanned else None
        if earlier is None:
            continue
        for i in scanned:
            parts[i] = add_missing(
                parts[i], earlier, index_file.keys[i][0], not kind.startswith("tfrecord")
            )


def _save_sections(index_files: Sequence[_IndexFile], kind: str, parts: dict[int, Section]) -> str:
    """Save the sections in the first place that can be written; returns the first error."""
    trouble = ""
    for index_file in index_files:
        try:
            save(
                index_file.path,
                kind,
                [replace(parts[i], uri=index_file.keys[i][0]) for i in sorted(parts)],
            )
            trim_cache(cache_folder(), index_file.path)
            return trouble
        except OSError as error:
            trouble = trouble or f"{index_file.path}: {error.strerror or error}"
    return trouble


def _scan_all(
    who: str,
    pending: Sequence[tuple[int, str, Stat]],
    scan: Callable[[ForwardReader], ShardScan],
    storage: Storage,
    progress: bool | None,
    parts: dict[int, Section],
    keep: Callable[[], object],
) -> None:
    if not pending:
        return
    threads = _REMOTE_SCANS if not is_local(pending[0][1]) else min(8, os.cpu_count() or 1)
    saved = time.monotonic()
    stop = threading.Event()

    def scanned(uri: str, stat: Stat) -> Section:
        return Section.of(uri, stat, read_shard(who, uri, stat, scan, storage, stop))

    work: dict[Future[Section], int] = {}
    pool = ThreadPoolExecutor(threads, thread_name_prefix="fastfeed-index")
    try:
        with progress_bar(f"{who}: scanning shards", progress) as count:
            count.begin(len(pending))
            work = {pool.submit(scanned, uri, stat): i for i, uri, stat in pending}
            for future in as_completed(work):
                parts[work[future]] = future.result()
                count.add(1)
                if time.monotonic() - saved > _SAVE_S:
                    keep()
                    saved = time.monotonic()
    except BaseException as error:
        if not isinstance(error, Exception):  # Ctrl-C does not wait for running scans
            stop.set()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for future, i in work.items():
            if not future.cancelled() and future.exception() is None:
                parts[i] = future.result()


def read_shard(
    who: str,
    uri: str,
    stat: Stat,
    scan: Callable[[ForwardReader], T],
    storage: Storage,
    stop: threading.Event,
) -> T:
    """The result of a function that reads one shard from its start.

    SourceError; CancelledError after a stop.
    """

    def read(start: int, count: int) -> bytes:
        if stop.is_set():
            raise CancelledError
        data = storage.read([ByteRange(uri, start, start + count, stat)])[0]
        if isinstance(data, Unread):
            raise SourceError(f"{who}: cannot read {uri}: {data.reason} ({data.detail})")
        return data

    if not is_local(uri):
        return scan(ForwardReader(uri, stat.size, read, _REMOTE_BLOCK))

    def read_local(start: int, count: int) -> bytes:
        if stop.is_set():
            raise CancelledError
        return pread(fd, count, start)

    try:
        fd = open_to_read(uri)
    except StorageError:
        raise
    except OSError as error:
        raise SourceError(f"{who}: cannot open {uri}: {error.strerror}") from error
    try:
        result = scan(ForwardReader(uri, stat.size, read_local, _LOCAL_BLOCK))
        status = os.fstat(fd)
        if (status.st_size, str(status.st_mtime_ns)) != (stat.size, stat.version):
            raise SourceError(
                f"{who}: {uri} changed while it was scanned; is it still being written?"
            )
        return result
    except SourceError:
        raise
    except OSError as error:
        raise_exhausted(error, f"{who}: cannot read {uri}")
        raise SourceError(f"{who}: cannot read {uri}: {error.strerror or error}") from error
    finally:
        os.close(fd)


def _index_files(
    files: Sequence[tuple[str, Stat]], kind: str, index_path: str | os.PathLike[str] | None
) -> list[_IndexFile]:
    """Places for the index: `index_path`, next to local shards, then the cache folder."""
    uris = [os.path.abspath(uri) if is_local(uri) else uri for uri, _ in files]
    stats = [stat for _, stat in files]
    paths = [cache_folder() / "index" / _file_name(kind, uris)]
    folders = {os.path.dirname(uri) for uri in uris} if all(map(is_local, uris)) else set()
    if index_path is not None:
        paths.insert(0, Path(os.path.abspath(index_path)))
    elif len(folders) == 1:  # of the bare names: the same when the folder is moved
        paths.insert(
            0, Path(*folders, _INDEX_FOLDER, _file_name(kind, map(os.path.basename, uris)))
        )
    return [
        _IndexFile(path, tuple(zip((_key(uri, path) for uri in uris), stats, strict=True)))
        for path in paths
    ]


def _file_name(kind: str, uris: Sequence[str] | Iterator[str]) -> str:
    return (
        hashlib.sha256("\0".join([kind, *uris]).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        + ".ffindex"
    )


def _key(uri: str, path: Path) -> str:
    """A shard's name in the index: one in the shards' folder stays valid when that is moved."""
    folder = path.parent.parent if path.parent.name == _INDEX_FOLDER else path.parent
    return os.path.relpath(uri, folder) if is_local(uri) and uri.startswith(f"{folder}/") else uri
