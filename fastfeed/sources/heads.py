"""Headers of images from the first bytes of their files, and from others that these ask for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from fastfeed.decode.base import Header
from fastfeed.decode.executor import Executor, Names
from fastfeed.decode.formats.partial import PartialFile
from fastfeed.decode.sniff import sniff
from fastfeed.runtime.addresses import FileRanges, Grouped, SampleLocations, WholeFiles
from fastfeed.sources.base import Source, StoredFile, addresses_of, byte_ranges_of
from fastfeed.storage.event_loop import results
from fastfeed.storage.local_file import over_files, read_file, size_of
from fastfeed.storage.reads import ByteRange, Pending, Stat
from fastfeed.storage.storage import Storage

BYTES = 256 << 20  # of samples that are in memory together
_HEAD = 16 << 10  # bytes of a file that are read first; most headers end within them
# of which Pillow reads more than their headers when it opens what native code declines
_ONLY_NATIVE = ("JPEG", "WEBP")

Spans = Mapping[int, tuple[int, int]]  # by row: start and stop


class _Files(Protocol):
    """Files of some samples, by row."""

    def heads(self) -> tuple[dict[int, PartialFile], dict[int, Header]]:
        """Read the beginning of each; headers that it holds are complete."""
        ...

    def read(self, spans: Spans) -> dict[int, bytes]:
        """Read parts; a row is left out if that fails."""
        ...


def names_of(source: Source, ids: np.ndarray) -> Names:
    """Names of the rows of a call, for messages."""
    return lambda row: partial(source.uri, int(ids[row]))


def read_heads(executor: Executor, source: Source, ids: np.ndarray) -> dict[int, Header]:
    """Headers of images by row, where parts of their files tell what reading all would.

    A file that is missing here has to be read whole, which may have a reason for its failure.
    """
    names = names_of(source, ids)
    addresses = addresses_of(source, ids)
    files: _Files
    if addresses is None:
        files = _RemoteFiles(byte_ranges_of(source, ids))
    else:
        files = _LocalFiles(executor, addresses, names)
    waiting, known = files.heads()
    complete: dict[int, PartialFile] = {}
    while waiting:
        spans: dict[int, tuple[int, int]] = {}
        for row, file in waiting.items():
            span = file.missing()
            if span is None:
                complete[row] = file
            elif span != (0, len(file)):
                spans[row] = span
        parts = files.read(spans) if spans else {}
        for row, data in parts.items():
            waiting[row].add(spans[row][0], data)
        waiting = {row: waiting[row] for row in parts}
    return known | _headers(executor, complete, names)


def _headers(executor: Executor, files: dict[int, PartialFile], names: Names) -> dict[int, Header]:
    """Headers of files whose missing parts do not matter, some of these together."""
    found: dict[int, Header] = {}
    rows = list(files)
    while rows:
        ends = np.cumsum([len(files[row]) for row in rows])
        count = max(1, int(np.searchsorted(ends, BYTES, side="right")))
        some = rows[:count]
        rows = rows[count:]
        samples = executor.borrow(
            [files[row].filled() for row in some],
            threading.Event(),
            lambda k, some=some: names(some[k]),
        )
        for k, row in enumerate(some):
            header = None if k in samples.bad else samples.header(k)
            if header and (samples.codes[k] == 0 or header.format not in _ONLY_NATIVE):
                found[row] = Header(header.height, header.width, header.format)
    return found


class _LocalFiles:
    """Files and ranges of files that native threads can read."""

    def __init__(self, executor: Executor, addresses: SampleLocations, names: Names) -> None:
        self._executor = executor
        self._addresses = addresses
        self._names = names
        every = np.arange(addresses.length)
        is_grouped = isinstance(addresses, Grouped)
        self._groups = addresses.groups if is_grouped else [(every, addresses)]

    def heads(self) -> tuple[dict[int, PartialFile], dict[int, Header]]:
        samples = self._executor.read(
            self._addresses, BYTES, threading.Event(), None, self._names, _HEAD
        )
        known: dict[int, Header] = {}
        heads: dict[int, bytes] = {}
        for row in np.flatnonzero(samples.codes >= 0).tolist():
            view = samples.handle.view(row)
            is_whole = len(view) != _HEAD
            if samples.codes[row] == 0 and (is_whole or sniff(view) == "JPEG"):
                known[row] = samples.header(row)
            elif not is_whole:
                heads[row] = bytes(view)
        sizes = self._sizes(heads)
        return {
            row: PartialFile(sizes[row], head) for row, head in heads.items() if row in sizes
        }, known

    def _sizes(self, rows: Mapping[int, bytes]) -> dict[int, int]:
        """Bytes of files, by row."""
        sizes: dict[int, int] = {}
        paths: dict[int, str] = {}
        for own, group in self._groups:
            for k, row in enumerate(own.tolist()):
                if row not in rows:
                    continue
                if isinstance(group, WholeFiles):
                    paths[row] = os.fsdecode(group.path(k))
                elif isinstance(group, FileRanges) and group.feature is None:
                    sizes[row] = int(group.lasts[k] - group.firsts[k])
        found = zip(paths, over_files(size_of, list(paths.values())), strict=True)
        return sizes | {row: size for row, size in found if size >= _HEAD}

    def read(self, spans: Spans) -> dict[int, bytes]:
        parts: dict[int, bytes] = {}
        tasks: list[Callable[[], None]] = []
        for own, group in self._groups:
            wanted = [(k, row) for k, row in enumerate(own.tolist()) if row in spans]
            if isinstance(group, FileRanges):
                parts |= self._read_ranges(group, wanted, spans)
            elif isinstance(group, WholeFiles):
                tasks += [
                    partial(_read_part, group, k, row, spans[row], parts) for k, row in wanted
                ]
        if tasks:
            self._executor.run_python(tasks, threading.Event())
        return parts

    def _read_ranges(
        self, group: FileRanges, wanted: Sequence[tuple[int, int]], spans: Spans
    ) -> dict[int, bytes]:
        rows = dict(wanted)
        files = np.full_like(group.files, -1)
        firsts = group.firsts.copy()
        lasts = group.lasts.copy()
        for k, row in wanted:
            files[k] = group.files[k]
            firsts[k], lasts[k] = group.firsts[k] + np.array(spans[row])
        # heads are checked with the first bytes
        moved = group._replace(files=files, firsts=firsts, lasts=lasts, head=0, checks=None)
        samples = self._executor.read(moved, BYTES, threading.Event())
        return {
            rows[k]: bytes(samples.handle.view(k))
            for k in rows
            if k < len(samples) and samples.codes[k] >= 0
        }


def _read_part(
    group: WholeFiles, k: int, row: int, span: tuple[int, int], parts: dict[int, bytes]
) -> None:
    data = read_file(group.path(k), group.owner, part=span)
    if isinstance(data, bytes) and len(data) == span[1] - span[0]:
        parts[row] = data


class _RemoteFiles:
    """Files in remote storage, or parts of them."""

    def __init__(self, files: Sequence[StoredFile | None]) -> None:
        self._files = _sized({row: file for row, file in enumerate(files) if file is not None})

    def heads(self) -> tuple[dict[int, PartialFile], dict[int, Header]]:
        sizes = {row: _size(span) for row, (_, span) in self._files.items()}
        heads = self.read({row: (0, min(size, _HEAD)) for row, size in sizes.items()})
        return {row: PartialFile(sizes[row], head) for row, head in heads.items()}, {}

    def read(self, spans: Spans) -> dict[int, bytes]:
        pending: dict[int, Pending] = {}
        for storage, rows in _by_storage(self._files, spans).items():
            ranges = [_part(self._files[row][1], *spans[row]) for row in rows]
            pending |= dict(zip(rows, storage.fetch(ranges), strict=True))
        data = zip(pending, results(list(pending.values())), strict=True)
        return {
            row: part
            for row, part in data
            if isinstance(part, bytes) and len(part) == spans[row][1] - spans[row][0]
        }


def _sized(files: dict[int, StoredFile]) -> dict[int, StoredFile]:
    """Files with their sizes, which are asked for where they are unknown."""
    unknown = [row for row, (_, span) in files.items() if span.stop is None]
    known = {row: file for row, file in files.items() if file[1].stop is not None}
    for storage, rows in _by_storage(files, unknown).items():
        uris = [files[row][1].uri for row in rows]
        for row, uri, stat in zip(rows, uris, storage.stat(uris), strict=True):
            if isinstance(stat, Stat) and stat.size:
                version = stat if stat.version else None
                known[row] = storage, ByteRange(uri, 0, stat.size, version)
    return known


def _by_storage(files: Mapping[int, StoredFile], rows: Iterable[int]) -> dict[Storage, list[int]]:
    groups: dict[Storage, list[int]] = {}
    for row in rows:
        groups.setdefault(files[row][0], []).append(row)
    return groups


def _size(span: ByteRange) -> int:
    assert span.stop is not None
    return span.stop - span.start


def _part(span: ByteRange, start: int, stop: int) -> ByteRange:
    return replace(span, start=span.start + start, stop=span.start + stop)
