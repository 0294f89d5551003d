"""Routes files to the native extension, and those that it declines to Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastfeed.decode.base import DECLINED, DecodeEngine, DecodeFailure, Header, Request, Stop
from fastfeed.runtime.extension import formats


class RouterEngine:
    """Asks `first`; files that it declines, by header or while decoding, go to `other`."""

    def __init__(self, first: DecodeEngine, other: DecodeEngine) -> None:
        self._first = first
        self.other = other
        self.name = f"{first.name} ({', '.join(formats())}), {other.name} (the rest)"

    def probe(self, blobs: Sequence[Any]) -> list[Header | DecodeFailure]:
        headers = self._first.probe(blobs)
        declined = [
            i
            for i, h in enumerate(headers)
            if isinstance(h, DecodeFailure) and h.reason in DECLINED
        ]
        for i, header in zip(declined, self.other.probe([blobs[i] for i in declined]), strict=True):
            headers[i] = header
        for i, header in enumerate(headers):
            if isinstance(header, DecodeFailure) and header.reason == "bomb":  # which limit it met
                again = self.other.probe([blobs[i]])[0]
                headers[i] = again if isinstance(again, DecodeFailure) else header
        return headers

    def decode(self, request: Request, out: np.ndarray, stop: Stop) -> list[DecodeFailure | None]:
        results: list[DecodeFailure | None] = [None] * len(request)
        first_rows = [i for i, header in enumerate(request.headers) if header.handle is None]
        if len(first_rows) == len(request):
            results = self._first.decode(request, out, stop)
        else:
            self._some(self._first, request, first_rows, out, stop, results)
        others = [i for i, header in enumerate(request.headers) if header.handle is not None]
        self._some(self.other, request, others, out, stop, results)
        declined = [
            i for i in first_rows if (bad := results[i]) is not None and bad.reason in DECLINED
        ]
        if declined:  # discovered only after the header: four components, a custom color space
            headers = list(request.headers)
            for i, header in zip(
                declined, self.other.probe([request.blobs[i] for i in declined]), strict=True
            ):
                results[i] = header if isinstance(header, DecodeFailure) else None
                headers[i] = headers[i] if isinstance(header, DecodeFailure) else header
            good = [i for i in declined if results[i] is None]
            self._some(self.other, replace(request, headers=headers), good, out, stop, results)
        return results

    @staticmethod
    def _some(
        engine: DecodeEngine,
        request: Request,
        rows: list[int],
        out: np.ndarray,
        stop: Stop,
        results: list[DecodeFailure | None],
    ) -> None:
        if not rows:
            return
        part = np.empty((len(rows), *out.shape[1:]), out.dtype)
        failures = engine.decode(request[rows], part, stop)
        out[rows] = part
        for i, bad in zip(rows, failures, strict=True):
            results[i] = bad
