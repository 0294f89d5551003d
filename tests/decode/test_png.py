"""PNGs in the native extension: Pillow's pixels from every sound file that it takes, and Pillow's
word on all others.
"""

from __future__ import annotations

import io
import threading
import zlib

import numpy as np
import pytest
from helpers import jpegs
from helpers.engines import by_pillow, native, routed, same, verdict
from helpers.jpegs import textured
from helpers.pngs import SIGNATURE, chunk, chunks, png
from helpers.real_data import real_data
from PIL import Image, ImageOps

from fastfeed.decode import DecodeFailure, Header, NativeEngine, Request
from fastfeed.ops import Decode
from fastfeed.ops.program.compile import Windows

pytestmark = pytest.mark.skipif(jpegs.native is None, reason=jpegs.NO_KERNEL)

RNG = np.random.default_rng(5)
PHOTO = textured(61, 83)
DEEP = PHOTO.astype(int) * 256 + RNG.integers(0, 256, PHOTO.shape)
COLORS = RNG.integers(0, 256, (256, 3))
ALPHA = np.where(
    RNG.integers(0, 3, (61, 83, 1)) < 2, RNG.integers(0, 2, (61, 83, 1)) * 255, PHOTO[..., 2:]
)
CLEAR = np.concatenate([PHOTO, ALPHA], axis=2)
DEEP_CLEAR = np.concatenate([DEEP, ALPHA * 257], axis=2)
KINDS = {
    "RGB": (PHOTO, 8, None),
    "RGB of 16 bits": (DEEP, 16, None),
    "gray": (PHOTO[..., :1], 8, None),
    "gray of 16 bits": (DEEP[..., :1], 16, None),
    "RGB with alpha": (CLEAR, 8, None),
    "RGB with alpha, of 16 bits": (DEEP_CLEAR, 16, None),
    "gray with alpha": (CLEAR[..., 2:], 8, None),
    "gray with alpha, of 16 bits": (DEEP_CLEAR[..., 2:], 16, None),
    **{f"gray of {n} bits": (PHOTO[..., :1] >> (8 - n), n, None) for n in (1, 2, 4)},
    **{
        f"palette of {n} bits": (PHOTO[..., :1] >> (8 - n), n, COLORS[: 1 << n])
        for n in (1, 2, 4, 8)
    },
}


def made(kind: str = "RGB", **options) -> bytes:
    samples, depth, palette = KINDS[kind]
    return png(samples, depth, palette=palette, **options)


