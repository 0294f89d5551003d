"""Opens JPEG 2000 for Pillow with only the boxes that decide pixels, and reads their colors.

Pillow fails on a damaged resolution, a short profile, and large boxes before the picture. It shows
colors of kinds that it does not know as if they were RGB.
"""

from __future__ import annotations

import io
from typing import Any

from PIL import Jpeg2KImagePlugin

from fastfeed.decode.formats.container import boxes

_SIGNATURE_BYTES = 12
# boxes within `jp2h` that decide pixels, next to `colr`
_HEADER = (
    b"ihdr",
    b"bpcc",
    b"pclr",
    b"cmap",
    b"cdef",
)
_PROFILED = (b"\2", b"\3")  # methods of a `colr` box
_METHODS = (b"\1", *_PROFILED)  # readers skip boxes of others
_TILE_OR_END = (0x90, 0xD9)  # second bytes of markers
_CMYK = 12
_SRGB = 16
_GRAY = 17
# 18: sYCC, of which Pillow makes sRGB
_NUMBERS = {
    _SRGB: (1, 13, True),
    _GRAY: (1, 13, True),
    18: (1, 13, True),
}
_WITHOUT_SIGNAL = (0, 15, _CMYK)  # the first two are black and white
_SPACES = {b"RGB ": _SRGB, b"GRAY": _GRAY, b"CMYK": _CMYK}
# ICC.1, table 19
_OTHER_SPACES = (
    b"XYZ ",
    b"Lab ",
    b"Luv ",
    b"YCbr",
    b"Yxy ",
    b"HSV ",
    b"HLS ",
    b"CMY ",
)


class Jpeg2000File(Jpeg2KImagePlugin.Jpeg2KImageFile):
    """The picture of a JPEG 2000 file.

    `info` has "icc_profile", or else "signal", (primaries, transfer, full range) as in
    `preprocess.pixels.color`, if that describes the colors.
    """

    def _open(self) -> None:
        assert self.fp is not None
        blob = self.fp.read()
        colors: dict[str, object] = {}
        if blob[4:8] == b"jP  ":
            blob, colors = _essential(blob)
        self.fp = io.BytesIO(blob)
        super()._open()
        self.info |= colors


def jpeg2000_header(blob: Any) -> None:
    """Read all that decides over the size of a JPEG 2000, to the first tile of its picture."""
    at = 0
    if blob[4:8] == b"jP  ":
        for kind, begin, end in boxes(blob, _SIGNATURE_BYTES, len(blob)):
            if kind == b"jp2c":
                at = begin
                break
            if kind in (b"ftyp", b"jp2h"):
                blob[begin:end]
    at += 2
    while len(head := blob[at : at + 4]) == 4 and head[1] not in _TILE_OR_END:
        end = at + 2 + int.from_bytes(head[2:], "big")
        blob[at:end]
        at = max(end, at + 4)


def _essential(blob: bytes) -> tuple[bytes, dict[str, object]]:
    """A file of the boxes that decide pixels (ISO/IEC 15444-1, annex I), and its colors."""
    at = _SIGNATURE_BYTES
    kept = [blob[:at]]
    colors: dict[str, object] = {}
    has_header = False
    for kind, begin, end in boxes(blob, at, len(blob)):
        if kind == b"jp2c":
            break
        if kind == b"jp2h" and not has_header:
            has_header = True
            header, colors = _header(blob[begin:end])
            kept.append(_box(kind, header))
        elif kind == b"ftyp":
            kept.append(blob[at:end])
        at = end
    kept.append(blob[at:])  # the picture, or a box that is cut off
    return b"".join(kept), colors


def _header(content: bytes) -> tuple[bytes, dict[str, object]]:
    at = 0
    kept = []
    colors: dict[str, object] = {}
    has_colors = False
    for kind, begin, end in boxes(content, 0, len(content)):
        at = end
        if kind in _HEADER:
            kept.append(_box(kind, content[begin:end]))
        elif kind == b"colr" and not has_colors and content[begin:end][:1] in _METHODS:
            has_colors = True
            number, colors = _colors(content[begin : begin + 1], content[begin + 3 : end])
            kept.append(_box(kind, b"\1\0\0" + number.to_bytes(4, "big")))
    kept.append(content[at:])
    return b"".join(kept), colors


def _colors(method: bytes, content: bytes) -> tuple[int, dict[str, object]]:
    """The number of the color space to decode (EnumCS), and the definition of its colors."""
    if method in _PROFILED:
        space = content[16:20]
        if space in _OTHER_SPACES:
            raise OSError(f"unsupported: a profile of {space.decode('ascii').strip()} colors")
        return _SPACES.get(space, _SRGB), {"icc_profile": content}
    number = int.from_bytes(content[:4], "big")
    if number in _NUMBERS:
        return number, {"signal": _NUMBERS[number]}
    if number not in _WITHOUT_SIGNAL:
        raise OSError(f"unsupported: colors of kind {number} (EnumCS of ISO/IEC 15444)")
    return number, {}


def _box(kind: bytes, content: bytes) -> bytes:
    return (8 + len(content)).to_bytes(4, "big") + kind + content
