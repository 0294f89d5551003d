"""JPEG 2000 files with boxes of one's own."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from helpers.avifs import boxes
from helpers.heics import boxed


def jp2(
    pixels: np.ndarray | Image.Image,
    *,
    colors: Sequence[bytes] | None = None,
    inside: Sequence[bytes] = (),
    before: Sequence[bytes] = (),
    behind: Sequence[bytes] = (),
) -> bytes:
    """A file as Pillow writes it, lossless.

    Args:
        pixels: the picture.
        colors: `colr` boxes in place of Pillow's.
        inside: more boxes of the header.
        before: boxes before the header, and again before the picture.
        behind: boxes behind the picture.
    """
    file = io.BytesIO()
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(file, "JPEG2000")
    result = b""
    for kind, content in boxes(file.getvalue()):
        if kind == b"jp2h":
            kept = [
                (name, inner) for name, inner in boxes(content) if name != b"colr" or colors is None
            ]
            content = b"".join(boxed(*part) for part in kept[:1]) + b"".join(colors or ())
            content += b"".join(boxed(*part) for part in kept[1:]) + b"".join(inside)
        if kind in (b"jp2h", b"jp2c"):
            result += b"".join(before)
        result += boxed(kind, content)
    return result + b"".join(behind)


def colr(method: int, content: bytes | int) -> bytes:
    """A `colr` box: of method 1 with a number (EnumCS), of 2 or 3 with a profile."""
    content = content if isinstance(content, bytes) else content.to_bytes(4, "big")
    return boxed(b"colr", bytes([method, 0, 0]) + content)
