"""Opens JPEGs for Pillow, which fails on some harmless segments and shows damaged data."""

from __future__ import annotations

import io
import struct
from typing import Any

from PIL import JpegImagePlugin

from fastfeed.decode.pillow_globals import with_globals
from fastfeed.runtime.extension import extension, is_built

_ICC_HEAD = 14  # bytes of a profile's segment before its content
# by status of the native extension
_FAILURES = {
    1: "truncated: the file ends before the image does",
    2: "damaged pixel data",
}
_NO_MEMORY = 7  # another one


def check_jpeg(blob: bytes) -> None:
    """Raise OSError if libjpeg warns of damage, which Pillow ignores.

    Without the native extension nothing is checked.
    """
    status = extension().check_jpeg(blob) if is_built() else 0
    if status == _NO_MEMORY:
        raise MemoryError("the system has no more memory")
    if status in _FAILURES:
        raise OSError(_FAILURES[status])


def _read_application_data(image: Any, marker: int) -> None:
    """Read as Pillow does, but skip data that is too short, such as half a JFIF header.

    libjpeg skips it as well.
    """
    try:
        JpegImagePlugin.APP(image, marker)
    except (IndexError, struct.error):
        if not image.fp.read(1):  # the file ends here
            raise
        image.fp.seek(-1, io.SEEK_CUR)
    if image.icclist and len(image.icclist[-1]) < _ICC_HEAD:
        image.icclist.pop()


class JpegFile(JpegImagePlugin.JpegImageFile):
    """The first image of a JPEG.

    It is checked before it is loaded.
    """

    _open = with_globals(
        JpegImagePlugin.JpegImageFile._open,
        MARKER={
            number: (name, what, _read_application_data if read is JpegImagePlugin.APP else read)
            for number, (name, what, read) in JpegImagePlugin.MARKER.items()
        },
    )

    def load(self) -> Any:
        if self.tile:
            assert self.fp is not None
            self.fp.seek(0)
            check_jpeg(self.fp.read())
        return super().load()
