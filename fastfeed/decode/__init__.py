"""Decodes bytes to pixels, one result per sample; for feeds and transforms in `executor`."""

from __future__ import annotations

from fastfeed.decode.base import DecodeEngine, DecodeFailure, Header, Request, Stop
from fastfeed.decode.native import NativeEngine
from fastfeed.decode.pillow import PillowEngine
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.decode.recode import Recoder

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
]
