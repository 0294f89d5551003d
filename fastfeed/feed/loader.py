"""Reads samples, looks at their headers, and finds the region of each that the ops use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fastfeed.decode.base import Bad, DecodeEngine, Header
from fastfeed.decode.executor import Executor, Samples
from fastfeed.faults import Failure
from fastfeed.feed.entries import checked, size_of
from fastfeed.feed.pending_batch import PendingBatch
from fastfeed.feed.quarantine import Quarantine
from fastfeed.ops.program.program import Program, Work
from fastfeed.ops.source_crop import parts
from fastfeed.runtime.addresses import Addresses
from fastfeed.runtime.timeline import Timeline
from fastfeed.sources.base import Annotated, Source, addresses_of

__all__ = ["LoadedSamples", "Loader", "ReadRows"]

_BLACK = Header(1, 1, "array")
_READ_AT_ONCE = 4  # samples per call of source.read

ReadRows = Callable[[list[int]], list[Any]]  # rows -> bytes or Failure each


@dataclass(slots=True)
class LoadedSamples:
    """Samples whose size is known, all of equal length; `bad` ones have no blob."""

    ids: np.ndarray
    blobs: list[Any]  # empty where native threads hold them
    headers: list[Header]
    native: Samples | None
    image_sizes: np.ndarray  # int64 (n, 2): height, width as displayed; 1, 1 of bad samples
    corners: np.ndarray | float  # of the regions to use, top and left, whole pixels
    sizes: np.ndarray  # int64 (n, 2): height, width of these regions
    bad: dict[int, Failure | None]  # row -> its failure; None for a sample that was known to be bad

    def work(self, program: Program, draws: list[np.ndarray]) -> Work:
        """What a program does to these samples."""
        work = program.work([u[: len(self.ids)] for u in draws], self.sizes)
        corners = self.corners
        if isinstance(corners, np.ndarray):
            if work.views > 1:
                corners = np.repeat(corners, work.views, axis=0)
            work.windows.boxes[:, :2] += corners
            if work.windows.limits is not None:
                work.windows.limits[:, :2] += corners
        return work


class Loader:
    """Reads at most `max_bytes` at once. A bad sample is a result, never an exception."""

    def __init__(
        self,
        source: Source,
        engine: DecodeEngine,
        quarantine: Quarantine,
        timeline: Timeline,
        max_bytes: int,
        executor: Executor | None = None,  # reads with native threads
        native: bool = False,  # it keeps the samples for native threads; otherwise they become Python's
    ) -> None:
        self._source, self._engine, self._quarantine, self._max_bytes = source, engine, quarantine, max_bytes
        self._timeline, self._executor, self._native = timeline, executor, native
        self._annotated = source if isinstance(source, Annotated) else None

    def load(self, ids: np.ndarray, batch: PendingBatch, read: ReadRows) -> LoadedSamples:
        """The first of these ids, up to the limit of bytes."""
        if self._executor is not None:
            return self._load_native(self._executor, ids, batch, read)
        bad: dict[int, Failure | None] = {}
        blobs = self._read(ids, bad, batch, read)
        ids = ids[: len(blobs)]
        headers = [_BLACK] * len(ids)
        good = [row for row in range(len(ids)) if row not in bad]
        for row, header in zip(good, self._engine.probe([blobs[row] for row in good]), strict=True):
            if isinstance(header, Bad):
                bad[row] = self.failure(ids[row], header)
            else:
                headers[row] = header
        sizes = np.array([(h.height, h.width) for h in headers], np.int64).reshape(-1, 2)
        return LoadedSamples(ids, blobs, headers, None, sizes, *self._regions(ids, sizes, bad), bad)

    def failure(self, id: Any, bad: Bad) -> Failure:
        """As the quarantine lists it."""
        stage = "augment" if bad.reason == "op_failed" else "decode"
        return Failure(int(id), self._source.uri(int(id)), stage, bad.reason, bad.detail)

    def _load_native(self, executor: Executor, ids: np.ndarray, batch: PendingBatch, read: ReadRows) -> LoadedSamples:
        bad: dict[int, Failure | None] = {}
        ahead, stop = batch.ahead is not None, batch.stop
        addresses = None if ahead else addresses_of(self._source, ids)
        if addresses is None:
            blobs = self._read(ids, bad, batch, read, 1 if ahead else executor.threads)
            samples = executor.borrow(blobs, stop)
        else:
            samples = self._read_addresses(executor, addresses, ids, bad, batch, read)
            self._timeline.record_native(batch.number, ("read",), samples.spans)
        ids = ids[: len(samples)]
        for row, reason in samples.bad.items():
            bad.setdefault(row, self.failure(ids[row], reason))
        sizes = np.maximum(samples.sizes, 1)  # also of what was not read because the feed is closed
        if bad:
            sizes[list(bad)] = 1
        corners, regions = self._regions(ids, sizes, bad)
        if self._native:
            return LoadedSamples(ids, [], [], samples, sizes, corners, regions, bad)
        blobs = [None if row in bad else executor.blob(samples, row) for row in range(len(ids))]
        headers = [_BLACK if row in bad else samples.header(row) for row in range(len(ids))]
        return LoadedSamples(ids, blobs, headers, None, sizes, corners, regions, bad)

    def _read_addresses(
        self,
        executor: Executor,
        addresses: Addresses,
        ids: np.ndarray,
        bad: dict[int, Failure | None],
        batch: PendingBatch,
        read: ReadRows,
    ) -> Samples:
        """The first samples, read by native threads; what they cannot read, the source reads, or knows the reason."""
        known_bad, stop = self._quarantine.known_bad(ids), batch.stop
        some_known = bool(np.count_nonzero(known_bad))
        samples = executor.read(addresses, self._max_bytes, stop, known_bad if some_known else None)
        unread = [row for row in samples.unread if not known_bad[row]]
        size, step = 0, executor.threads * _READ_AT_ONCE
        for k in range(0, len(unread), step):
            if size >= self._max_bytes:
                samples = samples.first(unread[k])
                break
            rows = unread[k : k + step]
            for row, entry in self._read_parallel(rows, ids, batch, read, executor.threads).items():
                if entry is None or isinstance(entry, Failure):
                    bad[row] = entry
                else:
                    executor.put(samples, row, entry)
                    size += size_of(entry)
        if some_known:
            bad.update(dict.fromkeys(np.flatnonzero(known_bad[: len(samples)]).tolist()))
        return samples

    def _regions(
        self, ids: np.ndarray, sizes: np.ndarray, bad: dict[int, Failure | None]
    ) -> tuple[np.ndarray | float, np.ndarray]:
        """The region of each image to use, in whole pixels: top left corners and (height, width)."""
        boxes = self._annotated.boxes(ids) if self._annotated is not None else None
        if boxes is None:
            return 0.0, sizes
        first, sizes, outside = parts(boxes, sizes)
        for row, detail in outside.items():
            bad.setdefault(row, self.failure(ids[row], Bad("corrupt", detail)))
        return first, sizes

    def _read(
        self, ids: np.ndarray, bad: dict[int, Failure | None], batch: PendingBatch, read: ReadRows, threads: int = 1
    ) -> list[Any]:
        """Blobs of the first samples; in `bad` those without one. Reads a few at a time, so that it can stop early."""
        known_bad = self._quarantine.known_bad(ids)
        blobs: list[Any] = []
        size = 0  # bytes
        while len(blobs) < len(ids) and size < self._max_bytes and not (blobs and batch.stop.is_set()):
            rows = range(len(blobs), min(len(blobs) + threads * _READ_AT_ONCE, len(ids)))
            by_row = self._read_parallel([row for row in rows if not known_bad[row]], ids, batch, read, threads)
            for row in rows:
                blob = by_row.get(row)
                if blob is None or isinstance(blob, Failure):
                    bad[row], blob = blob, None
                else:
                    size += size_of(blob)
                blobs.append(blob)
        return blobs

    def _read_parallel(
        self, rows: list[int], ids: np.ndarray, batch: PendingBatch, read: ReadRows, threads: int
    ) -> dict[int, Any]:
        """Entries by row; None for those that were not read before the stop."""
        by_row: dict[int, Any] = dict.fromkeys(rows)
        step = max(1, min(_READ_AT_ONCE, -(-len(rows) // threads)))
        groups = [rows[k : k + step] for k in range(0, len(rows), step)]
        tasks = [partial(self._read_rows, group, ids, batch, read, by_row) for group in groups]
        if self._executor is not None and batch.ahead is None and tasks:
            self._executor.run_python(tasks, batch.stop)
        else:
            for task in tasks:
                task()
        return by_row

    def _read_rows(
        self, rows: list[int], ids: np.ndarray, batch: PendingBatch, read: ReadRows, by_row: dict[int, Any]
    ) -> None:
        with self._timeline.span("read", batch.number):
            entries = read(rows)
        if len(entries) != len(rows):
            raise TypeError(f"{type(self._source).__name__}.read({len(rows)} ids) gave {len(entries)} entries")
        for row, entry in zip(rows, entries, strict=True):
            by_row[row] = checked(self._source, int(ids[row]), entry)
