"""Each sample to the engine that does it best: JPEGs to the kernel, everything it declines to Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfeed.decode.base import Bad, Engine, Header, Stop
from fastfeed.ops.fuse import Windows

__all__ = ["RouterEngine"]

_DECLINED = ("unsupported_format", "not_image")  # not the kernel's to judge


class RouterEngine:
    """Asks `first`; what it declines, by header or while decoding, goes to `other`."""

    def __init__(self, first: Engine, other: Engine) -> None:
        self._first, self._other = first, other
        self.name = f"{first.name} (JPEG), {other.name} (the rest)"

    def probe(self, blobs: Sequence[Any]) -> list[Header | Bad]:
        found = self._first.probe(blobs)
        declined = [i for i, h in enumerate(found) if isinstance(h, Bad) and h.reason in _DECLINED]
        for i, header in zip(declined, self._other.probe([blobs[i] for i in declined]), strict=True):
            found[i] = header
        return found

    def decode(
        self,
        blobs: Sequence[Any],
        headers: Sequence[Header],
        windows: Windows,
        filter: str,
        out: np.ndarray,
        stop: Stop,
    ) -> list[Bad | None]:
        mine = [i for i, header in enumerate(headers) if header.handle is None]
        done: list[Bad | None] = [None] * len(blobs)
        if len(mine) == len(blobs):
            done = self._first.decode(blobs, headers, windows, filter, out, stop)
        else:
            self._some(self._first, mine, blobs, headers, windows, filter, out, stop, done)
        others = [i for i, h in enumerate(headers) if h.handle is not None]
        self._some(self._other, others, blobs, headers, windows, filter, out, stop, done)
        declined = [i for i in mine if (why := done[i]) is not None and why.reason in _DECLINED]
        if declined:  # found out beyond the header: four components, a color space of its own
            again = self._other.probe([blobs[i] for i in declined])
            for i, header in zip(declined, again, strict=True):
                done[i] = header if isinstance(header, Bad) else None
            good = {i: h for i, h in zip(declined, again, strict=True) if isinstance(h, Header)}
            fresh = [good.get(i, header) for i, header in enumerate(headers)]
            self._some(self._other, list(good), blobs, fresh, windows, filter, out, stop, done)
        return done

    @staticmethod
    def _some(
        engine: Engine,
        rows: list[int],
        blobs: Sequence[Any],
        headers: Sequence[Header],
        windows: Windows,
        filter: str,
        out: np.ndarray,
        stop: Stop,
        done: list[Bad | None],
    ) -> None:
        if not rows:
            return
        part = np.empty((len(rows), *out.shape[1:]), out.dtype)
        why = engine.decode([blobs[i] for i in rows], [headers[i] for i in rows], windows[rows], filter, part, stop)
        out[rows] = part
        for i, bad in zip(rows, why, strict=True):
            done[i] = bad
