"""Files read in parts: the few bytes that tell the size of an image, whatever its format."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastfeed.decode.formats.avif import MOST_BYTES
from fastfeed.decode.formats.container import Container, boxes
from fastfeed.decode.formats.gif import after_frame_head, before_frame
from fastfeed.decode.formats.heic import ends_early
from fastfeed.decode.formats.jpeg2000 import jpeg2000_header
from fastfeed.decode.formats.png import join_pixels
from fastfeed.decode.formats.tiff import tiff_header
from fastfeed.decode.sniff import riff_chunks, sniff

_LEAST = 4096  # bytes of a read after the first
_MOST_READS = 16  # of parts of a file after the first, before it is read whole
_FRAME_BYTES = 32  # of a WebP's picture, which begin with its size
_SCAN = 0xDA  # markers of JPEGs
_END = 0xD9
_COMMENT = 0xFE
_APPLICATION = range(0xE0, 0xF0)
_EXIF = 0xE1
_WITHOUT_LENGTH = (0x00, 0x01, *range(0xD0, 0xD9))


class Missing(Exception):
    """Bytes [start, stop) of a file that have not been read."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__(f"bytes {start} to {stop} have not been read")
        self.start = start
        self.stop = stop


class PartialFile:
    """A file of `size` bytes, some of them read; a slice of others raises Missing."""

    def __init__(self, size: int, head: bytes) -> None:
        self._size = size
        self._parts = [(0, head)]  # in order, with gaps between them
        self._reads = 0
        # PNG: bytes that differ in `filled`, by their place
        self.changes: dict[int, bytes] = {}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._size)
        if start >= stop:
            return b""
        for begin, data in self._parts:
            if begin <= start and stop <= begin + len(data):
                return data[start - begin : stop - begin]
        raise Missing(start, stop)

    def add(self, start: int, data: bytes) -> None:
        """Add a part that has been read."""
        self._reads += 1
        first, *others = sorted([*self._parts, (start, data)], key=lambda part: part[0])
        self._parts = [first]
        for begin, more in others:
            last, known = self._parts[-1]
            end = last + len(known)
            if begin > end:
                self._parts.append((begin, more))
            else:
                self._parts[-1] = last, known + more[end - begin :]

    def missing(self) -> tuple[int, int] | None:
        """Bytes [start, stop) to read next; None once all that decides over its size is read.

        All of the file, (0, size), if its format is unknown or needs all, and after many reads.
        """
        look = _HEADERS.get(sniff(self._parts[0][1]) or "", _require_all)
        if self._reads >= _MOST_READS:
            look = _require_all
        try:
            look(self)
        except Missing as part:
            is_whole = (part.start, part.stop) == (0, self._size)
            return (0, self._size) if is_whole else self._widened(part.start, part.stop)
        return None

    def _widened(self, start: int, stop: int) -> tuple[int, int]:
        least = _LEAST
        for begin, data in self._parts:
            end = begin + len(data)
            if begin <= start < end:
                start = end
            if start == end:  # a long header: twice as much each time
                least = max(least, len(data))
        return start, min(max(stop, start + least), self._size)

    def filled(self) -> np.ndarray:
        """The file with zeros for what has not been read: uint8 (size,)."""
        blob = np.zeros(self._size, np.uint8)
        for start, data in [*self._parts, *self.changes.items()]:
            blob[start : start + len(data)] = np.frombuffer(data, np.uint8)
        return blob


def _require_all(file: PartialFile) -> None:
    raise Missing(0, len(file))


def _require_no_more(file: PartialFile) -> None:
    """The first bytes are enough, or all are needed: the decoder says which."""


def _jpeg(file: PartialFile) -> None:
    """Segments to the first scan; of those for applications EXIF alone."""
    at = 2
    while len(head := file[at : at + 4]) == 4:
        marker = head[1]
        if head[0] != 0xFF:
            _require_all(file)
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if marker in _WITHOUT_LENGTH:
            at += 2
            continue
        end = at + 2 + int.from_bytes(head[2:], "big")
        is_exif = marker == _EXIF and file[at + 4 : at + 9] == b"Exif\0"
        if is_exif or (marker not in _APPLICATION and marker != _COMMENT):
            file[at:end]
        if marker in (_SCAN, _END) or end < at + 4:
            return
        at = end


def _png(file: PartialFile) -> None:
    file.changes = join_pixels(file)


def _webp(file: PartialFile) -> None:
    for name, begin, end in riff_chunks(file):
        if name == b"ANMF":
            _require_all(file)
        if name in (b"VP8X", b"EXIF"):
            file[begin:end]
        if name in (b"VP8 ", b"VP8L"):
            file[begin : begin + _FRAME_BYTES]


def _gif(file: PartialFile) -> None:
    colors, _, frame = before_frame(file)
    file[:colors]
    file[frame : after_frame_head(file, frame)]


def _media(file: PartialFile) -> None:
    """AVIF or HEIC: boxes that describe the picture, and the start of its coded data."""
    for kind, begin, end in boxes(file, 0, len(file)):
        if kind == b"moov":
            _require_all(file)
        if kind in (b"ftyp", b"meta"):
            file[begin:end]
    ends_early(file)
    container = Container(file)
    container.coded(MOST_BYTES)
    container.derivation(MOST_BYTES)


_HEADERS: dict[str, Callable[[PartialFile], None]] = {
    "JPEG": _jpeg,
    "PNG": _png,
    "WEBP": _webp,
    "GIF": _gif,
    "BMP": _require_no_more,
    "PPM": _require_no_more,
    "TIFF": tiff_header,
    "JPEG2000": jpeg2000_header,
    "AVIF": _media,
    "HEIC": _media,
}
