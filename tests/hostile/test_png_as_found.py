"""PNGs as programs write them: every transparent color, any metadata, and none of the chunks that
must be there.
"""

from __future__ import annotations

import itertools
import struct
import zlib

import numpy as np
import pytest
from helpers import jpegs
from helpers.engines import MATTE, by_pillow, native, routed
from helpers.pngs import SIGNATURE, chunk, chunks, png
from helpers.preprocess.rasters import preprocessed, without_kernel

from fastfeed.decode import DecodeFailure
from fastfeed.preprocess.pixels.image_info import ImageInfo, image_info

RNG = np.random.default_rng(0)
PHOTO = jpegs.textured(23, 37)
KINDS = [(1, 1), (1, 2), (1, 4), (1, 8), (1, 16), (3, 8), (3, 16)]  # channels, bits
READERS = {"routed": routed, "pillow": by_pillow}


@pytest.mark.parametrize("interlaced", [False, True], ids=["rows", "interlaced"])
@pytest.mark.parametrize(("channels", "depth"), KINDS, ids=str)
def test_a_transparent_color_is_compared_with_all_bits(channels, depth, interlaced, monkeypatch):
    """As libpng does: with the lowest bits of the chunk's 16, as many as a sample has."""
    samples = RNG.integers(0, 1 << depth, (23, 37, channels))
    color = samples[3, 5].copy()
    samples[:12] = color
    samples[11, :, -1] ^= 1  # the lowest bit alone differs
    shown = samples >> (depth - 8) if depth > 8 else samples * 255 // ((1 << depth) - 1)
    want = np.repeat(shown, 3 // channels, axis=2).astype(np.uint8)
    want[(samples == color).all(axis=2)] = MATTE
    assert (want[:11] == MATTE).all() and not (want[11] == MATTE).all()
    above = 0xFFFF >> depth << depth
    for bits in (0, above):
        blob = png(samples, depth, key=[int(v) | bits for v in color], interlaced=interlaced)
        if jpegs.native is not None:
            assert interlaced == isinstance(native(blob), DecodeFailure)
        for read in (*READERS.values(), preprocessed):
            assert np.array_equal(read(blob), want)
    without_kernel(monkeypatch)
    assert np.array_equal(preprocessed(blob), want)


@pytest.mark.parametrize("key", [b"\1\2", bytes(5), bytes(7), b""], ids=len)
def test_a_transparent_color_that_makes_no_sense_is_ignored(key):
    for read in (*READERS.values(), preprocessed):
        assert np.array_equal(read(png(PHOTO, before=chunk(b"tRNS", key))), PHOTO)


def without(blob: bytes, name: bytes) -> bytes:
    return SIGNATURE + b"".join(chunk(n, c) for n, c in chunks(blob) if n != name)


def header(
    width: int = 37, height: int = 23, depth: int = 8, color: int = 2, *methods: int
) -> bytes:
    content = struct.pack(">IIBBBBB", width, height, depth, color, *(methods or (0, 0, 0)))
    return SIGNATURE + chunk(b"IHDR", content) + png(PHOTO)[33:]


INDEXED = png(PHOTO[..., :1] >> 4, 4, palette=RNG.integers(0, 256, (16, 3)))
PIECES = png(PHOTO, piece=200)
BROKEN = {
    "no palette": (without(INDEXED, b"PLTE"), "corrupt", "no PLTE before IDAT"),
    "a palette behind the pixels": (
        without(INDEXED, b"PLTE").replace(
            chunk(b"IEND", b""), chunk(b"PLTE", bytes(48)) + chunk(b"IEND", b"")
        ),
        "corrupt",
        "no PLTE before IDAT",
    ),
    "an empty palette": (
        INDEXED.replace(chunk(*chunks(INDEXED)[1]), chunk(b"PLTE", b"")),
        "corrupt",
        "PLTE",
    ),
    "half a color": (
        INDEXED.replace(chunk(*chunks(INDEXED)[1]), chunk(b"PLTE", bytes(47))),
        "corrupt",
        "PLTE",
    ),
    "no header": (without(PIECES, b"IHDR"), "corrupt", "IHDR"),
    "a header that comes second": (
        SIGNATURE + chunk(b"gAMA", bytes(4)) + PIECES[8:],
        "corrupt",
        "its first chunk is not IHDR",
    ),
    "two headers": (PIECES[:33] + PIECES[8:], "corrupt", "IHDR"),
    "no pixels": (without(PIECES, b"IDAT"), "corrupt", "no IDAT"),
    "a chunk between the pixels": (
        PIECES.replace(
            chunk(*chunks(PIECES)[2]), chunk(*chunks(PIECES)[2]) + chunk(b"tEXt", b"a\0b")
        ),
        "corrupt",
        "between its IDAT",
    ),
    "no end": (without(PIECES, b"IEND"), "truncated", "before IEND"),
    "half of it": (PIECES[: len(PIECES) // 2], "truncated", "the file ends in IDAT"),
    "a depth that the color does not have": (header(depth=4), "corrupt", "color type 2, depth 4"),
    "an unknown color": (header(color=5), "corrupt", "color type 5"),
    "an unknown filter": (header(37, 23, 8, 2, 0, 64, 0), "corrupt", "methods 0, 64, 0"),
    "another critical chunk": (
        PIECES[:33] + chunk(b"JDAT", b"x") + PIECES[33:],
        "unsupported_format",
        "JDAT",
    ),
    "rewritten for phones": (
        SIGNATURE + chunk(b"CgBI", bytes(4)) + PIECES[8:],
        "unsupported_format",
        "CgBI",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_critical_chunks_must_be_there(name):
    blob, reason, words = BROKEN[name]
    for read in (*READERS.values(), preprocessed):
        bad = read(blob)
        assert isinstance(bad, DecodeFailure) and bad.reason == reason and words in bad.detail, bad


LONG = zlib.compress(bytes(40 << 20))
METADATA = {
    "a text": chunk(b"zTXt", b"Comment\0\0" + LONG),
    "an XMP packet": chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + LONG),
    "EXIF as a text": chunk(b"zTXt", b"Raw profile type exif\0\0" + LONG),
    "a profile": chunk(b"iCCP", b"a\0\0" + LONG),
    "a damaged profile": chunk(b"iCCP", b"a\0\0no zlib"),
    "a profile without a name": chunk(b"iCCP", b""),
    "many texts": b"".join(chunk(b"zTXt", b"k%d\0\0" % k + LONG) for k in range(3)),
    "an unknown chunk": chunk(b"zzZz", bytes(3_000_000)),
    "a broken text": chunk(b"iTXt", b"XML:com.adobe.xmp\0\1"),
    "half a gamma": chunk(b"gAMA", b"\0"),
    "half a size": chunk(b"pHYs", b"\0"),
    "an animation without frames": chunk(b"acTL", b""),
    "a text that is not what its checksum says": chunk(b"tEXt", b"a\0b")[:-1] + b"?",
    "EXIF of nothing": chunk(b"eXIf", b""),
}


@pytest.mark.parametrize("name", METADATA)
@pytest.mark.parametrize(
    "options", [{}, {"interlaced": True}, {"key": (1, 2, 3)}], ids=["RGB", "interlaced", "key"]
)
def test_metadata_never_decides_over_pixels(name, options):
    for place, read in itertools.product(("before", "behind"), (*READERS.values(), preprocessed)):
        got = read(png(PHOTO, **options, **{place: METADATA[name]}))
        assert np.array_equal(got, PHOTO), (place, got)


@pytest.mark.parametrize(
    ("before", "icc"),
    [
        (b"", "none"),
        (chunk(b"sRGB", b"\0"), "sRGB"),
        (chunk(b"gAMA", struct.pack(">I", 45455)), "sRGB"),
        (chunk(b"gAMA", struct.pack(">I", 55556)), "gamma 1.80"),
        (chunk(b"gAMA", struct.pack(">I", 100_000)), "linear"),
        (chunk(b"sRGB", b"\0") + chunk(b"gAMA", struct.pack(">I", 100_000)), "sRGB"),
        (
            chunk(
                b"cHRM", struct.pack(">8I", 31270, 32900, 68000, 32000, 26500, 69000, 15000, 6000)
            ),
            "Display P3",
        ),
        (chunk(b"cICP", bytes([12, 13, 0, 1])), "Display P3"),
        (chunk(b"cICP", bytes([9, 16, 0, 1])), "BT.2020 PQ"),
        (chunk(b"cICP", bytes([9, 18, 0, 1])), "BT.2020 HLG"),
        (chunk(b"cICP", bytes([1, 1, 0, 0])), "BT.709, 16 to 235"),
        (chunk(b"cICP", bytes([12, 13, 0, 1])) + chunk(b"sRGB", b"\0"), "Display P3"),
        (chunk(b"cICP", bytes([1, 99, 0, 1])), "CICP 1/99"),
        (chunk(b"cICP", bytes([9, 16, 9, 1])), "damaged"),
        (chunk(b"gAMA", bytes(4)), "damaged"),
        (METADATA["a profile"], "damaged"),
    ],
    ids=str,
)
def test_colors_without_a_profile_are_converted_and_recorded(before, icc):
    """By preprocess; a feed shows the file's levels, with a profile or without."""
    blob = png(PHOTO, before=before)
    info, got = image_info(blob), preprocessed(blob)
    assert isinstance(info, ImageInfo) and info.icc == icc
    assert isinstance(got, np.ndarray)
    assert np.array_equal(got, PHOTO) != info.converts
    assert info.converts == (icc not in ("none", "sRGB", "damaged", "CICP 1/99"))
    assert np.array_equal(routed(blob), PHOTO)
