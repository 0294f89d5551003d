"""Decodes several windows of a file in one pass."""

from __future__ import annotations

import numpy as np

from fastfeed.decode.base import DecodeEngine, DecodeFailure, Header, Request, Stop, dct_denominator
from fastfeed.decode.padding import decode_with_border
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.ops.base import Border
from fastfeed.ops.program.window import Windows

_PIXELS = PixelsEngine()


def decode_views(
    engine: DecodeEngine, request: Request, border: Border | None, out: np.ndarray, stop: Stop
) -> list[DecodeFailure | None]:
    """Decode several windows of each file; out: (n, views, height, width, channels).

    The request's windows are those of all views of the first file, then of the second, and so on.
    The border is drawn as by `decode_with_border`. The whole file is decoded once, shrunk as far as
    its finest window allows: DCT scaling makes that cheap for photographs.
    """
    views, results = out.shape[1], []
    for row, (blob, header) in enumerate(zip(request.blobs, request.headers, strict=True)):
        if stop.is_set():
            return [*results, *[None] * (len(request) - row)]
        windows = request.windows[slice(row * views, (row + 1) * views)]
        size, lengths = out.shape[2:4], windows.boxes[:, 2:].min(axis=0)
        by = dct_denominator((float(lengths[0]), float(lengths[1])), size, request.filter)
        height, width = -(-header.height // by), -(-header.width // by)
        decoded = np.empty((1, height, width, out.shape[4]), np.uint8)
        box, no = np.array([[0.0, 0.0, header.height, header.width]]), np.zeros((1, 2), bool)
        full = Windows(box, no, np.array([[height, width]], np.int64))
        bad = engine.decode(Request([blob], [header], full, request.filter), decoded, stop)[0]
        results.append(bad)
        if bad is None:
            unit = np.tile([height / header.height, width / header.width], 2)
            limits = None if windows.limits is None else windows.limits * unit
            scaled = Windows(windows.boxes * unit, windows.flips, windows.sizes, limits)
            headers = [Header(height, width, "array")] * views
            crops = Request([decoded[0]] * views, headers, scaled, request.filter)
            decode_with_border(_PIXELS, crops, border, out[row], stop)
    return results
