"""Reads samples, looks at their headers, and finds the region of each that the ops use."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fastfeed.decode.base import DecodeFailure, FunctionFailed
from fastfeed.decode.executor import Executor, Samples
from fastfeed.decode.native import orientation
from fastfeed.decode.pillow_warnings import Name
from fastfeed.errors import SampleError
from fastfeed.faults import Failure, ends_run, error_text
from fastfeed.feed.batch.pending_batch import PendingBatch
from fastfeed.feed.faults.outages import Outages, parse_endpoint
from fastfeed.feed.faults.quarantine import Quarantine
from fastfeed.ops.program.program import Program, Work
from fastfeed.ops.program.window import ObjectBoxes
from fastfeed.ops.source_crop import parts
from fastfeed.runtime.addresses import SampleLocations
from fastfeed.runtime.timeline import Timeline
from fastfeed.sources.arrays import Arrays
from fastfeed.sources.base import BlockReader, Optionals, Sharded, Source, sample_locations
from fastfeed.spec import Spec
from fastfeed.storage.reads import Pending

_READ_AT_ONCE = 4  # samples per call of source.read

ReadRows = Callable[[list[int]], list[Any]]  # rows -> bytes or Failure each


@dataclass(slots=True)
class LoadedSamples:
    """Samples whose size is known, all of equal length; `bad` ones have no bytes."""

    ids: np.ndarray
    native: Samples
    image_sizes: np.ndarray  # int64 (n, 2): height, width as displayed; 1, 1 of bad samples
    corners: np.ndarray | float  # of the regions to use, top and left, whole pixels
    sizes: np.ndarray  # int64 (n, 2): height, width of these regions
    bad: dict[int, Failure | None]  # row -> its failure; None for a sample that was known to be bad
    # int64 (n, 2): the sizes that ops see, in proportion to `sizes`; None: the same
    seen: np.ndarray | None = None

    def first(self, count: int) -> LoadedSamples:
        """Keep only the first `count` samples."""
        if count == len(self.ids):
            return self
        corners = self.corners
        return LoadedSamples(
            self.ids[:count],
            self.native.first(count),
            self.image_sizes[:count],
            corners[:count] if isinstance(corners, np.ndarray) else corners,
            self.sizes[:count],
            {row: failure for row, failure in self.bad.items() if row < count},
        )

    def orientations(self) -> np.ndarray:
        """EXIF orientation of each image, int64 (n,); 1 if bad or turned by the decoder."""
        found = np.ones(len(self.ids), np.int64)
        native = self.native
        for row in range(len(found)) if native.encoded else ():
            if row not in self.bad:
                found[row] = orientation(native.handle.view(row), native.others.get(row))
        return found

    def work(
        self, program: Program, draws: list[np.ndarray], objects: ObjectBoxes | None = None
    ) -> Work:
        """Crops and parameters of a program for these samples; objects: in their images."""
        seen = self.sizes if self.seen is None else self.seen
        if objects is not None and isinstance(self.corners, np.ndarray):
            moved = objects.boxes - np.tile(self.corners[objects.rows, ::-1], 2)
            objects = ObjectBoxes(objects.rows, moved)
        work = program.work([u[: len(self.ids)] for u in draws], seen, objects)
        rows = np.flatnonzero((self.sizes != seen).any(axis=1)) if self.seen is not None else []
        corners = self.corners
        if isinstance(corners, np.ndarray) and work.views > 1:
            corners = np.repeat(corners, work.views, axis=0)
        for boxes in (work.windows.boxes, work.windows.limits):
            if boxes is None:
                continue
            if len(rows):
                scale = np.tile(self.sizes[rows], 2), np.tile(seen[rows], 2)
                boxes[rows] = boxes[rows] * scale[0] / scale[1]
            if isinstance(corners, np.ndarray):
                boxes[:, :2] += corners
        return work


@dataclass(slots=True)
class _Task:
    """Samples that are to be read for a batch, and how the source reads rows of them."""

    ids: np.ndarray
    batch: PendingBatch
    read: ReadRows
    bad: dict[int, Failure | None] = field(default_factory=dict)  # as in `LoadedSamples`


@dataclass(eq=False)
class ImageLoader:
    """Reads at most `max_bytes` at once. A bad sample is a result, never an exception."""

    source: Source
    quarantine: Quarantine
    timeline: Timeline
    max_bytes: int
    outages: Outages
    executor: Executor
    image: str  # name among the images of a sample

    def __post_init__(self) -> None:
        self._optionals = Optionals(self.source)

    def load(self, ids: np.ndarray, batch: PendingBatch, read: ReadRows) -> LoadedSamples:
        """Load the first of these ids, up to the limit of bytes."""
        progress = self.timeline.progress
        executor = self.executor
        progress.enter(batch.number, "read", partial(self._endpoint_or_folder, int(ids[0])))
        task = _Task(ids, batch, read)
        bad = task.bad
        addresses = None if self.image in batch.ahead else sample_locations(self.source, ids)
        if addresses is None:
            samples = executor.borrow(self._read(task), batch.stop, partial(self._name, ids))
        else:
            samples = self._read_addresses(addresses, task)
            self.timeline.record_native(batch.number, ("read",), samples.spans)
        ids = ids[: len(samples)]
        for row, reason in samples.bad.items():
            bad.setdefault(row, self.failure(ids[row], reason))
        sizes = np.maximum(samples.sizes, 1)  # also of what was not read because the feed is closed
        if bad:
            sizes[list(bad)] = 1
        return LoadedSamples(ids, samples, sizes, *self._regions(ids, sizes, bad), bad)

    def _endpoint_or_folder(self, id: int) -> str:
        """The endpoint, or the folder, that a sample is read from."""
        uri = str(self.source.uri(id))
        return parse_endpoint(uri) or os.path.dirname(uri)

    def _name(self, ids: np.ndarray, row: int) -> Name:
        return partial(self.source.uri, int(ids[row]))

    def failure(self, id: Any, bad: DecodeFailure) -> Failure:
        """The failure as the quarantine lists it.

        Raises MemoryError, which is not a sample's fault, and if the policy says so, what a user's
        function raised.
        """
        uri = self.source.uri(int(id))
        if bad.reason == "oom":
            raise MemoryError(
                f"decoding sample {int(id)}, {uri}: {bad.detail}; no sample is listed as bad for"
                " it: lower Feed(memory=...), batch or threads, or leave large images out with"
                " Decode(max_pixels=...)"
            )
        if not isinstance(bad, FunctionFailed):
            return Failure(int(id), uri, "decode", bad.reason, bad.detail)
        if self.quarantine.policy.on_error == "raise":
            raise SampleError(
                f"sample {int(id)}, {uri}: {bad.detail}; fix the function, or pass"
                ' Feed(on_error="bad") to count such samples as bad'
            ) from bad.error
        return Failure(int(id), uri, "augment", bad.reason, bad.detail)

    def unforeseen(self, id: Any, error: Exception, stage: str) -> Failure:
        """The failure of a sample at which an unforeseen error was raised."""
        try:
            uri = self.source.uri(int(id))
        except Exception:  # it may be what raised
            uri = f"sample {int(id)}"
        return Failure(int(id), uri, stage, "internal", error_text(error))

    def _read_addresses(self, addresses: SampleLocations, task: _Task) -> Samples:
        """Read the first samples by native threads, or by the source if these cannot."""
        ids = task.ids
        bad = task.bad
        known_bad = self.quarantine.known_bad(ids)
        executor = self.executor
        some_known = bool(np.count_nonzero(known_bad))
        skip = known_bad if some_known else None
        names = partial(self._name, ids)
        samples = executor.read(addresses, self.max_bytes, task.batch.stop, skip, names)
        unread = [row for row in samples.unread if not known_bad[row]]
        size = 0
        step = executor.threads * _READ_AT_ONCE
        for k in range(0, len(unread), step):
            if size >= self.max_bytes:
                samples = samples.first(unread[k])
                break
            for row, entry in self._read_parallel(unread[k : k + step], task).items():
                executor.put(samples, row, entry)
                size += entry_bytes(entry)
        self.timeline.progress.count(samples.read_bytes + size)
        if some_known:
            bad.update(dict.fromkeys(np.flatnonzero(known_bad[: len(samples)]).tolist()))
        return samples

    def _regions(
        self, ids: np.ndarray, sizes: np.ndarray, bad: dict[int, Failure | None]
    ) -> tuple[np.ndarray | float, np.ndarray]:
        """Region of each image to use, whole pixels: top left corners and (height, width)."""
        boxes = self._optionals.boxes(ids)
        if boxes is None:
            return 0.0, sizes
        first, sizes, outside = parts(boxes, sizes)
        for row, detail in outside.items():
            bad.setdefault(row, self.failure(ids[row], DecodeFailure("corrupt", detail)))
        return first, sizes

    def _read(self, task: _Task) -> list[Any]:
        """Blobs of the first samples; in `bad` those without one.

        Reads a few at a time, so that it can stop early.
        """
        ids = task.ids
        bad = task.bad
        batch = task.batch
        source = self.source
        is_ahead = self.image in batch.ahead
        if not is_ahead and isinstance(source, BlockReader) and isinstance(source, Sharded):
            count = 1 + int(np.searchsorted(np.cumsum(source.sizes(ids[:-1])), self.max_bytes))
            if (held := source.hold(ids[:count])) is not None:
                units = np.searchsorted(source.bounds, ids[:count], side="right")
                return self._read_held(held, units, replace(task, ids=ids[:count]))
        known_bad = self.quarantine.known_bad(ids)
        step = _READ_AT_ONCE * (1 if is_ahead else self.executor.threads)
        blobs: list[Any] = []
        size = 0  # bytes
        while (
            len(blobs) < len(ids) and size < self.max_bytes and not (blobs and batch.stop.is_set())
        ):
            rows = range(len(blobs), min(len(blobs) + step, len(ids)))
            bad.update(dict.fromkeys(row for row in rows if known_bad[row]))
            good = [row for row in rows if not known_bad[row]]
            entries = self._read_parallel(good, task)
            size += sum(map(entry_bytes, entries.values()))
            blobs += map(entries.get, rows)
        self.timeline.progress.count(0 if isinstance(source, Arrays) else size)
        return blobs

    def _read_held(self, held: list[Pending], units: np.ndarray, task: _Task) -> list[Any]:
        """Blobs of samples whose units the source holds; each unit is read once."""
        known_bad = self.quarantine.known_bad(task.ids)
        task.read = lambda rows: [held[row].result() for row in rows]
        rows = [row for row in np.argsort(units, kind="stable").tolist() if not known_bad[row]]
        try:
            entries = self._read_parallel(rows, task)
        finally:
            for pending in held:
                pending.cancel()
        task.bad.update(dict.fromkeys(np.flatnonzero(known_bad).tolist()))
        self.timeline.progress.count(sum(map(entry_bytes, entries.values())))
        return [entries.get(row) for row in range(len(task.ids))]

    def _read_parallel(self, rows: list[int], task: _Task) -> dict[int, Any]:
        """Good entries by row; others are in `bad`, None if they were not read before the stop."""
        entries: dict[int, Any] = dict.fromkeys(rows)
        is_ahead = self.image in task.batch.ahead
        threads = 1 if is_ahead else self.executor.threads
        step = max(1, min(_READ_AT_ONCE, -(-len(rows) // threads)))
        groups = [rows[k : k + step] for k in range(0, len(rows), step)]
        calls = [partial(self._read_rows, group, task, entries) for group in groups]
        if calls and not is_ahead:
            self.executor.run_python(calls, task.batch.stop)
        else:
            for call in calls:
                call()
        for row in sorted(rows):
            if entries[row] is None or isinstance(entries[row], Failure):
                task.bad[row] = entries.pop(row)
        return entries

    def _read_rows(self, rows: list[int], task: _Task, by_row: dict[int, Any]) -> None:
        batch, here = task.batch, task.ids[rows].tolist()

        def reread(ids: list[int]) -> list[Any]:
            return self._checked(ids, self.read_now(ids, batch))

        with self.timeline.span("read", batch.number):
            try:
                with self.outages.patience():
                    entries = self._checked(here, task.read(rows))
                entries = self.outages.settle(here, entries, reread, batch.stop)
            except BaseException as error:  # raised again, whatever it is
                if ends_run(error):
                    batch.stop.set()  # other threads of this batch may wait for storage
                raise
        by_row.update(zip(rows, entries, strict=True))

    def read_now(self, ids: list[int], batch: PendingBatch) -> list[Any]:
        """Samples that were not requested ahead."""
        ahead = batch.ahead.get(self.image)
        if ahead is None:
            with self.outages.patience():
                return self.source.read(ids)
        return [ahead.take(ticket, batch.stop.is_set) for ticket in ahead.request(ids)]

    def _checked(self, ids: list[int], entries: list[Any]) -> list[Any]:
        if len(entries) != len(ids):
            raise TypeError(
                f"{type(self.source).__name__}.read({len(ids)} ids) gave {len(entries)} entries"
            )
        return [checked(self.source, id, entry) for id, entry in zip(ids, entries, strict=True)]


def checked(source: Any, id: int, entry: Any) -> Any:
    """The sample's bytes or pixels (height, width, channels), or else a Failure."""
    if isinstance(entry, (bytes, Failure)) and source.spec.encoded:
        return entry
    if isinstance(entry, Failure) or (not source.spec.encoded and _fits(source.spec, entry)):
        return entry
    if source.spec.encoded:
        with suppress(TypeError, ValueError):
            view = memoryview(entry)
            if view.format != "O":
                return bytes(view)
    wanted = "bytes" if source.spec.encoded else str(source.spec)
    got = (
        f"{entry.dtype}{list(entry.shape)}"
        if isinstance(entry, np.ndarray)
        else type(entry).__name__
    )
    detail = f"{type(source).__name__}.read gave {got}, expected {wanted}"
    return Failure(id, source.uri(id), "read", "corrupt", detail)


def entry_bytes(entry: Any) -> int:
    """Bytes of a good entry."""
    return getattr(entry, "nbytes", None) or len(entry)


def _fits(spec: Spec, entry: Any) -> bool:
    if (
        not isinstance(entry, np.ndarray)
        or entry.dtype != spec.dtype
        or entry.ndim != 3
        or not entry.size
    ):
        return False
    return all(side in (None, got) for side, got in zip(spec.shape, entry.shape, strict=True))
