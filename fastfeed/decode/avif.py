"""Opens AVIF photographs with one thread each: there are as many images at a time as threads already.

libavif hands over pixels as they are coded. The clean aperture is cut out here, before the turn that `exif` reads; the
container's colors are handed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from types import FunctionType
from typing import Any

from PIL import AvifImagePlugin, ImageFile

__all__ = ["AvifFile", "primary_properties"]

Property = tuple[bytes, bytes]  # kind and content of a box
Part = tuple[int, int, int, int]  # left, top, width, height, in pixels


def _max_threads() -> int:
    return AvifImagePlugin.DEFAULT_MAX_THREADS or 1  # Pillow's default is a thread per core


def _with_one_thread(method: Any) -> Any:
    """The method, for which Pillow's default is one thread. Nothing of Pillow is changed."""
    names = {**vars(AvifImagePlugin), "_get_default_max_threads": _max_threads}
    return FunctionType(method.__code__, names, method.__name__, method.__defaults__, method.__closure__)


class AvifFile(AvifImagePlugin.AvifImageFile):
    """The first frame of an AVIF file, cut to its clean aperture.

    `info` has "signal", (primaries, transfer, full range) as in `preprocess.pixels.signals`, if that describes the
    colors.
    """

    coded_pixels = 0  # before cutting

    _open_whole = _with_one_thread(AvifImagePlugin.AvifImageFile._open)

    def _open(self) -> None:
        assert self.fp is not None
        blob = self.fp.read()
        self.fp.seek(0)
        self._open_whole()
        width, height = self.size
        self.coded_pixels = width * height
        for kind, content in primary_properties(blob):
            if kind == b"clap" and (part := _clean_aperture(content, (width, height))):
                self._cut(part)
            elif kind == b"colr" and content[:4] == b"nclx" and len(content) >= 8 and "icc_profile" not in self.info:
                primaries, transfer = (int.from_bytes(content[at : at + 2], "big") for at in (4, 6))
                self.info["signal"] = primaries, transfer, True  # libavif has applied matrix and range

    def load_seek(self, pos: int) -> None:
        """Go to where the aperture begins; Pillow's own stays at the beginning."""
        assert self.fp is not None
        self.fp.seek(pos)

    def _cut(self, part: Part) -> None:
        left, top, *size = part
        samples = len(self.getbands())
        stride = samples * self.width
        self._size = (size[0], size[1])
        place = (0, 0, *self._size)
        self.tile = [ImageFile._Tile("raw", place, top * stride + left * samples, (self.mode, stride, 1))]


def primary_properties(blob: bytes) -> list[Property]:
    """Properties of an AVIF's primary image, in the order of its container (ISO/IEC 23008-12, 9.3)."""
    meta = next(((begin + 4, end) for kind, begin, end in _boxes(blob, 0, len(blob)) if kind == b"meta"), (0, 0))
    primary, properties, associations = 0, list[Property](), list[bytes]()
    for kind, begin, end in _boxes(blob, *meta):
        if kind == b"pitm":
            primary = int.from_bytes(blob[begin + 4 : begin + (8 if blob[begin] else 6)], "big")
        elif kind == b"iprp":
            for inner, first, last in _boxes(blob, begin, end):
                if inner == b"ipco":
                    properties = [(name, blob[at:stop]) for name, at, stop in _boxes(blob, first, last)]
                elif inner == b"ipma":
                    associations.append(blob[first:last])
    numbers = (number for box in associations for item, number in _associated(box) if item == primary)
    return [properties[number - 1] for number in numbers if 0 < number <= len(properties)]


def _associated(box: bytes) -> Iterator[tuple[int, int]]:
    """Yield item and number of property from an `ipma` box."""
    item_bytes, number_bytes = 4 if box[:1] > b"\0" else 2, 1 + (int.from_bytes(box[3:4], "big") & 1)
    at = 8
    while at + item_bytes < len(box):
        item, count = int.from_bytes(box[at : at + item_bytes], "big"), box[at + item_bytes]
        at += item_bytes + 1
        for first in range(at, at + count * number_bytes, number_bytes):
            number = int.from_bytes(box[first : first + number_bytes], "big")
            yield item, number & ((1 << (8 * number_bytes - 1)) - 1)  # the upper bit says whether it is essential
        at += count * number_bytes


def _boxes(blob: bytes, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the boxes that lie in a range: kind, start and end of the content (ISO/IEC 14496-12, 4.2)."""
    while at + 8 <= end:
        size, kind, head = int.from_bytes(blob[at : at + 4], "big"), blob[at + 4 : at + 8], 8
        if size == 1:
            size, head = int.from_bytes(blob[at + 8 : at + 16], "big"), 16
        size = size or end - at
        if size < head or size > end - at:
            return
        yield kind, at + head, at + size
        at += size


def _clean_aperture(content: bytes, size: tuple[int, int]) -> Part | None:
    """The part of a picture of `size` (width, height) to show; None: all, or it is not of whole pixels within.

    The box has width, height, and how far its center is from the picture's (ISO/IEC 14496-12, 12.1.4).
    """
    numbers = [int.from_bytes(content[at : at + 4], "big", signed=at in (16, 24)) for at in range(0, 32, 4)]
    if len(content) < 32 or not all(numbers[1::2]):
        return None
    width, height, across, down = (Fraction(*numbers[k : k + 2]) for k in (0, 2, 4, 6))
    left, top = across + (size[0] - width) / 2, down + (size[1] - height) / 2
    whole = all(value.denominator == 1 for value in (left, top, width, height))
    inside = left >= 0 and top >= 0 and width > 0 and height > 0 and left + width <= size[0] and top + height <= size[1]
    return (int(left), int(top), int(width), int(height)) if whole and inside else None
