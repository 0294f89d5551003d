"""Files through a decoder: the native extension, Pillow, or both as feeds have them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastfeed.decode import (
    DecodeEngine,
    DecodeFailure,
    Header,
    NativeEngine,
    PillowEngine,
    PixelsEngine,
    Request,
    Stop,
)
from fastfeed.decode.base import DECLINED
from fastfeed.ops import Decode
from fastfeed.ops.program.compile import Program, Windows

MATTE = (10, 130, 250)
Box = tuple[float, float, float, float]


class Routed:
    """The native extension, and Pillow for what it declines."""

    name = "routed"

    def __init__(self, op: Decode) -> None:
        self._native, self._pillow = NativeEngine(op), PillowEngine(op)

    def probe(self, blobs: Sequence[Any]) -> list[Header | DecodeFailure]:
        headers = self._native.probe(blobs)
        for row, bad in enumerate(headers):
            if isinstance(bad, DecodeFailure) and bad.reason in (*DECLINED, "bomb"):
                (other,) = self._pillow.probe([blobs[row]])
                is_bomb = bad.reason == "bomb" and isinstance(other, Header)
                headers[row] = bad if is_bomb else other
        return headers

    def decode(self, request: Request, out: np.ndarray, stop: Stop) -> list[DecodeFailure | None]:
        results: list[DecodeFailure | None] = []
        for row, header in enumerate(request.headers):
            engine = self._native if header.handle is None else self._pillow
            one, target = request[[row]], out[row : row + 1]
            (bad,) = engine.decode(one, target, stop)
            if bad is not None and header.handle is None and bad.reason in DECLINED:
                # discovered only after the header
                (bad,) = self._pillow.probe(one.blobs)
                if isinstance(bad, Header):
                    (bad,) = self._pillow.decode(replace(one, headers=[bad]), target, stop)
            results.append(bad)
        return results


def engine_for(program: Program, decode: str = "auto") -> DecodeEngine:
    """An engine that decodes alone what the feed of a program does on its threads."""
    if program.decode is None:
        return PixelsEngine(program.pixels.dtype)
    only_pillow = decode == "pillow" or not program.pixels.has_kernel
    return (PillowEngine if only_pillow else Routed)(program.decode)


def run(
    engine: DecodeEngine,
    blob: bytes,
    box: Box | None = None,
    size: tuple[int, int] | None = None,
    filter: str = "bilinear",
    flip: tuple[bool, bool] = (False, False),
) -> np.ndarray | DecodeFailure:
    """Pixels, of the whole image and unscaled by default, or the failure of whichever call refused
    it.
    """
    (header,) = engine.probe([blob])
    if isinstance(header, DecodeFailure):
        return header
    box = (0, 0, header.height, header.width) if box is None else box
    size = (int(box[2]), int(box[3])) if size is None else size
    out = np.full((1, *size, 3), 99, np.uint8)
    windows = Windows(np.array([box], float), np.array([flip]), np.array([size]))
    (bad,) = engine.decode(Request([blob], [header], windows, filter), out, threading.Event())
    if bad is not None:
        assert not out.any()
        return bad
    return out[0]


def native(blob: bytes, *arguments, **options) -> np.ndarray | DecodeFailure:
    return run(NativeEngine(Decode(MATTE)), blob, *arguments, **options)


def by_pillow(blob: bytes, *arguments, **options) -> np.ndarray | DecodeFailure:
    return run(PillowEngine(Decode(MATTE)), blob, *arguments, **options)


def routed(blob: bytes, *arguments, **options) -> np.ndarray | DecodeFailure:
    return run(Routed(Decode(MATTE)), blob, *arguments, **options)


def same(one: np.ndarray | DecodeFailure, other: np.ndarray | DecodeFailure) -> bool:
    """The same pixels, or the same verdict."""
    if isinstance(one, DecodeFailure) or isinstance(other, DecodeFailure):
        return (
            one == other
            if isinstance(one, DecodeFailure) and isinstance(other, DecodeFailure)
            else False
        )
    return np.array_equal(one, other)


def verdict(result: np.ndarray | DecodeFailure) -> DecodeFailure | str:
    """For messages."""
    return result if isinstance(result, DecodeFailure) else "sound"
