"""Several windows of each file, which is decoded once."""

from __future__ import annotations

import numpy as np

from fastfeed.decode.base import Bad, Engine, Header, Request, Stop, dct_denominator
from fastfeed.decode.padding import decode
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.ops.base import Border
from fastfeed.ops.program.window import Windows

__all__ = ["decode_several"]

_PIXELS = PixelsEngine()


def decode_several(
    engine: Engine, request: Request, border: Border | None, out: np.ndarray, stop: Stop
) -> list[Bad | None]:
    """As `decode`; out: (n, views, height, width, channels), the request's windows are those of all views in turn.

    A file is decoded whole, shrunk by what its finest window allows: DCT scaling makes that cheap for photographs.
    """
    views, done = out.shape[1], []
    for row, (blob, header) in enumerate(zip(request.blobs, request.headers, strict=True)):
        if stop.is_set():
            return [*done, *[None] * (len(request) - row)]
        windows = request.windows[slice(row * views, (row + 1) * views)]
        size, lengths = out.shape[2:4], windows.boxes[:, 2:].min(axis=0)
        by = dct_denominator((float(lengths[0]), float(lengths[1])), size, request.filter)
        height, width = -(-header.height // by), -(-header.width // by)
        whole = np.empty((1, height, width, out.shape[4]), np.uint8)
        box, no = np.array([[0.0, 0.0, header.height, header.width]]), np.zeros((1, 2), bool)
        one = Windows(box, no, np.array([[height, width]], np.int64))
        bad = engine.decode(Request([blob], [header], one, request.filter), whole, stop)[0]
        done.append(bad)
        if bad is None:
            unit = np.tile([height / header.height, width / header.width], 2)
            limits = None if windows.limits is None else windows.limits * unit
            cut = Windows(windows.boxes * unit, windows.flips, windows.sizes, limits)
            made = Header(height, width, "array")
            decode(_PIXELS, Request([whole[0]] * views, [made] * views, cut, request.filter), border, out[row], stop)
    return done
