"""Opens JPEGs for Pillow, which fails on some segments that are no part of the pixels."""

from __future__ import annotations

import io
import struct
from typing import Any

from PIL import JpegImagePlugin

from fastfeed.decode.pillow_globals import with_globals

__all__ = ["JpegFile"]

_ICC_HEAD = 14  # bytes of a profile's segment before its content


def _read_application_data(image: Any, marker: int) -> None:
    """As Pillow does, but what is too short, such as half a JFIF header, is skipped, as by libjpeg."""
    try:
        JpegImagePlugin.APP(image, marker)
    except (IndexError, struct.error):
        if not image.fp.read(1):  # the file ends here
            raise
        image.fp.seek(-1, io.SEEK_CUR)
    if image.icclist and len(image.icclist[-1]) < _ICC_HEAD:
        image.icclist.pop()


class JpegFile(JpegImagePlugin.JpegImageFile):
    """The first image of a JPEG."""

    _open = with_globals(
        JpegImagePlugin.JpegImageFile._open,
        MARKER={
            number: (name, what, _read_application_data if read is JpegImagePlugin.APP else read)
            for number, (name, what, read) in JpegImagePlugin.MARKER.items()
        },
    )
