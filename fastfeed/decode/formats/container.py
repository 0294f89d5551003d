"""Reads containers of AVIF and HEIC: properties of the primary image, its coded data, its EXIF.

ISO/IEC 23008-12, and ISO/IEC 14496-12 for boxes and for the track of an image sequence. Nothing
here raises for the content of a file: damaged parts count as missing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

Property = tuple[bytes, bytes]  # kind and content of a box
Span = tuple[int, int]  # of the file: start and end
Signal = tuple[int, int, int]  # primaries, transfer and matrix of ITU-T H.273

_OPEN = 2  # a number that says nothing
UNSPECIFIED: Signal = _OPEN, _OPEN, _OPEN
# matrices that libavif or libheif refuses, or takes for another one: reserved, constant luminance
# of BT.2020 and of chromaticities, SMPTE 2085, ICtCp, IPT-C2
_UNKNOWN_MATRICES = (3, 10, 11, 13, 14, 15)
_METADATA = (b"Exif", b"mime")  # kinds of items; XMP is the second
_GROUPS = b"grpl"  # of images, such as one with a gain map and the same without
_DESCRIPTIONS = {  # properties that change no pixels, and how many bytes libavif needs of them
    b"clli": 4,  # of light levels
    b"pasp": 8,  # aspect ratio of pixels
    b"uuid": 16,
}
_NO_KIND = b"skip"  # a kind of item or property that decoders ignore
_TRACK = (b"mdia", b"minf", b"stbl")
_SAMPLE_ENTRY = 78  # bytes of a visual sample entry before its boxes
_MOST_DERIVED = 8  # images, each derived from the next


class Container:
    """The primary image of a file, or the first track of an image sequence (`avis`)."""

    def __init__(self, blob: Any) -> None:
        """blob: bytes, or slices of a `PartialFile`."""
        self._blob = blob
        begin, end = _child(blob, (0, len(blob)), b"meta")
        self._spans: dict[bytes, Span] = {}  # of the boxes of `meta`, the first of each kind
        for kind, first, last in boxes(blob, begin + 4, end):
            self._spans.setdefault(kind, (first, last))
        at, _ = self._find(b"pitm")
        self._primary = self._number(at + 4, 4 if self._number(at, 1) else 2)
        self._sequence = self._first_track() if blob[8:12] == b"avis" else None
        self._tile = self._coded_item()

    def properties(self) -> list[Property]:
        """Properties of the primary image, in the order of the file."""
        if self._sequence is not None:
            return self._track_properties(self._sequence)
        return self._item_properties(self._primary)

    def tile_properties(self) -> list[Property]:
        """Properties of the first coded image that a grid is made of; of a coded one its own."""
        return (
            self.properties() if self._sequence is not None else self._item_properties(self._tile)
        )

    def coded(self, most: int) -> bytes:
        """The first bytes, at most `most`, of the primary image's coded data.

        For an image made of others, such as a grid, those of the first coded one.
        """
        if self._sequence is not None:
            at = self._first_sample(self._sequence)
            return self._blob[at : at + most] if at else b""
        return self._data(self._tile, most)

    def derivation(self, most: int) -> bytes:
        """The first bytes of the primary image's own data, such as the size of a grid."""
        return b"" if self._sequence is not None else self._data(self._primary, most)

    def exif(self, most: int) -> bytes:
        """The EXIF of the primary image, a TIFF of at most `most` bytes; b"": it has none."""
        describing = {item for item, to in self._references(b"cdsc") if self._primary in to}
        for number, kind, _ in self._items():
            if kind == b"Exif" and number in describing:
                data = self._data(number, most)
                return data[4 + int.from_bytes(data[:4], "big") :]
        return b""

    def without_metadata(self) -> bytes:
        """The file with all that shows no pixels, and may be damaged, marked as unknown.

        Decoders skip it: EXIF, XMP, gain maps, and descriptions that are cut off.
        """
        places = [at for _, kind, at in self._items() if kind in _METADATA]
        properties = _child(self._blob, self._find(b"iprp"), b"ipco")
        places += [
            begin - 4
            for kind, begin, end in boxes(self._blob, *properties)
            if end - begin < _DESCRIPTIONS.get(kind, 0) and self._blob[begin - 4 : begin] == kind
        ]
        groups, _ = self._find(_GROUPS)
        if self._blob[groups - 4 : groups] == _GROUPS:
            places.append(groups - 4)
        if not places:
            return self._blob
        changed = bytearray(self._blob)
        for at in places:
            changed[at : at + 4] = _NO_KIND
        return bytes(changed)

    def _coded_item(self) -> int:
        """The first coded image that the primary one is derived from, or that one."""
        sources: dict[int, int] = {}
        for item, to in self._references(b"dimg"):
            if to:
                sources.setdefault(item, to[0])
        item = self._primary
        for _ in range(_MOST_DERIVED):
            item = sources.get(item, item)
        return item

    def _number(self, at: int, size: int) -> int:
        return int.from_bytes(self._blob[at : at + size], "big")

    def _find(self, kind: bytes) -> Span:
        return self._spans.get(kind, (0, 0))

    def _boxes(self, span: Span) -> list[Property]:
        return [(kind, self._blob[begin:end]) for kind, begin, end in boxes(self._blob, *span)]

    def _item_properties(self, item: int) -> list[Property]:
        span = self._find(b"iprp")
        properties = self._boxes(_child(self._blob, span, b"ipco"))
        uses = [content for kind, content in self._boxes(span) if kind == b"ipma"]
        numbers = (number for box in uses for owner, number in _associated(box) if owner == item)
        return [properties[number - 1] for number in numbers if 0 < number <= len(properties)]

    def _items(self) -> Iterator[tuple[int, bytes, int]]:
        """Yield number, kind, and the byte of the file at which the kind stands, of each item."""
        begin, end = self._find(b"iinf")
        entries = begin + (8 if self._number(begin, 1) else 6)
        for kind, at, _ in boxes(self._blob, entries, end):
            version = self._number(at, 1)
            if kind == b"infe" and version >= 2:
                size = 4 if version > 2 else 2
                kind_at = at + 6 + size
                yield self._number(at + 4, size), self._blob[kind_at : kind_at + 4], kind_at

    def _references(self, kind: bytes) -> Iterator[tuple[int, list[int]]]:
        """Yield an item and those that it refers to."""
        begin, end = self._find(b"iref")
        size = 4 if self._number(begin, 1) else 2
        for name, at, stop in boxes(self._blob, begin + 4, end):
            if name == kind:
                yield (
                    self._number(at, size),
                    [self._number(to, size) for to in range(at + size + 2, stop, size)],
                )

    def _data(self, item: int, most: int) -> bytes:
        idat = self._find(b"idat")
        result = bytearray()
        for is_inside, offset, length in self._extents(item):
            begin, end = idat if is_inside else (0, len(self._blob))
            begin += offset
            end = min(end, begin + length) if length else end
            result += self._blob[begin : min(end, begin + most - len(result))]
            if len(result) >= most:
                break
        return bytes(result)

    def _extents(self, item: int) -> Iterator[tuple[bool, int, int]]:
        """Yield the parts of an item's data from `iloc`: (in `idat`, offset, length).

        A length of 0 means up to the end.
        """
        at, end = self._find(b"iloc")
        version = self._number(at, 1)
        offset_size = self._number(at + 4, 1) >> 4
        length_size = self._number(at + 4, 1) & 15
        base_size = self._number(at + 5, 1) >> 4
        index_size = self._number(at + 5, 1) & 15 if version else 0
        number_size = 4 if version > 1 else 2
        at += 6 + number_size
        while at < end:
            number = self._number(at, number_size)
            at += number_size
            is_inside = version > 0 and self._number(at, 2) & 15 == 1
            at += 4 if version else 2
            base = self._number(at, base_size)
            count = self._number(at + base_size, 2)
            at += base_size + 2
            step = index_size + offset_size + length_size
            if number == item:
                extents = (
                    range(at + index_size, min(at + count * step, end), step)
                    if step
                    else [at] * count
                )
                for extent in extents:
                    offset = base + self._number(extent, offset_size)
                    yield is_inside, offset, self._number(extent + offset_size, length_size)
                return
            at += count * step

    def _first_track(self) -> Span | None:
        """The sample tables of the first track other than alpha."""
        movie = _child(self._blob, (0, len(self._blob)), b"moov")
        for kind, begin, end in boxes(self._blob, *movie):
            if kind == b"trak" and not any(_child(self._blob, (begin, end), b"tref", b"auxl")):
                return _child(self._blob, (begin, end), *_TRACK)
        return None

    def _track_properties(self, table: Span) -> list[Property]:
        begin, end = _child(self._blob, table, b"stsd")
        _, entry, stop = next(boxes(self._blob, begin + 8, end), (b"", 0, 0))
        return self._boxes((entry + _SAMPLE_ENTRY, stop))

    def _first_sample(self, table: Span) -> int:
        for kind, size in ((b"stco", 4), (b"co64", 8)):
            begin, end = _child(self._blob, table, kind)
            if end:
                return self._number(begin + 8, size)
        return 0


