"""Warm or cold files of coming batches, without root and without touching other files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from fastfeed.runtime.addresses import ArrayRows, FileRanges, Grouped, SampleLocations
from fastfeed.sources.base import Fetching, Source, image_sources, sample_locations
from fastfeed.system import page_cache
from fastfeed.system.descriptors import open_file

_READ = 1 << 20  # bytes per call
_SAMPLED = 64  # samples that are looked at after they were dropped, or a few more
_WARMED = 8 << 30  # bytes; what comes after is left as it is
_MOST_STAY = 0.5  # of these files: then they cannot be dropped

Range = tuple[bytes, int, int]  # path, first byte, bytes; 0 bytes: to the end


@dataclass(frozen=True, slots=True)
class ColdCheck:
    """Result of trying to make files cold; `problem` is the reason if they stay warm."""

    problem: str = ""
    verified: bool = False  # the system says that they were not in memory afterwards


class FilePages:
    """The files of a source's samples."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def check(self, ids: np.ndarray) -> ColdCheck:
        """Try it on these samples."""
        source = self._source
        if not page_cache.can_forget():
            return ColdCheck("this system cannot be asked to forget files")
        ranges = list(self._ranges(ids))
        if not ranges:
            if isinstance(source, Fetching) and source.remote:
                return ColdCheck(
                    "its files are remote, and what other machines hold in memory cannot be dropped"
                )
            return ColdCheck("its samples lie in this process's memory, not in files")
        held = self.drop(ids)
        if held is None:
            return ColdCheck(verified=False)
        if held > _MOST_STAY:
            return ColdCheck(
                "its files stay in memory: they are on a RAM disk, or mapped by a process"
            )
        return ColdCheck(verified=True)

    def warm(self, ids: np.ndarray) -> None:
        """Read them, so that the page cache has them."""
        left = _WARMED
        for path, first, length in self._ranges(ids):
            with _opened(path) as fd:
                if fd is None:
                    continue
                remaining = length or (1 << 62)
                with suppress(OSError):  # it cannot be read: the feed will say so
                    os.lseek(fd, first, os.SEEK_SET)
                    while remaining > 0 and left > 0:
                        size = len(os.read(fd, min(_READ, remaining)))
                        if not size:
                            break
                        remaining = remaining - size
                        left = left - size

    def drop(self, ids: np.ndarray) -> float | None:
        """Let the page cache forget them.

        The share of those looked at that it still has; None: it does not say.

        Shards are forgotten as a whole: pages are kept in folios of up to megabytes, which a part
        does not free.
        """
        files: dict[bytes, list[int]] = {}  # path -> a byte in the middle of each range
        for path, first, length in self._ranges(ids):
            files.setdefault(path, []).append(first + length // 2)
        looked = held = 0
        for path, middles in files.items():
            with _opened(path) as fd:
                if fd is None:
                    continue
                with suppress(OSError):  # no regular file
                    page_cache.forget(fd)
                    if looked < _SAMPLED and any(
                        page_cache.is_held(fd, middle) for middle in middles
                    ):
                        os.fsync(fd)  # not written yet, perhaps
                        page_cache.forget(fd)
                if looked >= _SAMPLED:
                    continue
                found = [
                    has for middle in middles if (has := page_cache.is_held(fd, middle)) is not None
                ]
                looked = looked + len(found)
                held = held + sum(found)
        return held / looked if looked else None

    def _ranges(self, ids: np.ndarray) -> Iterator[Range]:
        """Each once, as far as they are local files."""
        ids = np.unique(ids)
        ranges: dict[Range, None] = {}
        for image in image_sources(self._source).values():
            addresses = sample_locations(image, ids)
            found = _named(image, ids) if addresses is None else _addressed(addresses)
            ranges |= dict.fromkeys(found)
        yield from ranges


def _named(source: Source, ids: np.ndarray) -> Iterator[Range]:
    """Yield the ranges of a source that gives no addresses, by the names it prints."""
    paths = {re.sub(r"#.*$", "", source.uri(int(id))) for id in ids.tolist()}
    for path in sorted(paths):
        if os.path.isfile(path):
            yield os.fsencode(path), 0, 0


@contextmanager
def _opened(path: bytes) -> Iterator[int | None]:
    """Descriptor of a file; None where it cannot be read."""
    try:
        fd = open_file(path, wait=False)
    except OSError:  # gone, or not ours: the feed will say so
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _addressed(addresses: SampleLocations) -> Iterator[Range]:
    if isinstance(addresses, ArrayRows):
        return
    if isinstance(addresses, Grouped):
        for _, inner in addresses.groups:
            yield from _addressed(inner)
        return
    names = addresses.names
    ends = addresses.ends
    if isinstance(addresses, FileRanges):
        for file, first, last in zip(
            addresses.files.tolist(),
            addresses.firsts.tolist(),
            addresses.lasts.tolist(),
            strict=True,
        ):
            if file >= 0:
                yield _name(names, ends, file), first, last - first
        return
    for id in addresses.ids.tolist():
        if id >= 0:
            name = _name(names, ends, id)
            yield (name if name.startswith(b"/") else addresses.root + name), 0, 0


def _name(names: np.ndarray, ends: np.ndarray, number: int) -> bytes:
    return names[int(ends[number - 1]) if number else 0 : int(ends[number])].tobytes()
