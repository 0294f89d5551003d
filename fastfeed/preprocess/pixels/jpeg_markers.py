"""Reads JPEG markers that the kernel's probe does not return: chroma sampling, scans, and the ICC
profile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["JpegMarkers", "read_markers"]

_ICC = b"ICC_PROFILE\x00"
_NO_LENGTH = frozenset([0x00, 0x01, *range(0xD0, 0xD9)])
# like libjpeg, skip anything up to the next marker
_MARKER = re.compile(rb"\xff+[^\xff]", re.DOTALL)
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


@dataclass(slots=True)
class JpegMarkers:
    """Markers before the first scan."""

    progressive: bool = False
    several_scans: bool = False  # all coefficients are kept until the last scan has been read
    # (columns, rows) of each component
    sampling: list[tuple[int, int]] = field(default_factory=list)
    # of the profile: number, count, bytes
    chunks: list[tuple[int, int, bytes]] = field(default_factory=list)

    def held(self) -> float:
        """Coefficients per pixel that libjpeg keeps of a file with several scans: 1.5 for 4:2:0."""
        if not self.several_scans:
            return 0.0
        across = max((columns for columns, _ in self.sampling), default=1)
        down = max((rows for _, rows in self.sampling), default=1)
        return sum(columns * rows for columns, rows in self.sampling) / max(across * down, 1)

    @property
    def profile(self) -> bytes | None:
        """The ICC profile, joined in the order of its chunk numbers; b"" if chunks are missing
        (ICC.1, B.4).
        """
        if not self.chunks:
            return None
        chunks = sorted(self.chunks, key=lambda chunk: chunk[0])
        if [number for number, _, _ in chunks] != list(range(1, chunks[0][1] + 1)):
            return b""
        return b"".join(content for _, _, content in chunks)


def read_markers(blob: bytes) -> JpegMarkers:
    """Walk the segments as the kernel does; a broken segment ends the walk."""
    result = JpegMarkers()
    at, size = 2, len(blob)
    while (marker_match := _MARKER.search(blob, at)) and marker_match.end() + 2 <= size:
        at = marker_match.end()
        marker = blob[at - 1]
        if marker in _NO_LENGTH:
            continue
        length = int.from_bytes(blob[at : at + 2], "big")
        if marker == 0xD9 or length < 2 or at + length > size:
            return result
        if marker == 0xDA:
            result.several_scans = result.progressive or blob[at + 2] < len(result.sampling)
            return result
        if marker in _FRAMES and length >= 8:
            result.progressive = marker in (0xC2, 0xC6, 0xCA, 0xCE)
            parts = blob[at + 8 : at + length]
            result.sampling = [(parts[k] >> 4, parts[k] & 15) for k in range(1, len(parts), 3)]
        elif marker == 0xE2 and length > 16 and blob[at + 2 : at + 14] == _ICC:
            result.chunks.append((blob[at + 14], blob[at + 15], bytes(blob[at + 16 : at + length])))
        at += length
    return result
