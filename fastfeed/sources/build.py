"""An index for a list of shards: taken from where it was kept, or built by looking through the shards, in parallel."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from fastfeed.errors import SourceError
from fastfeed.sources.fetch import Unread
from fastfeed.sources.index import Found, Index, Section, load, save, sections
from fastfeed.sources.storage import Span, Stat, Storage, is_local

__all__ = ["Peek", "build", "cache_folder"]

_LOCAL_BLOCK, _REMOTE_BLOCK = 64 << 10, 4 << 20  # bytes read at once while looking
_REMOTE_SCANS = 16  # shards looked through at once
_BESIDE = ".fastfeed"  # folder for indexes, in the folder of the shards
_SAVE_S = 60.0  # what was found is kept so often, lest a broken-off build begin from nothing


class Peek:
    """A shard that is looked through from its beginning, with jumps forward."""

    def __init__(self, uri: str, size: int, read: Callable[[int, int], bytes], block: int) -> None:
        self.uri, self.size = uri, size
        self._read, self._block = read, block
        self._start, self._data = 0, b""

    def at(self, start: int, count: int) -> bytes:
        """Bytes [start, start + count), fewer at the end."""
        first = start - self._start
        if first >= 0 and first + count <= len(self._data):
            return self._data[first : first + count]
        self._start = start
        self._data = self._read(start, min(max(count, self._block), max(self.size - start, 0)))
        return self._data[:count]


def build(
    who: str,
    files: Sequence[tuple[str, Stat]],
    kind: str,
    scan: Callable[[Peek], Found],
    storage: Storage,
    given: str | os.PathLike[str] | None,
    progress: bool | None,
) -> Index:
    """The index of these shards; `kind` names the scan and its options, another kind is another index."""
    path = _place(files, kind, given)
    wanted = [(_key(uri, path), stat) for uri, stat in files]
    index = load(path)
    if index is not None and index.kind == kind and list(zip(index.uris, index.stats, strict=True)) == wanted:
        return index
    with _alone(path):
        known = sections(path.parent, kind)
        parts: dict[str, Section] = {}
        for key in wanted:
            if key in known:
                held, i = known[key]
                parts[key[0]] = held.section(i)
        todo = [(uri, key) for (uri, _), key in zip(files, wanted, strict=True) if key[0] not in parts]
        try:
            if todo:
                _scan_all(who, todo, scan, storage, progress, parts, lambda: _keep(path, kind, wanted, parts))
        finally:  # also of a build that was broken off: the next one goes on from there
            kept = _keep(path, kind, wanted, parts)
    if kept is None:
        raise SourceError(f"{who}: cannot keep the index at {path}; pass index='a/file/that/can/be/written.ffindex'")
    return kept


def _keep(path: Path, kind: str, files: Sequence[tuple[str, Stat]], parts: dict[str, Section]) -> Index | None:
    for place in (path, cache_folder() / "index" / path.name):
        try:
            save(place, kind, [parts[uri] for uri, _ in files if uri in parts])
            return load(place)
        except OSError as error:
            warnings.warn(f"cannot keep the index at {place}: {error.strerror}", RuntimeWarning, stacklevel=2)
    return None


def _scan_all(
    who: str,
    todo: Sequence[tuple[str, tuple[str, Stat]]],
    scan: Callable[[Peek], Found],
    storage: Storage,
    progress: bool | None,
    parts: dict[str, Section],
    keep: Callable[[], object],
) -> None:
    threads = _REMOTE_SCANS if not is_local(todo[0][0]) else min(8, os.cpu_count() or 1)
    saved = time.monotonic()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="fastfeed-index")
    try:
        with _bar(who, len(todo), progress) as advance:
            work = [pool.submit(_look, who, uri, key, stat, scan, storage) for uri, (key, stat) in todo]
            for done in as_completed(work):
                part = done.result()
                parts[part.uri] = part
                advance()
                if time.monotonic() - saved > _SAVE_S:
                    keep()
                    saved = time.monotonic()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _look(who: str, uri: str, key: str, stat: Stat, scan: Callable[[Peek], Found], storage: Storage) -> Section:
    if is_local(uri):
        try:
            fd = os.open(uri, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SourceError(f"{who}: cannot open {uri}: {error.strerror}") from error
        try:
            peek = Peek(uri, stat.size, lambda start, count: os.pread(fd, count, start), _LOCAL_BLOCK)
            return Section.of(key, stat, scan(peek))
        except OSError as error:
            raise SourceError(f"{who}: cannot read {uri}: {error}") from error
        finally:
            os.close(fd)

    def read(start: int, count: int) -> bytes:
        data = storage.read([Span(uri, start, start + count, stat)])[0]
        if isinstance(data, Unread):
            raise SourceError(f"{who}: cannot read {uri}: {data.reason} ({data.detail})")
        return data

    return Section.of(key, stat, scan(Peek(uri, stat.size, read, _REMOTE_BLOCK)))


@contextlib.contextmanager
def _bar(who: str, total: int, progress: bool | None) -> Iterator[Callable[[], Any]]:
    """A progress bar on the terminal, where there is one."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(f"{who}: looking through shards"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process of a machine builds; the others wait, and find what it built."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path.with_suffix(".lock"), "ab")  # noqa: SIM115  closed below
    except OSError:  # a read-only place: each process builds for itself
        yield
        return
    with lock:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _place(files: Sequence[tuple[str, Stat]], kind: str, given: str | os.PathLike[str] | None) -> Path:
    """Beside local shards where that may be written, else in the cache folder."""
    if given is not None:
        return Path(given)
    uris = [os.path.abspath(uri) if is_local(uri) else uri for uri, _ in files]
    name = hashlib.sha256("\0".join([kind, *uris]).encode("utf-8", "surrogateescape")).hexdigest()[:16] + ".ffindex"
    parents = {os.path.dirname(uri) for uri in uris} if all(map(is_local, uris)) else set()
    if len(parents) == 1:
        folder = Path(parents.pop())
        beside = folder / _BESIDE
        if os.access(beside if beside.is_dir() else folder, os.W_OK):
            return beside / name
    return cache_folder() / "index" / name


def _key(uri: str, path: Path) -> str:
    """A shard's name in the index: one beside the shards stays valid when the folder is moved."""
    if not is_local(uri):
        return uri
    whole = os.path.abspath(uri)
    return os.path.basename(whole) if path.parent == Path(os.path.dirname(whole)) / _BESIDE else whole


def cache_folder() -> Path:
    """FASTFEED_CACHE, or fastfeed in the user's cache folder."""
    own = os.environ.get("FASTFEED_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastfeed"
