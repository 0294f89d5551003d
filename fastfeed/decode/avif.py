"""Opens AVIF photographs with one thread each: there are as many images at a time as threads already."""

from __future__ import annotations

from PIL import AvifImagePlugin

from fastfeed.decode.pillow_globals import with_globals

__all__ = ["AvifFile"]


def _max_threads() -> int:
    return AvifImagePlugin.DEFAULT_MAX_THREADS or 1  # Pillow's default is a thread per core


class AvifFile(AvifImagePlugin.AvifImageFile):
    """The first frame of an AVIF file."""

    _open = with_globals(AvifImagePlugin.AvifImageFile._open, _get_default_max_threads=_max_threads)
