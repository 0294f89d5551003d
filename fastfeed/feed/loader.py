"""Samples on their way to pixels: read, looked at, and the part of each that counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.decode.base import Bad, Engine, Header
from fastfeed.faults import Failure
from fastfeed.feed.quarantine import Quarantine
from fastfeed.ops.program.program import Program, Work
from fastfeed.ops.source_crop import parts
from fastfeed.runtime.thread_pool import CancelToken
from fastfeed.sources.base import Annotated, Source

__all__ = ["LoadedSamples", "Loader", "Read"]

_BLACK = Header(1, 1, "array")
_READ_AT_ONCE = 4  # samples per call of source.read

Read = Callable[[list[int]], list[Any]]  # rows -> bytes or Failure each


@dataclass(slots=True)
class LoadedSamples:
    """Samples whose size is known, all of equal length; `bad` ones have no blob."""

    ids: np.ndarray
    blobs: list[Any]
    headers: list[Header]
    corners: np.ndarray | float  # of the parts that count, top and left, whole pixels
    sizes: np.ndarray  # int64 (n, 2): height, width of these parts
    bad: dict[int, Failure | None]  # row -> why; None for a sample that was known to be bad

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
    """Reads up to so many bytes at once; per-sample results, never an exception for what a sample holds."""

    def __init__(self, source: Source, engine: Engine, quarantine: Quarantine, most: int) -> None:
        self._source, self._engine, self._quarantine, self._most = source, engine, quarantine, most
        self._said = source if isinstance(source, Annotated) else None

    def load(self, ids: np.ndarray, stop: CancelToken, read: Read) -> LoadedSamples:
        """The first of these ids, up to the limit of bytes."""
        bad: dict[int, Failure | None] = {}
        blobs = self._read(ids, bad, stop, read)
        ids = ids[: len(blobs)]
        headers = [_BLACK] * len(ids)
        there = [row for row in range(len(ids)) if row not in bad]
        for row, header in zip(there, self._engine.probe([blobs[row] for row in there]), strict=True):
            if isinstance(header, Bad):
                bad[row] = self.failure(ids[row], header)
            else:
                headers[row] = header
        sizes = np.array([(h.height, h.width) for h in headers], np.int64).reshape(-1, 2)
        corners, sizes = self._parts(ids, sizes, bad)
        return LoadedSamples(ids, blobs, headers, corners, sizes, bad)

    def failure(self, id: Any, why: Bad) -> Failure:
        """As the quarantine lists it."""
        stage = "augment" if why.reason == "op_failed" else "decode"
        return Failure(int(id), self._source.uri(int(id)), stage, why.reason, why.detail)

    def _parts(
        self, ids: np.ndarray, sizes: np.ndarray, bad: dict[int, Failure | None]
    ) -> tuple[np.ndarray | float, np.ndarray]:
        """The part of each image that counts, in whole pixels: its top left corners and (height, width)."""
        boxes = self._said.boxes(ids) if self._said is not None else None
        if boxes is None:
            return 0.0, sizes
        first, sizes, outside = parts(boxes, sizes)
        for row, why in outside.items():
            bad.setdefault(row, self.failure(ids[row], Bad("corrupt", why)))
        return first, sizes

    def _read(self, ids: np.ndarray, bad: dict[int, Failure | None], stop: CancelToken, read: Read) -> list[Any]:
        """Blobs of the first samples; in `bad` those without one. A few at a time, so that a stop is seen soon."""
        known = self._quarantine.known(ids)
        blobs: list[Any] = []
        held = 0
        while len(blobs) < len(ids) and held < self._most and not (blobs and stop.is_set()):
            rows = range(len(blobs), min(len(blobs) + _READ_AT_ONCE, len(ids)))
            wanted = [row for row in rows if not known[row]]
            found = read(wanted) if wanted else []
            if len(found) != len(wanted):
                raise TypeError(f"{type(self._source).__name__}.read({len(wanted)} ids) gave {len(found)} entries")
            there = dict(zip(wanted, found, strict=True))
            for row in rows:
                blob = there.get(row)
                if blob is None or isinstance(blob, Failure):
                    bad[row], blob = blob, None
                else:
                    held += len(blob) if isinstance(blob, bytes) else 0
                blobs.append(blob)
        return blobs
