"""Detects file formats by their first bytes, never by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_MAGIC = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"II+\x00", "TIFF"),
    (b"MM\x00+", "TIFF"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
    # image formats that are not decoded here
    (b"\x00\x00\x00\x0cJXL ", "JPEG XL"),
    (b"\xff\x0a", "JPEG XL"),
    (b"8BPS", "Photoshop"),
    (b"\x00\x00\x01\x00", "ICO"),
    (b"v/1\x01", "OpenEXR"),
    (b"DDS ", "DDS"),
    (b"\x93NUMPY", "NPY"),
    (b"P7\n", "PAM"),
    (b"PF\n", "PFM"),
    (b"Pf\n", "PFM"),
    # camera raw; formats inside a TIFF are left to `tiff`
    (b"FUJIFILMCCD-RAW", "camera raw, Fujifilm RAF"),
    (b"IIRO", "camera raw, Olympus ORF"),
    (b"IIRS", "camera raw, Olympus ORF"),
    (b"MMOR", "camera raw, Olympus ORF"),
    (b"IIU\x00", "camera raw, Panasonic RW2"),
    (b"\x00MRM", "camera raw, Minolta MRW"),
    (b"FOVb", "camera raw, Sigma X3F"),
    (b"II\x1a\x00\x00\x00HEAPCCDR", "camera raw, Canon CRW"),
)
_PNM = re.compile(rb"P[1-6](#|\s+[#\d])")
_AVIF = {b"avif", b"avis"}
_HEVC = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"}
_HEIF = _HEVC | {b"mif1", b"mif2", b"msf1"}  # the last three leave the codec open


def sniff(blob: bytes) -> str | None:
    """The format's name, or None if it is not an image."""
    head = bytes(blob[:32])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp":
        return _of_brands(bytes(blob[8 : min(int.from_bytes(head[:4], "big"), 256)]))
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    return "PPM" if _PNM.match(head) else None


def _of_brands(brands: bytes) -> str | None:
    """The format of an ISO media file, by its major brand, else by a compatible one.

    A compatible brand counts only if the major brand names no codec.
    """
    if brands[:4] == b"crx ":
        return "camera raw, Canon CR3"
    major = brands[:4]
    compatible = {brands[at : at + 4] for at in range(8, len(brands), 4)}
    if major in _AVIF or (major not in _HEVC and compatible & _AVIF):
        return "AVIF"
    return "HEIC" if ({major} | compatible) & _HEIF else None


_OTHERS = (
    (b"%PDF", "PDF"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"\x7fELF", "a program"),
    (b"\x1aE\xdf\xa3", "a video"),
    (b"version https://git-lfs", "a Git LFS pointer"),
)


def content_kind(blob: bytes) -> str:
    """The kind of a file that is not an image.

    Never its content, which may be something that no one should see.
    """
    head = bytes(blob[:512])
    if head[4:8] == b"ftyp":
        return "a video"
    if head[257:262] == b"ustar":
        return "a tar archive"
    for magic, name in _OTHERS:
        if head.startswith(magic):
            return name
    if not head.strip(b"\0"):
        return "zeros"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return "HTML"
    if text.startswith((b"<?xml", b"<svg")):
        return "SVG" if b"<svg" in text else "XML"
    return "text" if all(byte >= 32 or byte in b"\t\n\r\f\x1b" for byte in head) else "binary data"


def ends_early(blob: bytes, format: str) -> bool:
    """True if the file is shorter than its headers require.

    Called only for files that failed to decode.
    """
    if format == "WEBP":
        return int.from_bytes(blob[4:8], "little") + 8 > len(blob)
    if format == "TIFF":
        order = "little" if blob[:2] == b"II" else "big"
        return int.from_bytes(blob[4:8], order) + 2 > len(blob)
    if format == "JPEG":
        at = 2  # walk the segments up to the first scan
        while at + 4 <= len(blob) and blob[at] == 0xFF:
            if blob[at + 1] == 0xDA:
                return False
            at += 2 + int.from_bytes(blob[at + 2 : at + 4], "big")
        return at + 4 > len(blob)
    return False


def riff_chunks(blob: Any) -> Iterator[tuple[bytes, int, int]]:
    """Yield the complete chunks of a WebP: name, start and end of the content."""
    at = 12
    last = min(8 + int.from_bytes(blob[4:8], "little"), len(blob))
    while at + 8 <= last:
        end = at + 8 + int.from_bytes(blob[at + 4 : at + 8], "little")
        if end > last:
            return
        yield blob[at : at + 4], at + 8, end
        at = end + (end - at) % 2
