"""Opens GIFs for Pillow without the extensions outside the pixels, on which it may fail."""

from __future__ import annotations

import io
from typing import Any

from PIL import GifImagePlugin

_HEAD = 13  # bytes before the colors
_FRAME_HEAD = 10  # bytes of a frame before its colors; the last one has flags
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
    colors, controls, frame = before_frame(blob)
    kept = [blob[at : at + _CONTROL_BYTES] + b"\0" for at in controls]
    return b"".join([blob[:colors], *kept, blob[frame:]])


def before_frame(blob: Any) -> tuple[int, list[int], int]:
    """End of the colors of a GIF, starts of its graphic controls, and of its first frame."""
    colors = _after_colors(blob, 10, _HEAD)
    at = colors
    controls = []
    while at < len(blob) and blob[at : at + 1] not in (b",", b";"):
        if blob[at : at + 1] != b"!":
            at += 1  # Pillow, too, looks for the next block
            continue
        if blob[at + 1 : at + 3] == _CONTROL:
            controls.append(at)
        at = _after_blocks(blob, at + 2)
    return colors, controls, at


def after_frame_head(blob: Any, frame: int) -> int:
    """The byte after a frame's descriptor, its colors and the size of its codes (GIF89a, 20-22)."""
    return _after_colors(blob, frame + _FRAME_HEAD - 1, frame + _FRAME_HEAD) + 1


def _after_colors(blob: Any, flags_at: int, at: int) -> int:
    flags = int.from_bytes(blob[flags_at : flags_at + 1], "big")
    return at + (6 << (flags & 7) if flags & _HAS_COLORS else 0)


def _after_blocks(blob: Any, at: int) -> int:
    """The byte after a chain of data blocks, which ends with an empty one (GIF89a, 15)."""
    while at < len(blob) and blob[at : at + 1] != b"\0":
        at += 1 + int.from_bytes(blob[at : at + 1], "big")
    return at + 1
