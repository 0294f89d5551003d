"""Opens TIFFs for Pillow; camera raw, and samples that Pillow would misread, are refused by name.

Pixels stay as they are stored: turning them upright is the same for all formats.
"""

from __future__ import annotations

import io
import struct
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, TiffImagePlugin

from fastfeed.decode.pillow_globals import with_globals

_BITS = 258
_COMPRESSION = 259
_PHOTOMETRIC = 262
_FILL_ORDER = 266
_MAKE = 271
_PLANAR = 284
_SUB_DIRECTORIES = 330
_INK_SET = 332
_EXTRA = 338
_FORMAT = 339
_DNG_VERSION = 50706
_ORIENTATION = 274
_RESOLUTION = (282, 283, 296)
_TELL_RAW = (_COMPRESSION, _PHOTOMETRIC, _SUB_DIRECTORIES, _DNG_VERSION)
_DECIDE = frozenset(
    {  # tags that decide over pixels: all others are metadata
        254,
        255,
        256,
        257,
        258,
        259,
        262,
        263,
        266,
        273,
        274,
        277,
        278,
        279,
        280,
        281,
        284,
        292,
        293,
        317,
        320,
        322,
        323,
        324,
        325,
        332,
        338,
        339,
        347,
        *range(512, 522),
        529,
        530,
        532,
    }
)
_YCBCR = 6  # a photometric interpretation
_CCITT = (2, 3, 4)  # compressions of black and white
_OLD_JPEG = 6  # a compression
_USUAL = (1, 2, 3, 4, 5, 7, 8, 32773, 32946)  # compressions that every libtiff has
_SENSOR = (32803, 34892)  # photometric interpretations: a mosaic of color filters, linear raw
_SENSOR_PACKING = (32767, 34713, 65535)  # compressions of Sony, Nikon and Pentax
_MAKES = (
    (b"nikon", "Nikon NEF"),
    (b"sony", "Sony ARW"),
    (b"pentax", "Pentax PEF"),
    (b"ricoh", "Pentax PEF"),
    (b"samsung", "Samsung SRW"),
    (b"olympus", "Olympus ORF"),
    (b"panasonic", "Panasonic RW2"),
    (b"hasselblad", "Hasselblad 3FR"),
    (b"phase one", "Phase One IIQ"),
    (b"leaf", "Leaf MOS"),
    (b"mamiya", "Mamiya MEF"),
    (b"kodak", "Kodak DCR"),
    (b"eastman", "Kodak DCR"),
    (b"epson", "Epson ERF"),
    (b"canon", "Canon"),
)
# that are looked at
_MOST_DIRECTORIES = 32
_MOST_ENTRIES = 4096
_MOST_TEXT = 100
# types of whole numbers, as struct reads them
_WHOLE = {
    1: "B",
    3: "H",
    4: "I",
    13: "I",
    16: "Q",
    18: "Q",
}
# of a value; of other types 1
_BYTES = {
    3: 2,
    4: 4,
    5: 8,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}

_MM = b"MM"
_OPEN_INFO = TiffImagePlugin.OPEN_INFO | {  # modes that Pillow knows only in little-endian order
    (_MM, 0, (1,), 1, (16,), ()): ("I;16B", "I;16B"),
    (_MM, 1, (1,), 1, (12,), ()): ("I;16", "I;12"),
    (b"II", 0, (1,), 2, (16,), ()): ("I;16", "I;16R"),
}


