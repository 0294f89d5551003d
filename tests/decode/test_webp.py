"""WebPs in the native extension: Pillow's pixels from every sound file of one frame, and Pillow's
word on all others.
"""

from __future__ import annotations

import io
import struct
import threading

import numpy as np
import pytest
from helpers import jpegs
from helpers.engines import MATTE, by_pillow, native, routed, same, verdict
from helpers.jpegs import textured
from helpers.real_data import real_data
from PIL import Image, ImageOps

from fastfeed.decode import DecodeFailure, Header, NativeEngine, Request
from fastfeed.ops import Decode
from fastfeed.ops.program.compile import Windows

pytestmark = pytest.mark.skipif(
    jpegs.native is None or not jpegs.native.LIBWEBP,
    reason="a kernel without libwebp (Debian: libwebp-dev)",
)
PHOTO = textured(61, 83)
ALPHA = np.where(textured(61, 83, 2)[..., :1] > 128, PHOTO[..., 2:], 255)
CLEAR = np.concatenate([PHOTO, ALPHA], axis=2)
KINDS = {
    "lossy": (PHOTO, {"quality": 80}),
    "lossy, coarse": (PHOTO, {"quality": 5, "method": 0}),
    "lossy, of one color": (np.full((61, 83, 3), 77, np.uint8), {"quality": 50}),
    "lossless": (PHOTO, {"lossless": True}),
    "lossy with alpha": (CLEAR, {"quality": 80}),
    "lossless with alpha": (CLEAR, {"lossless": True, "exact": True}),
    "lossless, few colors": (PHOTO // 128 * 255, {"lossless": True}),
}


def webp(pixels: np.ndarray, **options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", **options)
    return file.getvalue()


def made(kind: str) -> bytes:
    pixels, options = KINDS[kind]
    return webp(pixels, **options)


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def chunks(blob: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 12
    while at < len(blob):
        size = int.from_bytes(blob[at + 4 : at + 8], "little")
        found.append((blob[at : at + 4], blob[at + 8 : at + 8 + size]))
        at += 8 + size + size % 2
    return found


def joined(parts: list[tuple[bytes, bytes]]) -> bytes:
    content = b"WEBP" + b"".join(chunk(*part) for part in parts)
    return b"RIFF" + struct.pack("<I", len(content)) + content


def extended(blob: bytes, flags: int = 0, before=(), behind=()) -> bytes:
    """With a VP8X chunk, and others around the picture."""
    (picture,) = [part for part in chunks(blob) if part[0] in (b"VP8 ", b"VP8L")]
    width, height = Image.open(io.BytesIO(blob)).size
    head = (
        struct.pack("<I", flags)
        + (width - 1).to_bytes(3, "little")
        + (height - 1).to_bytes(3, "little")
    )
    return joined([(b"VP8X", head), *before, picture, *behind])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_pillows_pixels(kind):
    blob = made(kind)
    got = native(blob)
    assert np.array_equal(got, by_pillow(blob))


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_parts_of_the_whole(kind):
    """At even and odd pixels, at the edges and within: chroma, which is smoothed, has half the
    size.
    """
    blob, rng = made(kind), np.random.default_rng(1)
    whole = native(blob)
    for _ in range(60):
        height, width = int(rng.integers(1, 61)), int(rng.integers(1, 83))
        top, left = int(rng.integers(0, 62 - height)), int(rng.integers(0, 84 - width))
        part = whole[top : top + height, left : left + width]
        assert np.array_equal(native(blob, (top, left, height, width)), part), (
            top,
            left,
            height,
            width,
        )


@pytest.mark.parametrize("filter", jpegs.FILTERS)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_scaled_as_defined(kind, filter):
    blob = made(kind)
    whole = by_pillow(blob)
    for box, size in (((0, 0, 61, 83), (50, 70)), ((30.5, 10.25, 20, 33), (40, 50))):
        want = jpegs.resized(whole, box, size, filter)
        for flip in ((False, False), (True, False), (False, True)):
            turned = want[:: -1 if flip[0] else 1, :: -1 if flip[1] else 1]
            assert (
                np.abs(native(blob, box, size, filter, flip).astype(float) - turned).max() <= 0.51
            ), (box, flip)


def smooth(height: int, width: int) -> np.ndarray:
    """Waves that are long enough for chroma of half the size."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 90 * np.sin(x / (25 + 9 * c) + c) * np.cos(y / (31 - c)) for c in range(3)]
    return np.stack(planes, axis=2).astype(np.uint8)


@pytest.mark.parametrize("by", [2, 4, 8])
@pytest.mark.parametrize("sides", [(160, 240), (161, 243), (167, 241), (163, 247)])
def test_lossy_files_are_shrunk_to_means(sides, by):
    """As far as the window stays 1.5 times its target; at the edges of what is left."""
    blob = webp(smooth(*sides), quality=100)
    whole = by_pillow(blob).astype(float)
    rows, columns = range(0, sides[0], by), range(0, sides[1], by)
    means = np.stack(
        [[whole[y : y + by, x : x + by].mean(axis=(0, 1)) for x in columns] for y in rows]
    )
    box, size = (
        np.array([0.0, 1.0, sides[0], sides[1] - 1.0]),
        (sides[0] * 2 // (3 * by), sides[1] * 2 // (3 * by) - 1),
    )
    want = jpegs.resized(means, box / by, size, "bilinear")
    off = np.abs(jpegs.decode_one(blob, box, size) - want)
    assert off.max() <= 2.5 and off.mean() <= 0.8, "chroma is not smoothed"


def test_shrunk_windows_are_parts_of_the_whole():
    blob, rng = webp(textured(163, 245), quality=90), np.random.default_rng(3)
    for by in (2, 4, 8):
        rows, columns = 163 // by, 245 // by
        box = np.array([(0, 0, rows * by, columns * by)], float)
        (whole,), _ = jpegs.decode([blob], box, (rows, columns), "box", enlarge=1.0)
        for _ in range(20):
            height, width = int(rng.integers(1, rows)), int(rng.integers(1, columns))
            top, left = (
                int(rng.integers(0, rows - height + 1)),
                int(rng.integers(0, columns - width + 1)),
            )
            box = np.array([(top, left, height, width)], float) * by
            (got,), _ = jpegs.decode([blob], box, (height, width), "box", enlarge=1.0)
            assert np.array_equal(got, whole[top : top + height, left : left + width]), (
                by,
                top,
                left,
            )


@pytest.mark.parametrize("kind", ["lossy", "lossless", "lossy with alpha"])
def test_orientation(kind):
    pixels, options = KINDS[kind]
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        blob = webp(pixels, exif=exif, **options)
        (header,) = NativeEngine(Decode()).probe([blob])
        assert isinstance(header, Header)
        shown = ImageOps.exif_transpose(Image.open(io.BytesIO(blob)))
        assert (header.height, header.width) == shown.size[::-1]
        got = native(blob)
        assert np.array_equal(got, by_pillow(blob)), orientation
        assert np.array_equal(native(blob, (5, 7, 31, 30)), got[5:36, 7:37])


LOSSY, LOSSLESS, TRANSPARENT = made("lossy"), made("lossless"), made("lossy with alpha")
EXIF_6 = b"II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0"
TAKEN = {
    "extended": extended(LOSSY),
    "unknown chunks": extended(LOSSY, before=[(b"ABCD", b"abc")], behind=[(b"EFGH", b"")]),
    "EXIF as in a JPEG": extended(LOSSY, 8, behind=[(b"EXIF", b"Exif\0\0" + EXIF_6)]),
    "two blocks of EXIF": extended(
        LOSSY, 8, behind=[(b"EXIF", EXIF_6), (b"EXIF", EXIF_6.replace(b"\6", b"\3"))]
    ),
    "alpha without its flag": joined(
        [(n, b"\0" + c[1:] if n == b"VP8X" else c) for n, c in chunks(TRANSPARENT)]
    ),
    "alpha without its flag, lossless": extended(made("lossless with alpha")),
    "EXIF without its flag": extended(LOSSY, 0, behind=[(b"EXIF", EXIF_6)]),
    "EXIF in a simple file": joined([*chunks(LOSSY), (b"EXIF", EXIF_6)]),
    "broken EXIF": extended(LOSSY, 8, behind=[(b"EXIF", EXIF_6[:15])]),
    "more behind the end": LOSSY + b"trailer",
}
frames = [Image.fromarray(PHOTO), Image.fromarray(255 - PHOTO)]
_file = io.BytesIO()
frames[0].save(_file, "WEBP", save_all=True, append_images=frames[1:])
ANIMATED = _file.getvalue()
LEFT_TO_PILLOW = {
    "animated": ANIMATED,
    "alpha behind the picture": joined([chunks(TRANSPARENT)[k] for k in (0, 2, 1)]),
    "two pictures": joined([*chunks(LOSSY), *chunks(LOSSY)]),
    "no picture": joined([(b"ABCD", b"")]),
    "another canvas": extended(LOSSY)[:24] + b"\0\1\0" + extended(LOSSY)[27:],
    "half": LOSSY[: len(LOSSY) // 2],
    "half, lossless": LOSSLESS[: len(LOSSLESS) // 2],
    "half, with alpha": TRANSPARENT[: len(TRANSPARENT) // 2],
    "without its last byte": LOSSY[:-1],
    "chunk that goes beyond the file": LOSSY[:16] + b"\xff\xff\xff\x7f" + LOSSY[20:],
    "no start code": LOSSY.replace(b"\x9d\x01\x2a", b"\x9d\x01\x2b"),
    "no signature": LOSSLESS[:20] + b"\0" + LOSSLESS[21:],
    "header alone": LOSSY[:30],
    "signature alone": LOSSY[:12],
    "half of what was coded, in a whole file": joined(
        [(n, c[: len(c) // 2]) for n, c in chunks(LOSSY)]
    ),
    "half of what was coded without loss": joined(
        [(n, c[: len(c) // 2]) for n, c in chunks(LOSSLESS)]
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_unusual_and_sound(name):
    got = native(TAKEN[name])
    assert not isinstance(got, DecodeFailure) and np.array_equal(got, by_pillow(TAKEN[name]))


@pytest.mark.parametrize("name", LEFT_TO_PILLOW)
def test_all_others_have_pillows_result(name):
    blob = LEFT_TO_PILLOW[name]
    assert isinstance(native(blob), DecodeFailure)
    assert same(routed(blob), by_pillow(blob))


def test_the_matte_shows_through():
    blob = webp(np.concatenate([PHOTO, np.zeros((61, 83, 1), np.uint8)], axis=2), lossless=True)
    assert (native(blob) == MATTE).all()


@pytest.mark.parametrize(
    "seed", [8, *(pytest.param(k, marks=pytest.mark.slow) for k in (9, 10, 11))]
)
def test_random_damage_has_pillows_result(seed):
    """Within what is coded, libwebp itself decodes the same from a file in pieces and from one at
    once.
    """
    rng, names = np.random.default_rng(seed), list(KINDS)
    for k in range(100):
        blob = bytearray(made(names[k % len(names)]))
        for _ in range(rng.integers(1, 4)):
            blob[rng.integers(8, min(len(blob), 60 if k % 2 else len(blob)))] = rng.integers(0, 256)
        want, got = by_pillow(bytes(blob)), routed(bytes(blob))
        assert same(got, want), (k, verdict(want), verdict(got))


@pytest.mark.skipif(
    not (real_data() / "bad-images").is_dir(), reason="the folder bad-images is not here"
)
def test_files_of_other_projects_have_pillows_result():
    for path in sorted((real_data() / "bad-images" / "webp").iterdir()):
        blob = path.read_bytes()
        assert same(routed(blob), by_pillow(blob)), path.name


def test_rows_below_a_window_are_not_decoded():
    """They may even be missing: what tells that nothing of them was looked at."""
    ((name, content),) = chunks(webp(textured(3000, 200), quality=90))
    whole = by_pillow(joined([(name, content)]))
    cut = joined([(name, content[: len(content) * 3 // 4])])
    got = native(cut, (0, 0, 400, 200))
    assert np.array_equal(got, whole[:400])
    assert isinstance(native(cut), DecodeFailure)


def test_a_stop_ends_between_rows():
    engine, stop = NativeEngine(Decode()), threading.Event()
    stop.set()
    headers = engine.probe([LOSSY])
    windows = Windows(
        np.array([[0, 0, 61, 83]], float), np.zeros((1, 2), bool), np.array([[61, 83]])
    )
    out = np.full((1, 61, 83, 3), 9, np.uint8)
    assert engine.decode(Request([LOSSY], headers, windows, "bilinear"), out, stop) == [None]
    assert (out == 9).all()
