"""Bytes -> pixels, one result per sample. `engine_for` picks who does it."""

from __future__ import annotations

from fastfeed.decode.base import Bad, Engine, Header, Stop
from fastfeed.decode.pillow import PillowEngine
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.ops.fuse import Program

__all__ = ["Bad", "Engine", "Header", "PillowEngine", "PixelsEngine", "Stop", "engine_for"]


def engine_for(program: Program) -> Engine:
    """Encoded files go through Pillow; arrays need no decoding."""
    return PillowEngine(program.decode) if program.decode is not None else PixelsEngine()