@pytest.mark.parametrize(
    "filters", [(0,), (1,), (2,), (3,), (4,), (4, 4, 2), (0, 1, 2, 3, 4, 4, 3, 4)], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_and_filter_has_pillows_pixels(kind, filters):
    blob = made(kind, filters=filters)
    got = native(blob)
    assert np.array_equal(got, by_pillow(blob))
    assert np.array_equal(native(blob, (7, 5, 40, 60)), got[7:47, 5:65])


@pytest.mark.parametrize("piece", [1, 7, 100, 1 << 30])
@pytest.mark.parametrize(
    "how", [{"level": 0}, {"level": 1}, {"level": 9}, {"strategy": 4}, {"strategy": 2}], ids=str
)
def test_every_way_of_compressing(how, piece):
    """Stored, dynamic and fixed codes (zlib's strategy 4), literals alone (2); in pieces of any
    size.
    """
    blob = made(filters=(4, 1, 3, 2), piece=piece, **how)
    at = blob.index(b"IDAT") - 4
    blob = blob[:at] + chunk(b"IDAT", b"") + blob[at:]
    assert np.array_equal(native(blob), PHOTO)


@pytest.mark.parametrize("samples", ["noise", "zeros", "stripes", "long repeats"])
def test_large_images_of_any_redundancy(samples):
    """More than the decompressor keeps at once, with matches of every distance and length."""
    pixels = {
        "noise": RNG.integers(0, 256, (700, 500, 3)),
        "zeros": np.zeros((2000, 900, 3), int),
        "stripes": np.tile(RNG.integers(0, 256, (1, 900, 3)), (900, 1, 1)),
        "long repeats": np.tile(RNG.integers(0, 256, (11, 990, 3)), (50, 1, 1)),
    }[samples]
    blob = png(pixels)
    assert np.array_equal(native(blob), pixels)
    assert np.array_equal(native(blob, (300, 200, 200, 250)), pixels[300:500, 200:450])


@pytest.mark.parametrize("filter", jpegs.FILTERS)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_scaled_as_defined(kind, filter):
    """Pillow itself clamps between its two passes, and cuts the window of deep and shallow images
    out first.
    """
    blob = made(kind, filters=(4,))
    whole = by_pillow(blob)
    for box, size in (((0, 0, 61, 83), (20, 30)), ((30.5, 10.25, 20, 33), (40, 50))):
        want = jpegs.resized(whole, box, size, filter)
        for flip in ((False, False), (True, False), (False, True)):
            got = native(blob, box, size, filter, flip).astype(float)
            turned = want[:: -1 if flip[0] else 1, :: -1 if flip[1] else 1]
            assert np.abs(got - turned).max() <= 0.51, (box, flip)


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
@pytest.mark.parametrize("entries", [1, 2, 200])
def test_alpha_of_a_palette(depth, entries):
    """Of the first colors; the others are opaque."""
    alpha = bytes(RNG.integers(0, 256, min(entries, 1 << depth)).astype(np.uint8))
    kind = f"palette of {depth} bits"
    blob = made(kind, before=chunk(b"tRNS", alpha))
    got = native(blob)
    assert np.array_equal(got, by_pillow(blob))
    shows = (KINDS[kind][0] < len(alpha)).any()
    assert np.array_equal(got, native(made(kind))) != shows


def test_orientation_in_front_of_the_pixels_and_behind_them():
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        held = chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0"))
        for blob in (made(before=held), made(behind=held)):
            (header,) = NativeEngine(Decode()).probe([blob])
            assert isinstance(header, Header)
            shown = ImageOps.exif_transpose(Image.open(io.BytesIO(made(before=held))))
            assert np.array_equal(native(blob), np.asarray(shown)), orientation


def changed(blob: bytes, name: bytes, content) -> bytes:
    """With other content, and the right checksum."""
    return SIGNATURE + b"".join(chunk(n, content(c) if n == name else c) for n, c in chunks(blob))


def recompressed(blob: bytes, content) -> bytes:
    return changed(blob, b"IDAT", lambda data: zlib.compress(content(zlib.decompress(data))))


SOUND = made(filters=(4, 2))
LEFT_TO_PILLOW = {
    "interlaced": png(PHOTO, interlaced=True),
    "alpha of more colors than there are": made(
        "palette of 4 bits", before=chunk(b"tRNS", bytes(17))
    ),
    "alpha of no color": made("palette of 4 bits", before=chunk(b"tRNS", b"")),
    "alpha of a palette twice": made(
        "palette of 4 bits", before=chunk(b"tRNS", b"\1\2") + chunk(b"tRNS", b"\3")
    ),
    "alpha of a palette behind the pixels": made(
        "palette of 4 bits", behind=chunk(b"tRNS", b"\1\2")
    ),
    "alpha of a palette, and alpha": made("RGB with alpha", before=chunk(b"tRNS", b"\1\2")),
    "name of no letters": made(before=chunk(b"a-bc", b"")),
    "another chunk that matters": made(before=chunk(b"ABCD", b"")),
    "index without a color": png(KINDS["palette of 8 bits"][0], palette=COLORS[:9]),
    "no palette": changed(made("palette of 8 bits"), b"PLTE", lambda _: b""),
    "wrong checksum of the pixels": SOUND.replace(chunks(SOUND)[1][1][-9:], b"x" * 9),
    "wrong checksum of the stream": changed(SOUND, b"IDAT", lambda data: data[:-4] + b"abcd"),
    "no zlib stream": changed(SOUND, b"IDAT", lambda data: b"\x79" + data[1:]),
    "stream that ends early": changed(SOUND, b"IDAT", lambda data: data[:-400]),
    "too few rows": recompressed(SOUND, lambda rows: rows[:-100]),
    "too many rows": recompressed(SOUND, lambda rows: rows + bytes(100)),
    "no such filter": recompressed(SOUND, lambda rows: b"\5" + rows[1:]),
    "no end": SOUND[:-12],
    "half": SOUND[: len(SOUND) // 2],
    "pixels in two places": (
        made(piece=500).replace(chunk(b"IEND", b""), chunk(b"IDAT", b"") + chunk(b"IEND", b""))
    ),
    "no pixels": changed(SOUND, b"IDAT", lambda _: b""),
    "no header": SIGNATURE + chunk(b"IEND", b""),
    "signature alone": SIGNATURE,
}


@pytest.mark.parametrize("name", LEFT_TO_PILLOW)
def test_all_others_have_pillows_result(name):
    blob = LEFT_TO_PILLOW[name]
    assert same(routed(blob), by_pillow(blob))


def test_who_decodes():
    engine = NativeEngine(Decode())
    taken = {
        name: not isinstance(native(blob), DecodeFailure) for name, blob in LEFT_TO_PILLOW.items()
    }
    assert {name for name, is_taken in taken.items() if is_taken} == {"pixels in two places"}
    assert all(
        isinstance(header, Header) for header in engine.probe([made(kind) for kind in KINDS])
    )
    assert engine.probe([made(), b"\xff\xd8\xff"])[0].format == "PNG"


def test_chunks_that_are_no_part_of_the_pixels_do_not_matter():
    for name, extra in {
        "animated": chunk(b"acTL", bytes(7) + b"\1" + bytes(4)),
        "profile compressed in another way": chunk(b"iCCP", b"a\0\1"),
        "part of an animation": chunk(b"fcTL", b""),
        "chromaticities cut off": chunk(b"cHRM", bytes(31)),
        "wrong checksum of a text": chunk(b"tEXt", b"a\0b")[:-1] + b"?",
    }.items():
        for blob in (made(before=extra), made(behind=extra)):
            assert np.array_equal(native(blob), PHOTO), name
            assert np.array_equal(by_pillow(blob), PHOTO), name


def test_damage_below_a_window_is_found():
    blob = bytearray(made(filters=(4,)))
    blob[-60] ^= 1
    assert isinstance(native(bytes(blob), (0, 0, 5, 80)), DecodeFailure)
    assert routed(bytes(blob), (0, 0, 5, 80)) == by_pillow(bytes(blob), (0, 0, 5, 80))


def test_rows_below_a_window_are_not_unpacked():
    """They may even be missing: what tells that nothing of them was looked at."""
    tall = textured(3000, 200)
    blob = png(tall, filters=(4,))
    broken = changed(blob, b"IDAT", lambda data: data[: len(data) - 200_000])
    assert np.array_equal(native(broken, (0, 0, 400, 200)), tall[:400])
    assert isinstance(native(broken), DecodeFailure)


@pytest.mark.parametrize(
    "seed", [8, *(pytest.param(k, marks=pytest.mark.slow) for k in (9, 10, 11))]
)
def test_random_damage_has_pillows_result(seed):
    rng = np.random.default_rng(seed)
    names = list(KINDS)
    for k in range(150):
        blob = bytearray(made(names[k % len(names)], filters=(4, 3, 1), piece=300))
        for _ in range(rng.integers(1, 4)):
            blob[rng.integers(8, len(blob))] = rng.integers(0, 256)
        if k % 3 == 0:  # with the right checksums, so that the damage is met later
            blob = bytearray(
                SIGNATURE + b"".join(chunk(n, c) for n, c in chunks(bytes(blob)) if len(n) == 4)
            )
        want, got = by_pillow(bytes(blob)), routed(bytes(blob))
        assert same(got, want), (k, verdict(want), verdict(got))


@pytest.mark.skipif(
    not (real_data() / "bad-images").is_dir(), reason="the folder bad-images is not here"
)
def test_files_of_other_projects_have_pillows_result():
    for path in sorted((real_data() / "bad-images" / "png").iterdir()):
        blob = path.read_bytes()
        assert same(routed(blob), by_pillow(blob)), path.name


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
