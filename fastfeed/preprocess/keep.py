"""Which files may be passed on as they are: those in which every reader sees what it would see in a new one."""

from __future__ import annotations

from fastfeed.decode.base import Bad
from fastfeed.decode.sniff import png_intact
from fastfeed.preprocess.raster import Look

__all__ = ["keepable", "whole"]


def keepable(blob: bytes, seen: Look, image: str) -> bool:
    """Whether the headers speak for passing a file on as `image` (of recipe.IMAGES). Its pixels are another question."""
    return False


def whole(blob: bytes, seen: Look) -> Bad | None:
    """Decode all pixels, and say what was wrong with them."""
    return None if png_intact(blob) else Bad("corrupt")
