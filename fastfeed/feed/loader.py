"""Reads samples, probes their size, and finds the region of each that the ops use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.decode.base import Bad, DecodeEngine, Header
from fastfeed.faults import Failure
from fastfeed.feed.quarantine import Quarantine
from fastfeed.ops.program.program import Program, Work
from fastfeed.ops.source_crop import parts
from fastfeed.runtime.thread_pool import CancelToken
from fastfeed.sources.base import Annotated, Source

__all__ = ["LoadedSamples", "Loader", "ReadRows"]

_BLACK = Header(1, 1, "array")
_READ_AT_ONCE = 4  # samples per call of source.read

ReadRows = Callable[[list[int]], list[Any]]  # rows -> bytes or Failure each


@dataclass(slots=True)
class LoadedSamples:
    """Samples whose size is known, all of equal length; `bad` ones have no blob."""

    ids: np.ndarray
    blobs: list[Any]
    headers: list[Header]
    corners: np.ndarray | float  # of the regions to use, top and left, whole pixels
    sizes: np.ndarray  # int64 (n, 2): height, width of these regions
    bad: dict[int, Failure | None]  # row -> its failure; None for a sample that was known to be bad

    def work(self, program: Program, draws: list[np.ndarray]) -> Work:
        """What a program does to these samples."""
        work = program.work([u[: len(self.ids)] for u in draws], self.sizes)
        corners = self.corners
        if isinstance(corners, np.ndarray) and work.views > 1:
            corners = np.repeat(corners, work.views, axis=0)
        work.windows.boxes[:, :2] += corners
        if work.windows.limits is not None:
            work.windows.limits[:, :2] += corners
        return work


class Loader:
    """Reads at most `max_bytes` at once. A bad sample is a result, never an exception."""

    def __init__(self, source: Source, engine: DecodeEngine, quarantine: Quarantine, max_bytes: int) -> None:
        self._source, self._engine, self._quarantine, self._max_bytes = source, engine, quarantine, max_bytes
        self._annotated = source if isinstance(source, Annotated) else None

    def load(self, ids: np.ndarray, stop: CancelToken, read: ReadRows) -> LoadedSamples:
        """The first of these ids, up to the limit of bytes."""
        bad: dict[int, Failure | None] = {}
        blobs = self._read(ids, bad, stop, read)
        ids = ids[: len(blobs)]
        headers = [_BLACK] * len(ids)
        good = [row for row in range(len(ids)) if row not in bad]
        for row, header in zip(good, self._engine.probe([blobs[row] for row in good]), strict=True):
            if isinstance(header, Bad):
                bad[row] = self.failure(ids[row], header)
            else:
                headers[row] = header
        sizes = np.array([(h.height, h.width) for h in headers], np.int64).reshape(-1, 2)
        corners, sizes = self._regions(ids, sizes, bad)
        return LoadedSamples(ids, blobs, headers, corners, sizes, bad)

    def failure(self, id: Any, bad: Bad) -> Failure:
        """As the quarantine lists it."""
        stage = "augment" if bad.reason == "op_failed" else "decode"
        return Failure(int(id), self._source.uri(int(id)), stage, bad.reason, bad.detail)

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

    def _read(self, ids: np.ndarray, bad: dict[int, Failure | None], stop: CancelToken, read: ReadRows) -> list[Any]:
        """Blobs of the first samples; in `bad` those without one. Reads a few at a time, so that it can stop early."""
        known_bad = self._quarantine.known_bad(ids)
        blobs: list[Any] = []
        size = 0  # bytes
        while len(blobs) < len(ids) and size < self._max_bytes and not (blobs and stop.is_set()):
            rows = range(len(blobs), min(len(blobs) + _READ_AT_ONCE, len(ids)))
            unread = [row for row in rows if not known_bad[row]]
            entries = read(unread) if unread else []
            if len(entries) != len(unread):
                raise TypeError(f"{type(self._source).__name__}.read({len(unread)} ids) gave {len(entries)} entries")
            by_row = dict(zip(unread, entries, strict=True))
            for row in rows:
                blob = by_row.get(row)
                if blob is None or isinstance(blob, Failure):
                    bad[row], blob = blob, None
                else:
                    size += len(blob) if isinstance(blob, bytes) else 0
                blobs.append(blob)
        return blobs
