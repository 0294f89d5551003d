"""Each sample to the engine that does it best: JPEGs to the kernel, everything it declines to Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastfeed.decode.base import DECLINED, Bad, DecodeEngine, Header, Request, Stop

__all__ = ["RouterEngine"]


class RouterEngine:
    """Asks `first`; what it declines, by header or while decoding, goes to `other`."""

    def __init__(self, first: DecodeEngine, other: DecodeEngine) -> None:
        self._first, self._other = first, other
        self.name = f"{first.name} (JPEG), {other.name} (the rest)"

    def probe(self, blobs: Sequence[Any]) -> list[Header | Bad]:
        found = self._first.probe(blobs)
        declined = [i for i, h in enumerate(found) if isinstance(h, Bad) and h.reason in DECLINED]
        for i, header in zip(declined, self._other.probe([blobs[i] for i in declined]), strict=True):
            found[i] = header
        return found

    def decode(self, request: Request, out: np.ndarray, stop: Stop) -> list[Bad | None]:
        done: list[Bad | None] = [None] * len(request)
        mine = [i for i, header in enumerate(request.headers) if header.handle is None]
        if len(mine) == len(request):
            done = self._first.decode(request, out, stop)
        else:
            self._some(self._first, request, mine, out, stop, done)
        others = [i for i, header in enumerate(request.headers) if header.handle is not None]
        self._some(self._other, request, others, out, stop, done)
        declined = [i for i in mine if (why := done[i]) is not None and why.reason in DECLINED]
        if declined:  # found out beyond the header: four components, a color space of its own
            headers = list(request.headers)
            for i, header in zip(declined, self._other.probe([request.blobs[i] for i in declined]), strict=True):
                done[i] = header if isinstance(header, Bad) else None
                headers[i] = headers[i] if isinstance(header, Bad) else header
            good = [i for i in declined if done[i] is None]
            self._some(self._other, replace(request, headers=headers), good, out, stop, done)
        return done

    @staticmethod
    def _some(
        engine: DecodeEngine, request: Request, rows: list[int], out: np.ndarray, stop: Stop, done: list[Bad | None]
    ) -> None:
        if not rows:
            return
        part = np.empty((len(rows), *out.shape[1:]), out.dtype)
        why = engine.decode(request[rows], part, stop)
        out[rows] = part
        for i, bad in zip(rows, why, strict=True):
            done[i] = bad
