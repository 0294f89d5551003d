"""TIFFs in the native extension: Pillow's pixels from every sound file that it takes, and Pillow's
word on all others.
"""

from __future__ import annotations

import io
import itertools
import threading
import zlib

import numpy as np
import pytest
from helpers import jpegs
from helpers.engines import by_pillow, native, routed, same, verdict
from helpers.jpegs import textured
from helpers.real_data import real_data
from helpers.tiffs import lzw, tiff
from PIL import Image

from fastfeed.decode import DecodeFailure, Header, NativeEngine, Request
from fastfeed.ops import Decode
from fastfeed.ops.program.compile import Windows

pytestmark = pytest.mark.skipif(jpegs.native is None, reason=jpegs.NO_KERNEL)
RNG = np.random.default_rng(5)
PHOTO = textured(61, 83)
ALPHA = np.where(textured(61, 83, 2)[..., :1] > 128, PHOTO[..., 2:], 255)
DEEP = PHOTO.astype(np.uint16) * 256 + RNG.integers(0, 256, PHOTO.shape, dtype=np.uint16)
SAMPLES = {
    "RGB": PHOTO,
    "gray": PHOTO[..., :1],
    "RGB with alpha": np.concatenate([PHOTO, ALPHA], axis=2),
    "RGB of 16 bits": DEEP,
    "gray of 16 bits": DEEP[..., :1],
    "RGB with alpha, of 16 bits": np.concatenate([DEEP, ALPHA.astype(np.uint16) * 257], axis=2),
}
PACKED = [(1, 1), (5, 1), (5, 2), (8, 1), (8, 2), (32946, 2), (32773, 1)]  # compression, predictor
PLACED = {
    "one strip": {},
    "strips": {"strip": 7},
    "tiles": {"tile": (16, 32)},
    "one tile": {"tile": (64, 96)},
}
COMPRESSION = {"none": 1, "LZW": 5, "deflate": 8, "PackBits": 32773}


@pytest.mark.parametrize("packed", PACKED, ids=str)
@pytest.mark.parametrize("samples", SAMPLES)
def test_every_kind_has_pillows_pixels(samples, packed):
    for big, placed in itertools.product((False, True), PLACED.values()):
        blob = tiff(SAMPLES[samples], big=big, compression=packed[0], predictor=packed[1], **placed)
        got = native(blob)
        assert np.array_equal(got, by_pillow(blob)), (big, placed)
        for box in ((7, 5, 40, 60), (0, 0, 1, 1), (60, 82, 1, 1), (14, 31, 9, 2)):
            top, left, height, width = box
            assert np.array_equal(
                native(blob, box), got[top : top + height, left : left + width]
            ), (big, placed, box)


@pytest.mark.parametrize("filter", jpegs.FILTERS)
@pytest.mark.parametrize("samples", SAMPLES)
def test_windows_are_scaled_as_defined(samples, filter):
    blob = tiff(SAMPLES[samples], compression=8, predictor=2, tile=(16, 16))
    whole = by_pillow(blob)
    for box, size in (((0, 0, 61, 83), (20, 30)), ((30.5, 10.25, 20, 33), (40, 50))):
        want = jpegs.resized(whole, box, size, filter)
        for flip in ((False, False), (True, False), (False, True)):
            turned = want[:: -1 if flip[0] else 1, :: -1 if flip[1] else 1]
            assert (
                np.abs(native(blob, box, size, filter, flip).astype(float) - turned).max() <= 0.51
            ), (box, flip)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(orientation):
    blob = tiff(PHOTO, compression=5, strip=8, orientation=orientation)
    (header,) = NativeEngine(Decode()).probe([blob])
    assert isinstance(header, Header)
    assert (header.height, header.width) == ((61, 83) if orientation < 5 else (83, 61))
    assert np.array_equal(native(blob), by_pillow(blob))


