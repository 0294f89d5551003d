"""Opens GIFs for Pillow without the extensions outside the pixels, on which it may fail."""

from __future__ import annotations

import io

from PIL import GifImagePlugin

_HEAD = 13  # bytes before the colors
_HAS_COLORS = 0x80
_CONTROL = b"\xf9\4"  # a graphic control extension of the right size: it has the transparent color
_CONTROL_BYTES = 7  # with its introducer


class GifFile(GifImagePlugin.GifImageFile):
    """The first frame of a GIF. `info` has no comments."""

    def _open(self) -> None:
        assert self.fp is not None
        self.fp = io.BytesIO(_without_extensions(self.fp.read()))
        super()._open()


def _without_extensions(blob: bytes) -> bytes:
    """The file without comments, texts and extensions of applications before its first frame."""
    flags = int.from_bytes(blob[10:11], "big")
    at = _HEAD + (6 << (flags & 7) if flags & _HAS_COLORS else 0)
    kept = [blob[:at]]
    while at < len(blob) and blob[at : at + 1] not in (b",", b";"):
        if blob[at : at + 1] != b"!":
            at += 1  # Pillow, too, looks for the next block
            continue
        if blob[at + 1 : at + 3] == _CONTROL:
            kept.append(blob[at : at + _CONTROL_BYTES] + b"\0")
        at = _after_blocks(blob, at + 2)
    kept.append(blob[at:])
    return b"".join(kept)


def _after_blocks(blob: bytes, at: int) -> int:
    """The byte after a chain of data blocks, which ends with an empty one (GIF89a, 15)."""
    while at < len(blob) and blob[at]:
        at += 1 + blob[at]
    return at + 1
