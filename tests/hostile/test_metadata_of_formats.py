"""Metadata of WebP, GIF, JPEG 2000, AVIF and HEIC never decide whether pixels are read, in any
decoder.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers import heics
from helpers.avifs import avif, coded
from helpers.engines import by_pillow, routed
from helpers.heics import boxed, heic, picture
from helpers.jp2s import colr, jp2
from helpers.jpegs import textured
from helpers.preprocess import icc
from helpers.preprocess.rasters import decoded, info_of, preprocessed, saved
from PIL import Image, features

from fastfeed.decode import DecodeFailure
from fastfeed.decode.formats.heic import installed
from fastfeed.preprocess.pixels.transform import exif_columns

PHOTO = textured(48, 64)
READERS = (routed, by_pillow, preprocessed)
JUNK = {
    "empty": b"",
    "one byte": b"x",
    "a text": b"no TIFF, no XML, no profile" * 3,
    "half a TIFF": b"II*\0\x08\0\0\0\xff\xff",
    "a directory in itself": b"II*\0\x08\0\0\0\1\0\x69\x87\4\0\1\0\0\0\x08\0\0\0\x08\0\0\0",
    "a prefix": b"Exif\0\0",
    "ones": b"\xff" * 1000,
    "large": bytes(1_500_000),
    "tags outside of it": b"MM\0*\0\0\0\x08\0\x40" + b"\1\x0f\0\2\0\x7f\xff\xff\0\0\0\0" * 64,
}
FIELDS = ["time", "camera", "lens", "gps"]

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of Pillow, about EXIF


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"".join(
        name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)
        for name, content in chunks
    )
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def webps(junk: bytes) -> Iterator[bytes]:
    for lossless in (False, True):
        plain = saved(Image.fromarray(PHOTO), "WEBP", lossless=lossless)
        pixels = plain[12:16], plain[20 : 20 + int.from_bytes(plain[16:20], "little")]
        for flag, name in ((8, b"EXIF"), (4, b"XMP "), (32, b"ICCP"), (0, b"abcd")):
            size = b"".join((side - 1).to_bytes(3, "little") for side in (64, 48))
            head = (b"VP8X", struct.pack("<I", flag) + size)
            yield riff(head, (name, junk), pixels)
            yield riff(head, pixels, (name, junk), (name, junk))
        yield riff((b"VP8X", struct.pack("<I", 8 | 4 | 32) + size), pixels)


GIF = saved(Image.fromarray(PHOTO).convert("P"), "GIF")
GIF_HEAD = 13 + (6 << (GIF[10] & 7))


def chained(content: bytes, size: int = 255) -> bytes:
    """Data blocks of a GIF."""
    parts = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(bytes([len(part)]) + part for part in parts) + b"\0"


def gifs(junk: bytes) -> Iterator[bytes]:
    applications = (b"XMP DataXMP", b"ICCRGBG1012", b"NETSCAPE2.0", b"abc")
    extensions = [b"!\xff" + bytes([len(name)]) + name + chained(junk) for name in applications]
    extensions += [
        b"!\xfe" + chained(junk),
        b"!\xfe" + chained(junk[:2000], 1),
        b"!\1\x0c" + bytes(12) + chained(junk),
    ]
    extensions += [b"!\x77" + chained(junk), b"!\xf9\1\0\0", b"!\xf9\0", b"junk without a block"]
    for extension in [*extensions, b"".join(extensions)]:
        yield b"GIF89a" + GIF[6:GIF_HEAD] + extension + GIF[GIF_HEAD:]
        yield GIF[:-1] + extension + b";"


def jp2s(junk: bytes) -> Iterator[bytes]:
    for kind in (b"xml ", b"uuid", b"uinf", b"asoc", b"abcd"):
        box = boxed(kind, junk)
        yield jp2(PHOTO, inside=[box], before=[box], behind=[box])
    for box in (
        boxed(b"res ", junk),
        boxed(b"res ", boxed(b"resc", junk)),
        boxed(b"res ", boxed(b"resc", bytes(10))),
    ):
        yield jp2(PHOTO, inside=[box])
    yield jp2(PHOTO, colors=[colr(2, junk)])
    yield jp2(PHOTO, colors=[boxed(b"colr", junk[:2]), colr(1, 16), colr(2, junk)])


def avifs(junk: bytes) -> Iterator[bytes]:
    image = coded(PHOTO)
    for offset in (b"", bytes(4), b"\0\0\0\6", b"\xff" * 4):
        yield avif([image], metadata=[(b"Exif", offset + junk), (b"mime", junk)])
    for kind in (b"clli", b"pasp", b"uuid", b"mdcv", b"abcd"):
        yield avif([image], more=[boxed(kind, junk)])
    one = (b"av01", image.stream, image.properties)
    items = [one, one, (b"tmap", junk, [heics.ispe(48, 64)])]  # a gain map
    brands = (b"avif", b"mif1", b"miaf", b"tmap")
    yield heics.container(items, [(b"dimg", 3, [1, 2])], 1, brands, 0, alternatives=(3, 1))
    if junk:
        yield avif([image], more=[heics.icc(junk)])


def heic_files(junk: bytes) -> Iterator[bytes]:
    image = picture(PHOTO)
    for offset in (b"\0", bytes(4), b"\0\0\0\6", b"\xff" * 4):
        yield heic([image], metadata=offset + junk)
    for kind in (b"clli", b"pasp", b"mdcv", b"abcd"):
        yield heic([image], more=[boxed(kind, junk)])
    yield heic([image], more=[heics.icc(junk)])


has_avif = pytest.mark.skipif(not features.check("avif"), reason="Pillow without AVIF")
has_heic = pytest.mark.skipif(
    installed() is None, reason="no pi-heif; pip install 'fastfeed[heic]'"
)
FORMATS = [
    pytest.param(
        "WEBP",
        webps,
        marks=pytest.mark.skipif(not features.check("webp"), reason="Pillow without WebP"),
    ),
    pytest.param("GIF", gifs),
    pytest.param(
        "JPEG2000",
        jp2s,
        marks=pytest.mark.skipif(not features.check("jpg_2000"), reason="no OpenJPEG"),
    ),
    pytest.param("AVIF", avifs, marks=has_avif),
    pytest.param("HEIC", heic_files, marks=has_heic),
]


@pytest.mark.parametrize("name", JUNK)
@pytest.mark.parametrize(("format", "files"), FORMATS)
def test_metadata_never_decides_over_pixels(format: str, files: Any, name: str) -> None:
    wants: dict[int, list[Any]] = {}
    for k, blob in enumerate(files(JUNK[name])):
        got = [read(blob) for read in READERS]
        assert all(isinstance(pixels, np.ndarray) for pixels in got), (k, got)
        lossy = format == "WEBP" and k >= 9
        want = wants.setdefault(lossy, got)
        assert all(np.array_equal(*pair) for pair in zip(got, want, strict=True)), k
        assert exif_columns(blob, format, FIELDS) == dict.fromkeys(
            [f"exif_{field}" for field in FIELDS]
        )
    exact = {"WEBP": wants.get(True), "JPEG2000": wants[False], "HEIC": wants[False]}.get(format)
    assert exact is None or all(np.array_equal(pixels, PHOTO) for pixels in exact)


def test_the_control_of_a_frame_still_counts() -> None:
    """Its transparent color is no metadata."""
    image = Image.fromarray(PHOTO).convert("P")
    file = io.BytesIO()
    image.save(file, "GIF", transparency=image.getpixel((5, 7)), comment=b"a" * 1000)
    clear = np.asarray(image) == image.getpixel((5, 7))
    got = by_pillow(file.getvalue())
    assert isinstance(got, np.ndarray) and np.array_equal((got == got[7, 5]).all(axis=2), clear)


@pytest.mark.parametrize("end", [GIF_HEAD - 5, GIF_HEAD + 1, GIF_HEAD + 5, GIF_HEAD + 400])
def test_a_gif_that_ends_early_is_refused(end: int) -> None:
    blob = GIF[:GIF_HEAD] + b"!\xfe" + chained(b"a" * 300) + GIF[GIF_HEAD:]
    bad = by_pillow(blob[:end])
    assert isinstance(bad, DecodeFailure) and bad.reason in ("truncated", "corrupt")


@has_avif
def test_the_turn_of_an_avif_is_its_containers() -> None:
    """Whatever EXIF says, also of types that Pillow takes for it."""
    image = coded(PHOTO)
    for kind in (3, 8, 9, 2):
        exif = (
            b"\0\0\0\0MM\0*\0\0\0\x08\0\1" + struct.pack(">HHIHH", 0x0112, kind, 1, 6, 0) + bytes(4)
        )
        for more, turned in (([], PHOTO.shape), (heics.turns(6), (64, 48, 3))):
            got = by_pillow(avif([image], more=more, metadata=[(b"Exif", exif)]))
            assert isinstance(got, np.ndarray) and got.shape == turned, kind


@has_avif
def test_exif_of_an_avif_is_still_read() -> None:
    tags = b"MM\0*\0\0\0\x08\0\1" + b"\x01\x10\0\2\0\0\0\4Pi8\0" + bytes(4)  # the model
    blob = avif(
        [coded(PHOTO)], metadata=[(b"mime", b"<x/>"), (b"Exif", b"\0\0\0\6Exif\0\0" + tags)]
    )
    assert exif_columns(blob, "AVIF", ["camera", "time"]) == {
        "exif_camera": "Pi8",
        "exif_time": None,
    }


GRAY = PHOTO[..., 0]
ADOBE = colr(2, icc.rgb_profile("Adobe RGB"))
COLORS = {  # picture, boxes -> name
    "sRGB": (PHOTO, [colr(1, 16)], "sRGB"),
    "gray": (GRAY, [colr(1, 17)], "sRGB"),
    "a profile": (PHOTO, [ADOBE], "Adobe RGB"),
    "a profile of any kind": (PHOTO, [colr(3, icc.rgb_profile("Display P3"))], "Display P3"),
    "the first that is known": (PHOTO, [colr(4, b"vendor"), ADOBE, colr(1, 16)], "Adobe RGB"),
    "no colors": (PHOTO, [], "none"),
}


@pytest.mark.parametrize("name", COLORS)
def test_colors_of_jpeg_2000_are_recorded_and_converted(name: str) -> None:
    """ISO/IEC 15444-1, I.5.3.3."""
    pixels, colors, want = COLORS[name]
    blob = jp2(pixels, colors=colors)
    info = info_of(blob, icc=want, converts=want in ("Adobe RGB", "Display P3"))
    levels = np.broadcast_to(pixels.reshape(48, 64, -1), (48, 64, 3))
    assert np.array_equal(by_pillow(blob), levels), "a feed shows the file's levels"
    if not info.converts:
        assert np.array_equal(decoded(blob), levels)
    else:
        assert np.abs(decoded(blob) - icc.srgb_of(want, levels.astype(float))).max() <= 2


def test_inks_of_a_profile_are_no_transparency() -> None:
    inks = Image.fromarray(np.dstack([PHOTO, GRAY]), "CMYK")
    profile = bytes(16) + b"CMYK" + bytes(200)
    assert np.array_equal(
        by_pillow(jp2(inks, colors=[colr(2, profile)])), np.asarray(inks.convert("RGB"))
    )
    info_of(jp2(inks, colors=[colr(2, profile)]), icc="damaged", mode="CMYK", alpha=False)


@pytest.mark.parametrize(
    "box", [colr(1, 1), colr(1, 14), colr(1, 20), colr(2, bytes(16) + b"Lab " + bytes(200))]
)
def test_other_colors_of_jpeg_2000_are_refused_by_name(box: bytes) -> None:
    for read in READERS:
        bad = read(jp2(PHOTO, colors=[box]))
        assert (
            isinstance(bad, DecodeFailure)
            and bad.reason == "unsupported_format"
            and "colors" in bad.detail
        )


@pytest.mark.parametrize("place", ["before", "behind"])
def test_the_first_header_of_jpeg_2000_counts(place: str) -> None:
    """As in Pillow, of whichever boxes a second one has."""
    first = boxed(
        b"jp2h", boxed(b"ihdr", struct.pack(">IIHBBBB", 48, 64, 3, 7, 7, 0, 0)) + colr(1, 16)
    )
    blob = jp2(PHOTO, colors=[colr(2, icc.rgb_profile("Display P3"))])
    second = blob.index(b"jp2c") - 4
    blob = blob[:second] + first + blob[second:] if place == "before" else blob + first
    info_of(blob, icc="Display P3")
    assert np.array_equal(by_pillow(blob), PHOTO)