@pytest.mark.parametrize("kind", ["noise", "zeros", "stripes", "one byte", "long repeats"])
def test_lzw_of_any_redundancy(kind):
    """With tables that fill up, strings of every length, and one that is used while it is begun."""
    pixels = {
        "noise": RNG.integers(0, 256, (300, 400, 1)),
        "zeros": np.zeros((900, 700, 1)),
        "stripes": np.tile(RNG.integers(0, 256, (1, 400, 1)), (300, 1, 1)),
        "one byte": np.full((1, 1, 1), 7),
        "long repeats": np.tile(RNG.integers(0, 256, (11, 400, 1)), (40, 1, 1)),
    }[kind].astype(np.uint8)
    blob = tiff(pixels, compression=5, strip=200)
    got = native(blob)
    assert np.array_equal(got[..., :1], pixels) and np.array_equal(got, by_pillow(blob))


def changed(number: int, content):
    return lambda k, piece: content(piece) if k == number else piece


def made(compression: int = 5, **options) -> bytes:
    return tiff(PHOTO, **({"compression": compression, "strip": 16} | options))


SOUND = made()
LEFT_TO_PILLOW = {
    "premultiplied alpha": tiff(SAMPLES["RGB with alpha"], extra=1),
    "a channel of unknown meaning": tiff(SAMPLES["RGB with alpha"], extra=0),
    "gray with alpha": tiff(SAMPLES["RGB with alpha"][..., 2:]),
    "extra samples that are not there": made(tags={338: (3, [2])}),
    "white is zero": tiff(PHOTO[..., :1], tags={262: (3, [0])}),
    "palette": tiff(PHOTO[..., :1], tags={262: (3, [3]), 320: (3, list(range(768)))}),
    "CMYK": tiff(SAMPLES["RGB with alpha"], tags={262: (3, [5]), 338: None}),
    "planes": made(1, strip=None, tags={284: (3, [2])}),
    "signed": tiff(PHOTO[..., :1], tags={339: (3, [2])}),
    "bits from the other end": made(tags={266: (3, [2])}),
    "four bits": tiff(PHOTO[..., :1], tags={258: (3, [4]), 256: (4, [166])}),
    "different depths": made(tags={258: (3, [8, 8, 16])}),
    "predictor of floats": made(tags={317: (3, [3])}),
    "predictor without compression": made(1, tags={317: (3, [2])}),
    "JPEG inside": made(tags={259: (3, [7])}),
    "fax": tiff(PHOTO[..., :1], tags={259: (3, [4])}),
    "no height": made(tags={257: (4, [0])}),
    "no strips": made(tags={273: None}),
    "strips and tiles": made(tags={324: (4, [8])}),
    "one strip less": made(tags={273: (4, [8, 8, 8]), 279: (4, [9, 9, 9])}),
    "strip beyond the file": made(tags={273: (4, [8, 8, 8, 1 << 30])}),
    "strips of nothing": made(tags={279: (4, [0, 0, 0, 0])}),
    "strips that are too short": made(1, tags={279: (4, [99, 99, 99, 99])}),
    "strips with a tile's height": made(tags={323: (4, [16])}),
    "tiles without a width": tiff(PHOTO, tile=(16, 16), tags={322: None}),
    "tiles of no width": tiff(PHOTO, tile=(16, 16), tags={322: (4, [0])}),
    "directory beyond the file": SOUND[:4] + b"\xff\xff\xff\x7f" + SOUND[8:],
    "more entries than there are": SOUND[: SOUND.rindex(b"\0\0\0\0") + 4][:-40],
    "half": SOUND[: len(SOUND) // 2],
    "header alone": SOUND[:8],
    "cut behind the pixels": tiff(PHOTO, compression=8)[:-200],
    **{
        f"half a strip of {name}": made(
            code, damage=changed(2, lambda piece: piece[: len(piece) // 2])
        )
        for name, code in COMPRESSION.items()
    },
    **{
        f"zeros for a strip of {name}": made(
            code, damage=changed(2, lambda piece: bytes(len(piece)))
        )
        for name, code in COMPRESSION.items()
        if code != 1
    },
    "LZW that begins without a clear code": made(
        damage=changed(1, lambda piece: b"\x00" + piece[1:])
    ),
    "LZW with a code that is not there yet": made(
        damage=changed(1, lambda piece: piece[:2] + b"\xff" * 9 + piece[11:])
    ),
    "LZW that ends early": made(damage=changed(1, lambda piece: lzw(PHOTO[16:30].tobytes()))),
    "LZW whose table runs over": tiff(
        textured(100, 90),
        compression=5,
        damage=lambda _, piece: lzw(textured(100, 90).tobytes(), clear_at=1 << 30),
    ),
    "wrong checksum of a stream": made(8, damage=changed(1, lambda piece: piece[:-4] + b"abcd")),
    "stream that is too long": made(
        8, damage=changed(1, lambda piece: zlib.compress(PHOTO[16:40].tobytes()))
    ),
    "stream that is too short": made(
        8, damage=changed(1, lambda piece: zlib.compress(PHOTO[16:30].tobytes()))
    ),
    "strips of more rows than memory": made(strip=None, tags={278: (4, [1 << 31])}),
    "rows per strip of another type": made(strip=None, tags={278: (7, [61])}),
}


@pytest.mark.parametrize("name", LEFT_TO_PILLOW)
def test_all_others_have_pillows_result(name):
    blob = LEFT_TO_PILLOW[name]
    assert same(routed(blob), by_pillow(blob))


def test_who_decodes():
    assert not isinstance(native(SOUND), DecodeFailure)
    assert [
        name for name, blob in LEFT_TO_PILLOW.items() if not isinstance(native(blob), DecodeFailure)
    ] == []


def test_runs_that_go_beyond_a_strip_are_cut_off():
    blob = made(32773, damage=changed(1, lambda piece: b"\x7f" + bytes(128) + piece))
    assert np.array_equal(native(blob), by_pillow(blob))


def test_of_several_pages_the_first_is_shown():
    file, pages = io.BytesIO(), [Image.fromarray(PHOTO), Image.fromarray(255 - PHOTO)]
    pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:])
    assert np.array_equal(native(file.getvalue()), PHOTO)


def test_only_strips_and_tiles_of_a_window_are_unpacked():
    """What others hold is not even looked at, nor rows of a strip below the window."""
    for code in (5, 8, 32773):
        tall = made(code, damage=lambda k, piece: piece if k == 1 else b"?" * len(piece))
        assert np.array_equal(native(tall, (17, 3, 14, 70)), PHOTO[17:31, 3:73])
        assert isinstance(native(tall, (15, 3, 14, 70)), DecodeFailure)
    wide = tiff(
        PHOTO, compression=5, tile=(64, 32), damage=lambda k, piece: piece if k == 1 else b"?"
    )
    assert np.array_equal(native(wide, (10, 34, 20, 28)), PHOTO[10:30, 34:62])
    assert isinstance(native(wide, (10, 30, 20, 32)), DecodeFailure)


@pytest.mark.parametrize(
    "seed", [8, *(pytest.param(k, marks=pytest.mark.slow) for k in (9, 10, 11))]
)
def test_random_damage_has_pillows_result(seed):
    rng, names = np.random.default_rng(seed), list(SAMPLES)
    for k in range(150):
        compression, predictor = PACKED[k % len(PACKED)]
        placed = list(PLACED.values())[k % len(PLACED)]
        options = {"compression": compression, "predictor": predictor, "big": k % 2 == 0, **placed}
        blob = bytearray(tiff(SAMPLES[names[k % len(names)]], **options))
        first = len(blob) - 300 if k % 3 else 8  # the directory, or anything
        for _ in range(rng.integers(1, 3)):
            blob[rng.integers(first, len(blob))] = rng.integers(0, 256)
        want, got = by_pillow(bytes(blob)), routed(bytes(blob))
        assert same(got, want), (k, verdict(want), verdict(got))


@pytest.mark.skipif(
    not (real_data() / "bad-images").is_dir(), reason="the folder bad-images is not here"
)
def test_files_of_other_projects_have_pillows_result():
    taken = 0
    for path in sorted((real_data() / "bad-images" / "tiff").iterdir()):
        blob = path.read_bytes()
        assert same(routed(blob), by_pillow(blob)), path.name
        taken += not isinstance(native(blob), DecodeFailure)
    assert taken > 5


def test_a_stop_ends_between_rows():
    engine, stop = NativeEngine(Decode()), threading.Event()
    stop.set()
    headers = engine.probe([SOUND])
    windows = Windows(
        np.array([[0, 0, 61, 83]], float), np.zeros((1, 2), bool), np.array([[61, 83]])
    )
    out = np.full((1, 61, 83, 3), 9, np.uint8)
    assert engine.decode(Request([SOUND], headers, windows, "bilinear"), out, stop) == [None]
    assert (out == 9).all()
