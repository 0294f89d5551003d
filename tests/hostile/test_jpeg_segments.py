"""Segments of a JPEG that are no part of its pixels never decide whether these are read, in the
kernel or in Pillow.
"""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from helpers.engines import by_pillow, native, routed
from helpers.jpegs import NO_KERNEL, textured
from helpers.jpegs import native as kernel
from helpers.preprocess.rasters import preprocessed
from PIL import Image

HEADS = [
    b"",
    b"JFIF\0",
    b"JFIF\0\1\1",
    b"Exif\0\0",
    b"Exif\0\0II*\0",
    b"Exif\0\0II*\0\x08\0\0\0\xff\xff",
    b"http://ns.adobe.com/xap/1.0/\0",
    b"ICC_PROFILE\0",
    b"ICC_PROFILE\0\1\1",
    b"ICC_PROFILE\0\5\1",
    b"FPXR\0",
    b"MPF\0",
    b"MPF\0II*\0\x08\0\0\0\1\0",
    b"Photoshop 3.0\0",
    b"Photoshop 3.0\0008BIM\x03\xed\0\0\0\0\0\xff",
]
MARKERS = [0xE0, 0xE1, 0xE2, 0xED, 0xFE]  # not Adobe's, which says what the colors are


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_metadata_never_decides_over_pixels(mode):
    file = io.BytesIO()
    Image.fromarray(textured(16, 24)).convert(mode).save(file, "JPEG")
    plain = file.getvalue()
    readers = [routed, by_pillow, preprocessed]
    if kernel is not None and mode != "CMYK":
        readers.append(native)
    want = [read(plain) for read in readers]
    assert all(isinstance(pixels, np.ndarray) for pixels in want), NO_KERNEL
    for marker in MARKERS:
        for head in HEADS:
            for tail in (b"", b"\xff" * 40):
                content = head + tail
                segment = bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content
                blob = plain[:2] + segment + plain[2:]
                for read, pixels in zip(readers, want, strict=True):
                    assert np.array_equal(read(blob), pixels), (hex(marker), content, read(blob))
