"""Sizes and formats of all images of a source, from their headers; read once and kept.

Of a file the first bytes are read, and others that these ask for; all of it where that is not enough.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.decode.base import Header
from fastfeed.decode.executor import Executor, Names, Samples
from fastfeed.decode.formats.partial import PartialFile
from fastfeed.decode.sniff import sniff
from fastfeed.errors import SourceError
from fastfeed.faults import STORAGE, TRANSIENT, Failure
from fastfeed.ops.decode import Decode
from fastfeed.printable import warn
from fastfeed.runtime.addresses import FileRanges, Grouped, SampleLocations, WholeFiles
from fastfeed.sources.base import Fetching, Source, StoredFile, sample_locations, stored_files
from fastfeed.sources.cache_folder import build_lock, cache_folder, trim_cache
from fastfeed.sources.mmap_arrays import load, save
from fastfeed.sources.progress import progress_bar
from fastfeed.storage.event_loop import results
from fastfeed.storage.local_file import file_size, over_files, read_file
from fastfeed.storage.reads import ByteRange, Pending, Stat
from fastfeed.storage.storage import Storage
from fastfeed.system.processes import usable_cores

_VERSION = 2  # of what is kept
_AT_ONCE = 1024  # samples that are read and looked at together
_READ_AT_ONCE = 64  # samples that Python reads
_BYTES = 256 << 20  # of samples that are in memory together
_HEAD = 16 << 10  # bytes of a file that are read first; most headers end within them
# of which Pillow reads more than their headers when it opens what native code declines
_ONLY_NATIVE = ("JPEG", "WEBP")

Spans = Mapping[int, tuple[int, int]]  # by row: start and stop


@dataclass(frozen=True, slots=True, eq=False)
class Headers:
    """Sizes and formats of n images."""

    sizes: np.ndarray  # int32 (n, 2): height, width as displayed; 0 of images without a header
    formats: np.ndarray  # uint8 (n,): which of `names`
    names: list[str]  # "JPEG", "PNG", ...; "" of images without a header
    first_failure: str = ""  # an example of the latter

    def header(self, i: int) -> Header | None:
        """Header of an image; None if it could not be read."""
        height, width = self.sizes[i].tolist()
        return Header(height, width, self.names[self.formats[i]]) if height else None


def read_headers(source: Source, progress: bool | None = None) -> Headers:
    """Headers of all images, from FASTFEED_CACHE if they were read before.

    SourceError if storage fails: a damaged image has no header, but one that cannot be reached may
    have one.
    """
    size = source.spec.size
    if source.spec.fixed and size is not None:
        sizes = np.broadcast_to(np.array(size, np.int32), (len(source), 2))
        return Headers(sizes, np.zeros(len(source), np.uint8), ["array"])
    name = hashlib.sha256(f"{_VERSION} {source.fingerprint}".encode()).hexdigest()[:16]
    path = cache_folder() / "headers" / f"{name}.ffheaders"
    with build_lock(path):
        kept = load(path)
        if kept is not None and kept[0]["fingerprint"] == source.fingerprint:
            header, arrays = kept
            return Headers(arrays["sizes"], arrays["formats"], header["names"], header["failure"])
        headers, lasting = _read(source, progress)
        if lasting:
            _keep(path, source.fingerprint, headers)
    return headers


def _keep(path: Path, fingerprint: str, headers: Headers) -> None:
    about = {
        "fingerprint": fingerprint,
        "names": headers.names,
        "failure": headers.first_failure,
    }
    try:
        save(path, about, {"sizes": [headers.sizes], "formats": [headers.formats]})
        trim_cache(path.parent.parent, path)
    except OSError as error:
        warn(
            f"cannot keep sizes of images at {path}: {error.strerror}; set FASTFEED_CACHE to a"
            " folder that can be written, or all images are read again each time",
            stacklevel=2,
        )


def _read(source: Source, progress: bool | None) -> tuple[Headers, bool]:
    """Headers, and whether another read would give the same."""
    sizes = np.zeros((len(source), 2), np.int32)
    formats = np.zeros(len(source), np.uint8)
    names = [""]
    failures: list[Failure] = []
    lasting = True
    # it knows the sizes of all files that any other takes
    executor = Executor(Decode(dtype="float32"), usable_cores())
    with (
        closing(executor),
        progress_bar("reading headers of images", progress) as bar,
    ):
        bar.begin(len(source))
        for found, failed in _parts(executor, source):
            for id, header in found.items():
                if header.format not in names:
                    names.append(header.format)
                sizes[id] = header.height, header.width
                formats[id] = names.index(header.format)
            for failure in failed.values():
                if failure.reason in STORAGE:
                    raise SourceError(
                        f"sizes of images are not known, as storage failed at {failure}; try again"
                    )
                lasting = lasting and failure.reason not in TRANSIENT
            failures += [failed[id] for id in sorted(failed)[: 1 - len(failures)]]
            bar.add(done=len(found) + len(failed), images=len(found) + len(failed))
    return Headers(sizes, formats, names, str(failures[0]) if failures else ""), lasting


def _parts(
    executor: Executor, source: Source
) -> Iterator[tuple[dict[int, Header], dict[int, Failure]]]:
    """Headers and failures by id, of some samples after the other."""
    heads_help = True
    for first in range(0, len(source), _AT_ONCE):
        ids = np.arange(first, min(first + _AT_ONCE, len(source)))
        if heads_help:
            known = read_heads(executor, source, ids)
            heads_help = 2 * len(known) > len(ids)
            yield {first + row: header for row, header in known.items()}, {}
            ids = np.delete(ids, list(known))
        yield from _read_whole_files(executor, source, ids)


def _read_whole_files(
    executor: Executor, source: Source, ids: np.ndarray
) -> Iterator[tuple[dict[int, Header], dict[int, Failure]]]:
    """The same of files that are read whole."""
    while len(ids):
        addresses = sample_locations(source, ids)
        if addresses is None:
            samples, failed = _read_by_python(executor, source, ids[:_READ_AT_ONCE])
        else:
            samples, failed = _read_natively(executor, addresses, source, ids)
        for row, bad in samples.bad.items():
            i = int(ids[row])
            failed.setdefault(row, Failure(i, source.uri(i), "decode", bad.reason, bad.detail))
        rows = range(len(samples))
        yield (
            {int(ids[row]): samples.header(row) for row in rows if row not in failed},
            {int(ids[row]): failure for row, failure in failed.items()},
        )
        ids = ids[len(samples) :]


def _read_natively(
    executor: Executor, addresses: SampleLocations, source: Source, ids: np.ndarray
) -> tuple[Samples, dict[int, Failure]]:
    """The first of these samples, and failures by row."""
    failed = dict[int, Failure]()
    samples = executor.read(addresses, _BYTES, threading.Event(), None, _name_rows(source, ids))
    for row in samples.unread:
        (blob,) = source.read([int(ids[row])])
        if isinstance(blob, Failure):
            failed[row] = blob
        else:
            executor.put(samples, row, blob)
    return samples, failed


def _read_by_python(
    executor: Executor, source: Source, ids: np.ndarray
) -> tuple[Samples, dict[int, Failure]]:
    """Samples that native threads cannot read, and failures by row."""
    if isinstance(source, Fetching) and source.remote:
        blobs: list[Any] = [pending.result() for pending in source.fetch(ids.tolist())]
    else:
        blobs = list(source.read(ids.tolist()))
    failed: dict[int, Failure] = {}
    for row, blob in enumerate(blobs):
        if isinstance(blob, Failure):
            failed[row] = blob
            blobs[row] = None
    return executor.borrow(blobs, threading.Event(), _name_rows(source, ids)), failed


def _name_rows(source: Source, ids: np.ndarray) -> Names:
    """Names of the rows of a call, for messages."""
    return lambda row: partial(source.uri, int(ids[row]))


def read_heads(executor: Executor, source: Source, ids: np.ndarray) -> dict[int, Header]:
    """Headers of images by row, where parts of their files tell what reading all would.

    A file that is missing here has to be read whole, which may have a reason for its failure.
    """
    names = _name_rows(source, ids)
    addresses = sample_locations(source, ids)
    files: _LocalFiles | _RemoteFiles
    if addresses is None:
        files = _RemoteFiles(stored_files(source, ids))
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
        count = max(1, int(np.searchsorted(ends, _BYTES, side="right")))
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


@dataclass(eq=False)
class _LocalFiles:
    """Files and ranges of files that native threads can read."""

    _executor: Executor
    _addresses: SampleLocations
    _names: Names

    def __post_init__(self) -> None:
        addresses = self._addresses
        self._groups = [(np.arange(addresses.length), addresses)]
        if isinstance(addresses, Grouped):
            self._groups = addresses.groups

    def heads(self) -> tuple[dict[int, PartialFile], dict[int, Header]]:
        samples = self._executor.read(
            self._addresses, _BYTES, threading.Event(), None, self._names, _HEAD
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
        found = zip(paths, over_files(file_size, list(paths.values())), strict=True)
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
        samples = self._executor.read(moved, _BYTES, threading.Event())
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
        spans = ((row, span) for row, (_, span) in self._files.items())
        sizes = {row: (span.stop or 0) - span.start for row, span in spans}
        heads = self.read({row: (0, min(size, _HEAD)) for row, size in sizes.items()})
        return {row: PartialFile(sizes[row], head) for row, head in heads.items()}, {}

    def read(self, spans: Spans) -> dict[int, bytes]:
        pending: dict[int, Pending] = {}
        for storage, rows in _by_storage(self._files, spans).items():
            wholes = [(self._files[row][1], *spans[row]) for row in rows]
            ranges = [
                replace(whole, start=whole.start + start, stop=whole.start + stop)
                for whole, start, stop in wholes
            ]
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
