"""Opens AVIF photographs with one thread each: there are as many images at a time as threads already."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from PIL import AvifImagePlugin

__all__ = ["AvifFile"]


def _max_threads() -> int:
    return AvifImagePlugin.DEFAULT_MAX_THREADS or 1  # Pillow's default is a thread per core


def _with_one_thread(method: Any) -> Any:
    """The method, for which Pillow's default is one thread. Nothing of Pillow is changed."""
    names = {**vars(AvifImagePlugin), "_get_default_max_threads": _max_threads}
    return FunctionType(method.__code__, names, method.__name__, method.__defaults__, method.__closure__)


class AvifFile(AvifImagePlugin.AvifImageFile):
    """The first frame of an AVIF file."""

    _open = _with_one_thread(AvifImagePlugin.AvifImageFile._open)
