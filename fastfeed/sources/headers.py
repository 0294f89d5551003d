"""Sizes and formats of all images of a source, from their headers; read once and kept."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.decode.base import Header
from fastfeed.decode.executor import Executor, Samples
from fastfeed.errors import SourceError
from fastfeed.faults import STORAGE, TRANSIENT, Failure
from fastfeed.ops.decode import Decode
from fastfeed.printable import warn
from fastfeed.runtime.addresses import SampleLocations
from fastfeed.sources.base import Fetching, Source, addresses_of
from fastfeed.sources.cache_folder import build_lock, cache_folder, trim_cache
from fastfeed.sources.heads import BYTES, names_of, read_heads
from fastfeed.sources.mmap_arrays import load, save
from fastfeed.sources.progress import progress_bar
from fastfeed.system.processes import usable_cores

_VERSION = 2  # of what is kept
_AT_ONCE = 1024  # samples that are read and looked at together
_READ_AT_ONCE = 64  # samples that Python reads


@dataclass(frozen=True, slots=True, eq=False)
class Headers:
    """Headers of n images."""

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
        yield from _whole(executor, source, ids)


def _whole(
    executor: Executor, source: Source, ids: np.ndarray
) -> Iterator[tuple[dict[int, Header], dict[int, Failure]]]:
    """The same of files that are read whole."""
    while len(ids):
        addresses = addresses_of(source, ids)
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
    samples = executor.read(addresses, BYTES, threading.Event(), None, names_of(source, ids))
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
    blobs: list[Any] = list(_read_python(source, ids.tolist()))
    failed: dict[int, Failure] = {}
    for row, blob in enumerate(blobs):
        if isinstance(blob, Failure):
            failed[row], blobs[row] = blob, None
    return executor.borrow(blobs, threading.Event(), names_of(source, ids)), failed


def _read_python(source: Source, ids: Sequence[int]) -> list[bytes | Failure]:
    if isinstance(source, Fetching) and source.remote:
        return [pending.result() for pending in source.fetch(ids)]
    return source.read(ids)