class TiffFile(TiffImagePlugin.TiffImageFile):
    """The first image of a TIFF, as stored.

    Gray of 12 or 16 bits is loaded as 8 bits, with black at 0.
    """

    _setup_pixels = with_globals(TiffImagePlugin.TiffImageFile._setup, OPEN_INFO=_OPEN_INFO)
    _setup_through_libtiff = with_globals(
        TiffImagePlugin.TiffImageFile._setup, OPEN_INFO=_OPEN_INFO, READ_LIBTIFF=True
    )

    _takes_floats = False

    def _open(self) -> None:
        assert self.fp is not None
        blob = self.fp.read()
        raw = camera_raw(blob)
        if raw:
            raise OSError(f"unsupported: camera raw, {raw}")
        self.fp = io.BytesIO(_without_broken_metadata(blob))
        super()._open()

    def _setup(self) -> None:
        tags = self.tag_v2
        for tag in (
            _ORIENTATION,
            *_RESOLUTION,
        ):  # Pillow would turn the pixels, or fail on a strange resolution
            del tags[tag]
        bits = _values(tags, _BITS, 1)
        formats = _values(tags, _FORMAT, 1)
        photometric = tags.get(_PHOTOMETRIC)
        compression = tags.get(_COMPRESSION, 1)
        is_float = self._takes_floats and formats == (3,) and bits == (32,)
        if set(formats) != {1} and not is_float:
            raise OSError(
                "unsupported: samples that are not unsigned whole numbers (sample format"
                f" {formats[0]})"
            )
        if max(bits) > 16 and not is_float:
            raise OSError(f"unsupported: samples of more than 16 bits ({max(bits)})")
        if _values(tags, _INK_SET, 1) != (1,):
            raise OSError("unsupported: inks other than cyan, magenta, yellow and black")
        if photometric is None and compression not in (*_CCITT, _OLD_JPEG):
            raise OSError("it does not say whether 0 is black or white (PhotometricInterpretation)")
        is_planar = tags.get(_PLANAR, 1) == 2
        try:
            if is_planar or photometric == _YCBCR or tags.get(_FILL_ORDER, 1) == 2:
                self._setup_through_libtiff()
            else:
                self._setup_pixels()
        except SyntaxError as error:
            if "pixel mode" not in f"{error}":
                raise
            samples = ", ".join(f"{name} {tags[tag]}" for tag, name in _TOLD.items() if tag in tags)
            raise OSError(f"unsupported samples: {samples}") from error
        if is_planar and self.mode in ("LA", "La", "PA", "LAB"):
            raise OSError(f"unsupported: planes of {self.mode}, one after another")

    def _load_libtiff(self) -> Any:
        try:
            return super()._load_libtiff()
        except OSError as error:
            if self.tag_v2.get(_COMPRESSION, 1) in _USUAL:
                raise
            raise OSError(f"unsupported or damaged: compression {self._compression}") from error

    def load_end(self) -> None:
        if self.mode.startswith("I;16"):
            bits = _values(self.tag_v2, _BITS, 1)[0]
            levels = (np.asarray(self) >> (bits - 8)).astype(np.uint8)
            image = Image.fromarray(levels if self.tag_v2.get(_PHOTOMETRIC) else ~levels)
            self.im = image.im
            self._mode = image.mode


class NumbersTiff(TiffFile):
    """The same, also of floating-point gray: mode F."""

    _takes_floats = True


_TOLD = {
    _PHOTOMETRIC: "photometric",
    _BITS: "bits",
    _EXTRA: "extra samples",
    _FILL_ORDER: "fill order",
}


def _values(tags: Any, tag: int, default: int) -> tuple[int, ...]:
    value = tags.get(tag, default)
    return value if isinstance(value, tuple) else (value,)


def camera_raw(blob: Any) -> str | None:
    """Name of the camera's format if a TIFF holds sensor values instead of a picture, else None.

    The kind of its first picture does not matter: most such files begin with a thumbnail.
    """
    if blob[8:10] == b"CR":
        return "Canon CR2"
    if blob[8:12] == b"IIII":
        return "Phase One IIQ"
    layout = _Layout(blob)
    waiting = [layout.first]
    seen = set[int]()
    make = b""
    while waiting and len(seen) < _MOST_DIRECTORIES:
        at = waiting.pop(0)
        if at in seen:
            continue
        seen.add(at)
        entries, after = layout.directory(at)
        # of several the first counts
        known = (entry for entry in reversed(entries) if entry.tag in _TELL_RAW)
        tags = {entry.tag: layout.numbers(entry) for entry in known}
        make = make or next((layout.text(entry) for entry in entries if entry.tag == _MAKE), b"")
        if _DNG_VERSION in tags:
            return "DNG"
        if {*tags.get(_PHOTOMETRIC, ())} & {*_SENSOR} or {*tags.get(_COMPRESSION, ())} & {
            *_SENSOR_PACKING
        }:
            return next(
                (name for start, name in _MAKES if make.lower().startswith(start)),
                "of an unknown camera",
            )
        waiting += [*tags.get(_SUB_DIRECTORIES, ())[:_MOST_DIRECTORIES], after]
    return None


