"""One rule says how a file is turned: every place, type and byte order of every format, and all who
decode.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import jpegs, tiffs
from helpers.engines import by_pillow, native, routed
from helpers.jpegs import NO_KERNEL, textured
from helpers.pngs import chunk
from PIL import Image, features

from fastfeed.decode import DecodeFailure, NativeEngine, PillowEngine
from fastfeed.decode.formats.exif import jpeg_exifs
from fastfeed.ops import Decode
from fastfeed.preprocess.pixels.image_info import ImageInfo, image_info
from fastfeed.runtime.extension import is_built

TURN = 6
PHOTO = textured(40, 64)
TYPES = {
    "BYTE": (1, "Bxxx"),
    "SHORT": (3, "Hxx"),
    "LONG": (4, "I"),
    "SLONG": (9, "i"),
    "ASCII": (2, "4s"),
}
COUNTED = ("BYTE", "SHORT", "LONG")  # TIFF 6.0, section 2: readers should accept any of them
XMP = (
    b'<x:xmpmeta xmlns:tiff="http://ns.adobe.com/tiff/1.0/"><rdf tiff:Orientation="6"/></x:xmpmeta>'
)


def exif(
    order: str = "II", kind: str = "SHORT", value: int = TURN, count: int = 1, others: int = 0
) -> bytes:
    """A block whose directory has the orientation, after some other entries."""
    sign = "<" if order == "II" else ">"
    number, code = TYPES[kind]
    content = b"%d\0\0\0" % value if kind == "ASCII" else value
    entries = [struct.pack(sign + "HHIHxx", 0x0100 + k, 3, 1, 8) for k in range(others)]
    entries.append(struct.pack(sign + "HHI" + code, 0x0112, number, count, content))
    head = order.encode() + struct.pack(sign + "HIH", 42, 8, len(entries))
    return head + b"".join(entries) + bytes(4)


def saved(format: str, mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PHOTO).convert(mode).save(file, format, **options)
    return file.getvalue()


def segment(content: bytes) -> bytes:
    return b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content


def in_jpeg(mode: str = "RGB", **options: Any) -> Callable[[bytes], bytes]:
    blob = saved("JPEG", mode, quality=90, **options)
    return lambda content: blob[:2] + segment(content) + blob[2:]


def in_png(name: bytes, behind: bool = False) -> Callable[[bytes], bytes]:
    blob = saved("PNG")
    at = blob.index(b"IEND") - 4 if behind else 33
    return lambda content: blob[:at] + chunk(name, content) + blob[at:]


def in_webp(name: bytes, flags: int, **options: Any) -> Callable[[bytes], bytes]:
    picture = saved("WEBP", **options)[12:]
    extended = struct.pack("<4sIB3x", b"VP8X", 10, flags) + b"\x3f\0\0\x27\0\0"

    def made(content: bytes) -> bytes:
        body = b"WEBP" + extended + picture + name + struct.pack("<I", len(content)) + content
        body += b"\0" * (len(body) % 2)
        return b"RIFF" + struct.pack("<I", len(body)) + body

    return made


def in_tiff(order: str, kind: str, value: int) -> bytes:
    number = TYPES[kind][0]
    return tiffs.tiff(PHOTO, big=order == "MM", tags={274: (number, [value])})


PREFIX = b"Exif\0\0"
EXIF_PLACES: dict[str, Callable[[bytes], bytes]] = {
    "JPEG": lambda block: in_jpeg()(PREFIX + block),
    "gray JPEG": lambda block: in_jpeg("L")(PREFIX + block),
    "CMYK JPEG": lambda block: in_jpeg("CMYK")(PREFIX + block),
    "progressive JPEG": lambda block: in_jpeg(progressive=True)(PREFIX + block),
    "JPEG behind XMP": (
        lambda block: in_jpeg()(b"http://ns.adobe.com/xap/1.0/\0" + XMP).replace(
            XMP, XMP + segment(PREFIX + block), 1
        )
    ),
    "PNG": in_png(b"eXIf"),
    "PNG behind the pixels": in_png(b"eXIf", behind=True),
    "PNG with a JPEG's prefix": lambda block: in_png(b"eXIf")(PREFIX + block),
    "WebP": in_webp(b"EXIF", 8),
    "lossless WebP": in_webp(b"EXIF", 8, lossless=True),
    "WebP with a JPEG's prefix": lambda block: in_webp(b"EXIF", 8)(PREFIX + block),
}


def text(keyword: bytes, content: bytes) -> bytes:
    return keyword + b"\0\0\0\0\0" + content


NEVER = {  # an orientation where none counts
    "XMP of a JPEG": in_jpeg()(b"http://ns.adobe.com/xap/1.0/\0" + XMP),
    "XMP of a CMYK JPEG": in_jpeg("CMYK")(b"http://ns.adobe.com/xap/1.0/\0" + XMP),
    "XMP of a PNG": in_png(b"iTXt")(text(b"XML:com.adobe.xmp", XMP)),
    "XMP of a WebP": in_webp(b"XMP ", 4)(XMP),
    "XMP of a TIFF": tiffs.tiff(PHOTO, tags={700: (1, list(XMP))}),
    "text of a PNG": in_png(b"tEXt")(
        b"Raw profile type exif\0\nexif\n"
        + b"%8d\n" % len(exif())
        + (PREFIX + exif()).hex().encode()
        + b"\n"
    ),
    "EXIF of a WebP without its flag": in_webp(b"EXIF", 0)(exif()),
    "EXIF of a simple WebP": saved("WEBP") + b"EXIF" + struct.pack("<I", len(exif())) + exif(),
    "a JPEG's first scan": in_jpeg()(b"").replace(segment(b""), b"") + segment(PREFIX + exif()),
    "a type that is signed": in_jpeg()(PREFIX + exif(kind="SLONG")),
    "a text": in_jpeg()(PREFIX + exif(kind="ASCII")),
    "two numbers": in_jpeg()(PREFIX + exif(count=2)),
    "nine": in_jpeg()(PREFIX + exif(value=9)),
    "zero": in_jpeg()(PREFIX + exif(value=0)),
    "nine in a TIFF": in_tiff("II", "SHORT", 9),
    "two directories that end early": in_jpeg()(PREFIX + exif()[:15]),
    "neither II nor MM": in_jpeg()(PREFIX + b"XX" + exif()[2:]),
}
if features.check("avif"):
    NEVER["XMP of an AVIF"] = saved("AVIF", xmp=XMP)


def verdicts(
    blob: bytes,
) -> Iterator[tuple[str, tuple[int, int], int | None, np.ndarray | DecodeFailure]]:
    """Who looks, and the size, the orientation and the pixels of whole images."""
    (header,) = PillowEngine(Decode()).probe([blob])
    assert not isinstance(header, DecodeFailure), header
    yield "Pillow", (header.height, header.width), header.handle.orientation, by_pillow(blob)
    info = image_info(blob)
    assert isinstance(info, ImageInfo), info
    yield "preprocess", (info.height, info.width), info.orientation, by_pillow(blob)
    if is_built():
        yield "both", (info.height, info.width), None, routed(blob)
        (header,) = NativeEngine(Decode()).probe([blob])
        if not isinstance(header, DecodeFailure):
            yield "kernel", (header.height, header.width), None, native(blob)


def check(blob: bytes, orientation: int) -> None:
    shape = PHOTO.shape[:2] if orientation < 5 else PHOTO.shape[1::-1]
    pixels = dict[str, np.ndarray]()
    for who, size, found, got in verdicts(blob):
        assert size == shape and found in (None, orientation), who
        assert not isinstance(got, DecodeFailure), (who, got)
        pixels[who] = got
    upright = np.rot90(PHOTO, -1) if orientation == TURN else PHOTO
    for who, got in pixels.items():
        assert np.abs(got.mean(axis=2) - upright.mean(axis=2)).mean() < 20, who


@pytest.mark.parametrize("kind", COUNTED)
@pytest.mark.parametrize("order", ["II", "MM"])
@pytest.mark.parametrize("place", EXIF_PLACES)
def test_exif_counts_as_any_unsigned_integer(place: str, order: str, kind: str) -> None:
    check(EXIF_PLACES[place](exif(order, kind)), TURN)
    check(EXIF_PLACES[place](exif(order, kind, value=1)), 1)
    check(EXIF_PLACES[place](exif(order, kind, others=3)), TURN)


@pytest.mark.parametrize("kind", COUNTED)
@pytest.mark.parametrize("order", ["II", "MM"])
def test_a_tiff_has_its_tag(order: str, kind: str) -> None:
    check(in_tiff(order, kind, TURN), TURN)
    check(in_tiff(order, kind, 1), 1)


def test_a_big_tiff() -> None:
    check(saved("TIFF", big_tiff=True, tiffinfo={0x0112: TURN}), TURN)


@pytest.mark.skipif(not features.check("avif"), reason="Pillow without AVIF")
def test_an_avif_is_turned_by_its_container_alone() -> None:
    block = Image.Exif()
    block[0x0112] = TURN
    turned = saved("AVIF", exif=block, quality=95)
    assert b"irot" in turned
    check(turned, TURN)
    block = Image.Exif()
    block[0x010E] = "a description"
    written = block.tobytes().removeprefix(PREFIX)
    kept = saved("AVIF", exif=block, quality=95)
    assert written in kept
    check(kept.replace(written, exif().ljust(len(written), b"\0")), 1)


@pytest.mark.parametrize("name", NEVER)
def test_nothing_else_counts(name: str) -> None:
    check(NEVER[name], 1)


@pytest.mark.skipif(not is_built(), reason=NO_KERNEL)
def test_a_gpu_never_gets_a_jpeg_that_others_would_turn_otherwise() -> None:
    plain = jpegs.native.plain_jpegs
    odd = [exif("MM", "BYTE"), exif("II", "LONG"), exif(count=2)]
    assert plain([in_jpeg()(PREFIX + block) for block in odd]) == [False] * 3
    assert plain([in_jpeg()(PREFIX + exif()), in_jpeg()(PREFIX + exif("MM"))]) == [True, True]
    twice = in_jpeg()(PREFIX + exif())
    assert plain([twice[:2] + segment(PREFIX + exif()) + twice[2:]]) == [False], (
        "on which nvImageCodec 0.9 crashes"
    )


def test_a_jpeg_that_ends_in_fill_bytes_is_looked_through_once() -> None:
    """Each search from one of them to the end would take hours."""
    assert jpeg_exifs(b"\xff\xd8" + b"\xff" * 1_000_000) == []
    assert jpeg_exifs(b"\xff\xd8\xff\xff\xff\xe1\0\x0aExif\0\0II\xff") == [b"II"]