def signal_in(properties: list[Property], *forms: bytes) -> Signal:
    """Numbers of the first `colr` box of one of these forms; `UNSPECIFIED` without one."""
    for kind, content in properties:
        if kind == b"colr" and content[:4] in forms and len(content) >= 10:
            primaries, transfer, matrix = struct.unpack_from(">HHH", content, 4)
            return primaries, transfer, matrix
    return UNSPECIFIED


def first_named(signals: Sequence[Signal]) -> tuple[int, int]:
    """Primaries and transfer of the first signal that does not leave both open."""
    open_colors = UNSPECIFIED[:2]
    return next((signal[:2] for signal in signals if signal[:2] != open_colors), open_colors)


def check_matrix(signals: Sequence[Signal]) -> None:
    """Raise OSError if the first matrix that is named cannot be undone."""
    matrix = next((signal[2] for signal in signals if signal[2] != _OPEN), _OPEN)
    if matrix in _UNKNOWN_MATRICES:
        raise OSError(f"unsupported: colors of matrix {matrix} of ITU-T H.273")


def box_content(kind: bytes, properties: list[Property]) -> bytes:
    """The content of the first box of a kind; b"" without one."""
    return next((content for name, content in properties if name == kind), b"")


def profile_in(properties: list[Property]) -> bytes:
    """The first ICC profile; b"" without one."""
    profiles = (
        content[4:]
        for kind, content in properties
        if kind == b"colr" and content[:4] in (b"prof", b"rICC")
    )
    return next(profiles, b"")


