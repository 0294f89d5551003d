"""What a photograph is known by: a hash of its bytes, and one of what it looks like."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

import numpy as np

from fastfeed.decode.base import Bad, Engine, Header, Request
from fastfeed.decode.native import NativeEngine, built
from fastfeed.decode.pillow import PillowEngine
from fastfeed.decode.router import RouterEngine
from fastfeed.ops.decode import Decode
from fastfeed.ops.fuse import Windows
from fastfeed.preprocess.work import NoRoom

__all__ = ["Eye", "Look", "dhash", "sha"]

ROWS, COLUMNS = 8, 9  # cells that are compared; each is the mean of _CELL x _CELL pixels of the reduced photograph
_CELL = 8
_LUMA = np.array([299, 587, 114], np.int64)  # BT.601, thousandths
_LEVEL = 1000 * _CELL * _CELL  # a gray level of 255, in sums over a cell
_TOLD, _FEWEST = 2, 20  # of 64 differences so many must be >= 2 levels: else noise decides most of the bits
_SAME = 4  # and so many must differ from the others: else any smooth gradient is like any other


@dataclass(frozen=True, slots=True)
class Look:
    """What one glance tells of a photograph."""

    height: int  # pixels, as displayed
    width: int
    dhash: int = 0  # 64 bits
    plain: bool = True  # too little is to be seen for the dHash to mean anything


def sha(blob: Any) -> np.ndarray:
    """The first 16 bytes of the SHA-256: uint64, shape (2,)."""
    return np.frombuffer(hashlib.sha256(blob).digest(), "<u8", 2)


def dhash(pixels: np.ndarray) -> tuple[int, bool]:
    """64 bits, row by row: is a cell brighter than the one on its left? And whether the photograph is too plain for it.

    pixels: uint8 (64, 72, 3), the photograph reduced with antialiasing. After Krawetz, "Kind of Like That" (2013).
    """
    gray = pixels.astype(np.int64) @ _LUMA
    cells = gray.reshape(ROWS, _CELL, COLUMNS, _CELL).sum(axis=(1, 3))
    steps = np.diff(cells, axis=1)
    bits = steps > 0
    ones = int(bits.sum())
    plain = int((abs(steps) >= _TOLD * _LEVEL).sum()) < _FEWEST or not _SAME <= ones <= bits.size - _SAME
    return int.from_bytes(np.packbits(bits).tobytes(), "big"), plain


class Eye:
    """Looks at files, upright and on white, reduced while they are decoded: JPEGs by the kernel, others by Pillow."""

    def __init__(self, op: Decode) -> None:
        pillow = PillowEngine(op)
        self._engine: Engine = RouterEngine(NativeEngine(op), pillow) if built() else pillow

    def look(self, blob: bytes, pixels: bool, room: Callable[[int], AbstractContextManager[None]]) -> Look | Bad:
        """Its size, and with `pixels` its dHash, which takes memory out of `room`."""
        header = self._engine.probe([blob])[0]
        if isinstance(header, Bad):
            return header
        seen = Look(header.height, header.width)
        if not pixels:
            return seen
        try:
            with room(_need(blob, header)):
                small = self._reduced(blob, header)
        except (NoRoom, MemoryError) as error:
            return Bad("oom", f"{error}")
        if isinstance(small, Bad):
            return small
        bits, plain = dhash(small)
        return replace(seen, dhash=bits, plain=plain)

    def _reduced(self, blob: bytes, header: Header) -> np.ndarray | Bad:
        height, width = ROWS * _CELL, COLUMNS * _CELL
        box = np.array([[0, 0, header.height, header.width]], np.float64)
        windows = Windows(box, np.zeros((1, 2), bool), np.array([[height, width]], np.int64))
        out = np.empty((1, height, width, 3), np.uint8)
        bad = self._engine.decode(Request([blob], [header], windows, "box"), out, Event())[0]
        return bad or out[0]


def _need(blob: bytes, header: Header) -> int:
    """Peak bytes: rows alone of baseline JPEGs, all coefficients of progressive ones, all pixels of other formats."""
    pixels = header.height * header.width
    if header.format == "JPEG" and header.handle is None:
        return (6 * pixels if b"\xff\xc2" in blob[: 1 << 20] else 256 * header.width) + (4 << 20)
    return 12 * pixels