def _without_broken_metadata(blob: bytes) -> bytes:
    """The file, with no type for metadata outside of it, so that readers skip it.

    Pillow reads no further.
    """
    layout = _Layout(blob)
    broken = [
        e.at
        for e in layout.directory(layout.first)[0]
        if e.tag not in _DECIDE and not layout.lies_inside(e)
    ]
    if not broken:
        return blob
    changed = bytearray(blob)
    for at in broken:
        changed[at + 2 : at + 4] = b"\0\0"
    return bytes(changed)


def tiff_header(blob: Any) -> None:
    """Read all that decides over the size and the kind of a TIFF's first image."""
    camera_raw(blob)
    layout = _Layout(blob)
    for entry in layout.directory(layout.first)[0]:
        if entry.tag in _DECIDE and layout.lies_inside(entry):
            layout.content(entry)


class _Entry(NamedTuple):
    at: int  # byte in the file
    tag: int
    kind: int
    length: int  # in values
    start: int  # of its values


class _Layout:
    """Directories of a TIFF or BigTIFF, read without trust."""

    def __init__(self, blob: Any) -> None:
        """blob: bytes, or slices of a `PartialFile`."""
        self._blob = blob
        self._order = "<" if blob[:2] == b"II" else ">"
        self._big = blob[2:4] in (b"+\0", b"\0+")
        self.first = self._number("Q", 8) if self._big else self._number("I", 4)

    def _number(self, kind: str, at: int) -> int:
        """A number of the file; 0 if it is outside of the file."""
        end = at + struct.calcsize(self._order + kind)
        inside = at >= 0 and end <= len(self._blob)
        return struct.unpack(self._order + kind, self._blob[at:end])[0] if inside else 0

    def directory(self, at: int) -> tuple[list[_Entry], int]:
        """Entries of a directory, and the place of the next one; 0 if it is the last."""
        head, entry, place = ("Q", "HHQ", "Q") if self._big else ("H", "HHI", "I")
        count = self._number(head, at)
        first = at + struct.calcsize("=" + head)
        before = struct.calcsize("=" + entry)
        width = struct.calcsize("=" + place)
        end = first + count * (before + width)
        if not at or count > _MOST_ENTRIES or end > len(self._blob):
            return [], 0
        entries = []
        content = self._blob[first:end]
        for start in range(first, end, before + width):
            tag, kind, number = struct.unpack_from(self._order + entry, content, start - first)
            place_at = start + before
            values_at = (
                place_at if self._size(kind, number) <= width else self._number(place, place_at)
            )
            entries.append(_Entry(start, tag, kind, number, values_at))
        return entries, self._number(place, end)

    @staticmethod
    def _size(kind: int, count: int) -> int:
        return count * _BYTES.get(kind, 1)

    def lies_inside(self, entry: _Entry) -> bool:
        """True if all of its values are inside the file."""
        return entry.start + self._size(entry.kind, entry.length) <= len(self._blob)

    def numbers(self, entry: _Entry) -> tuple[int, ...]:
        """Whole numbers of an entry, at most some thousand; none if they are outside the file."""
        if entry.kind not in _WHOLE or not self.lies_inside(entry):
            return ()
        count = min(entry.length, _MOST_ENTRIES)
        end = entry.start + self._size(entry.kind, count)
        return struct.unpack(
            f"{self._order}{count}{_WHOLE[entry.kind]}", self._blob[entry.start : end]
        )

    def content(self, entry: _Entry) -> bytes:
        """The values of an entry."""
        return self._blob[entry.start : entry.start + self._size(entry.kind, entry.length)]

    def text(self, entry: _Entry) -> bytes:
        """The beginning of an entry's text."""
        return self._blob[
            entry.start : entry.start + min(self._size(entry.kind, entry.length), _MOST_TEXT)
        ]