def _child(blob: Any, span: Span, *path: bytes) -> Span:
    """Content of the first box of each kind, each inside the previous; (0, 0) if one is missing."""
    for wanted in path:
        span = next(
            ((begin, end) for kind, begin, end in boxes(blob, *span) if kind == wanted), (0, 0)
        )
    return span


def boxes(blob: Any, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the boxes in a range: kind, start and end of the content (ISO/IEC 14496-12, 4.2)."""
    while at + 8 <= end:
        head = 8
        size = int.from_bytes(blob[at : at + 4], "big") or end - at
        if size == 1:
            head = 16
            size = int.from_bytes(blob[at + 8 : at + 16], "big")
        if size < head or size > end - at:
            return
        yield blob[at + 4 : at + 8], at + head, at + size
        at += size


def _associated(box: bytes) -> Iterator[tuple[int, int]]:
    """Yield item and number of property from an `ipma` box."""
    item_bytes = 4 if box[:1] > b"\0" else 2
    number_bytes = 1 + (int.from_bytes(box[3:4], "big") & 1)
    at = 8
    while at + item_bytes < len(box):
        item = int.from_bytes(box[at : at + item_bytes], "big")
        count = box[at + item_bytes]
        at += item_bytes + 1
        for first in range(at, at + count * number_bytes, number_bytes):
            number = int.from_bytes(box[first : first + number_bytes], "big")
            # the upper bit says whether it is essential
            yield (
                item,
                number & ((1 << (8 * number_bytes - 1)) - 1),
            )
        at += count * number_bytes


class Bits:
    """Bits of some bytes, the highest first; EOFError behind the last.

    `at`: how many have been read.
    """

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data, "big")
        self._size = 8 * len(data)
        self.at = 0

    def read(self, count: int) -> int:
        """The next bits as a number."""
        self.at += count
        if self.at > self._size:
            raise EOFError
        return self._value >> (self._size - self.at) & ((1 << count) - 1)

    def read_exp_golomb(self) -> int:
        """Read a number of variable length (ue(v) of HEVC, uvlc() of AV1).

        It begins with as many zeros as bits follow the first one.
        """
        zeros = 0
        while not self.read(1):
            zeros += 1
        return (1 << zeros) - 1 + self.read(zeros) if zeros < 32 else (1 << 32) - 1
