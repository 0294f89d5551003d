"""Camera raw is refused by name, by what is in the file; a TIFF that a camera or its program wrote
is a TIFF.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest
from helpers import jpegs
from helpers.engines import by_pillow, native, routed
from helpers.tiffs import any_tiff, tiff

from fastfeed.decode import DecodeFailure
from fastfeed.preprocess.pixels.image_info import image_info

THUMBNAIL = jpegs.textured(12, 16)
SENSOR = np.arange(24 * 32, dtype=np.uint16).reshape(24, 32, 1)


def make(name: bytes) -> dict[int, tuple[int, list[int]]]:
    return {271: (7, [*name, 0])}


def with_raw(maker: bytes, *, chained: bool = False, big: bool = False, **tags: int) -> bytes:
    """A thumbnail first, and behind it a directory of what a sensor measured."""
    order = ">" if big else "<"
    entries = {
        256: 32,
        257: 24,
        258: 14,
        259: tags.get("compression", 1),
        262: tags.get("photometric", 32803),
    }
    raw = struct.pack(order + "H", len(entries))
    for tag, value in entries.items():
        raw += struct.pack(order + "HHII", tag, 4, 1, value)
    raw += bytes(4)

    def thumbnail(at: int) -> bytes:
        return tiff(THUMBNAIL, big=big, tags=make(maker) | ({} if chained else {330: (4, [at])}))

    head = thumbnail(0)
    if not chained:
        return thumbnail(len(head)) + raw
    start = struct.unpack_from(order + "I", head, 4)[0]
    after = start + 2 + 12 * struct.unpack_from(order + "H", head, start)[0]
    return head[:after] + struct.pack(order + "I", len(head)) + head[after + 4 :] + raw


def box(kind: bytes) -> bytes:
    return struct.pack(">I", 24) + b"ftyp" + kind + bytes(4) + kind + b"isom" + bytes(64)


RAW = {
    "DNG": (tiff(THUMBNAIL, tags={50706: (1, [1, 4, 0, 0])}), "DNG"),
    "DNG of a phone": (with_raw(b"Apple"), "of an unknown camera"),
    "DNG of linear levels": (
        any_tiff(SENSOR.repeat(3, axis=2), 16, 34892, tags={50706: (1, [1, 6, 0, 0])}),
        "DNG",
    ),
    "NEF": (with_raw(b"NIKON CORPORATION", big=True), "Nikon NEF"),
    "NEF, compressed": (with_raw(b"NIKON", photometric=1, compression=34713), "Nikon NEF"),
    "NRW in a chain": (with_raw(b"NIKON", chained=True), "Nikon NEF"),
    "ARW": (with_raw(b"SONY", compression=32767), "Sony ARW"),
    "PEF": (any_tiff(SENSOR, 16, 32803, tags=make(b"PENTAX Corporation")), "Pentax PEF"),
    "SRW": (with_raw(b"SAMSUNG"), "Samsung SRW"),
    "3FR": (any_tiff(SENSOR, 16, 32803, big=True, tags=make(b"Hasselblad")), "Hasselblad 3FR"),
    "sensor": (any_tiff(SENSOR, 16, 32803), "of an unknown camera"),
    "CR2": (b"II*\0\x10\0\0\0CR\2\0" + bytes(400), "Canon CR2"),
    "IIQ": (b"MM\0*\0\0\0\x10IIIITwaR" + bytes(400), "Phase One IIQ"),
    "CR3": (box(b"crx "), "Canon CR3"),
    "CRW": (b"II\x1a\0\0\0HEAPCCDR" + bytes(400), "Canon CRW"),
    "ORF": (b"IIRO\x08\0\0\0" + bytes(400), "Olympus ORF"),
    "ORF, older": (b"IIRS\x08\0\0\0" + bytes(400), "Olympus ORF"),
    "ORF, big-endian": (b"MMOR\0\0\0\x08" + bytes(400), "Olympus ORF"),
    "RW2": (b"IIU\0\x18\0\0\0" + bytes(400), "Panasonic RW2"),
    "RAF": (b"FUJIFILMCCD-RAW 0201" + bytes(400), "Fujifilm RAF"),
    "MRW": (b"\0MRM" + bytes(400), "Minolta MRW"),
    "X3F": (b"FOVb" + bytes(400), "Sigma X3F"),
}


@pytest.mark.parametrize("name", RAW)
def test_camera_raw_is_refused_by_name(name):
    blob, words = RAW[name]
    for read in (routed, by_pillow, image_info):
        bad = read(blob)
        assert isinstance(bad, DecodeFailure) and bad.reason == "unsupported_format", bad
        assert "camera raw" in bad.detail and words in bad.detail, bad


PLAIN = {
    "of a camera's program": tiff(THUMBNAIL, tags=make(b"NIKON CORPORATION")),
    "with a smaller picture": with_raw(b"Canon", photometric=2),
    "with a second page": with_raw(b"SONY", chained=True, photometric=1),
    "with a directory outside of the file": tiff(THUMBNAIL, tags={330: (4, [1 << 30])}),
    "with a directory that is its own": tiff(THUMBNAIL, tags={330: (4, [8 + THUMBNAIL.size])}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_tiff_is_a_tiff(name):
    for read in (routed, by_pillow):
        assert np.array_equal(read(PLAIN[name]), THUMBNAIL)
    if jpegs.native is not None and not name.endswith("its own"):
        assert np.array_equal(native(PLAIN[name]), THUMBNAIL)
