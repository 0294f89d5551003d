"""The orientation of pixels that a file declares.

`native/exif.cpp` has the same rule for files that the native extension decodes.

It counts where the standard of the format puts it: EXIF in a JPEG (APP1), PNG (`eXIf`) and WebP
(`EXIF`), the tag of a TIFF. HEIC and AVIF are turned by properties of their container, which
decoders apply or hand on. XMP, texts and other formats never count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from fastfeed.decode.sniff import riff_chunks

ORIENTATION = 0x0112
_PREFIX = b"Exif\0\0"  # always in a JPEG's, sometimes in those of other formats
_MARKER = re.compile(rb"\xff([^\xff])")  # of a JPEG, after bytes outside of segments
_WEBP_HAS_EXIF = 8  # flag of a WebP's first chunk
_SHORT = 3
_BYTES = {1: 1, _SHORT: 2, 4: 4}  # of the types BYTE, SHORT and LONG


def stored_orientation(blob: bytes, format: str, info: Mapping[Any, Any]) -> int:
    """The orientation 1..8, as EXIF counts them; 1 if the file has none or an invalid one.

    Args:
        blob: the file.
        format: of `sniff`.
        info: of the opened image. A PNG's plugin has read "exif", an AVIF's the "orientation" of
            the container.
    """
    if format == "AVIF":
        return int(info["orientation"])
    if format == "PNG":
        return exif_orientation(info.get("exif", b""))
    return exif_orientation(_EXIF[format](blob)) if format in _EXIF else 1


def exif_orientation(block: bytes) -> int:
    """The orientation in an EXIF block or a TIFF, else 1.

    It is one BYTE, SHORT or LONG (TIFF 6.0, section 2).
    """
    kind, count, value = _entry(block.removeprefix(_PREFIX)) or (0, 0, 0)
    return value if kind in _BYTES and count == 1 and 1 <= value <= 8 else 1


def is_plain_exif(blocks: list[bytes]) -> bool:
    """True if all readers take the same orientation from a JPEG's EXIF.

    Several blocks crash nvImageCodec 0.9.
    """
    entry = _entry(blocks[0]) if blocks else None
    return len(blocks) < 2 and (entry is None or entry[:2] == (_SHORT, 1))


def _entry(block: bytes) -> tuple[int, int, int] | None:
    """Type, count and value of the first entry of the orientation in a TIFF's first directory."""
    order: Any = {b"II": "little", b"MM": "big"}.get(block[:2])
    if order is None:
        return None

    def number(at: int, size: int) -> int:
        return int.from_bytes(block[at : at + size], order)

    version = number(2, 2)
    if version not in (42, 43):
        return None
    wide = version == 43  # BigTIFF: counts and offsets have eight bytes
    at = number(8, 8) if wide else number(4, 4)
    count_size, entry_size, value_at = (8, 20, 12) if wide else (2, 12, 8)
    first = at + count_size
    entries = min(number(at, count_size), max(len(block) - first, 0) // entry_size)
    for entry in range(first, first + entries * entry_size, entry_size):
        if number(entry, 2) == ORIENTATION:
            kind = number(entry + 2, 2)
            return (
                kind,
                number(entry + 4, value_at - 4),
                number(entry + value_at, _BYTES.get(kind, 0)),
            )
    return None


def jpeg_exifs(blob: bytes) -> list[bytes]:
    """The EXIF blocks of a JPEG before its first scan, without their prefix."""
    data = bytes(blob)
    at = 2
    blocks = []
    while match := _MARKER.search(data, at):
        marker = match[1][0]
        at = match.end()
        if marker in (0x00, 0x01) or 0xD0 <= marker <= 0xD8:  # without a length
            continue
        length = int.from_bytes(data[at : at + 2], "big")
        if marker in (0xD9, 0xDA) or length < 2 or length > len(data) - at:
            break
        if marker == 0xE1 and data.startswith(b"Exif\0", at + 2) and length >= 8:
            blocks.append(data[at + 8 : at + length] if data[at + 7] == 0 else b"")
        at += length
    return blocks


def _first_jpeg_exif(blob: bytes) -> bytes:
    return next(iter(jpeg_exifs(blob)), b"")


def _webp_exif(blob: bytes) -> bytes:
    if blob[12:16] != b"VP8X" or not int.from_bytes(blob[20:21], "big") & _WEBP_HAS_EXIF:
        return b""  # libwebp ignores the chunk without its flag
    return next(
        (bytes(blob[begin:end]) for name, begin, end in riff_chunks(blob) if name == b"EXIF"), b""
    )


_EXIF: dict[str, Callable[[bytes], bytes]] = {
    "JPEG": _first_jpeg_exif,
    "WEBP": _webp_exif,
    "TIFF": bytes,
}
