"""Decodes bytes to pixels, one result per sample. `engine_for` selects the decoder."""

from __future__ import annotations

from fastfeed.decode.base import DecodeEngine, DecodeFailure, Header, Request, Stop
from fastfeed.decode.native import NativeEngine, is_built
from fastfeed.decode.pillow import PillowEngine
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.decode.recode import Recoder
from fastfeed.decode.router import RouterEngine
from fastfeed.ops.program.compile import Program

__all__ = [
    "DecodeEngine",
    "DecodeFailure",
    "Header",
    "NativeEngine",
    "PillowEngine",
    "PixelsEngine",
    "Recoder",
    "Request",
    "Stop",
    "engine_for",
]


def engine_for(program: Program, decode: str = "auto") -> DecodeEngine:
    """The engine for files: the native extension where it is built ("auto", "native"), and Pillow.

    Arrays need no decoding, and native code has no kernels for more than bytes and for alpha.
    """
    if program.decode is None:
        return PixelsEngine(program.pixels.dtype)
    pillow = PillowEngine(program.decode)
    if decode == "pillow" or not program.pixels.has_kernel or (decode == "auto" and not is_built()):
        return pillow
    return RouterEngine(NativeEngine(program.decode), pillow)
