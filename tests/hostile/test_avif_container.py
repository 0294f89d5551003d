"""What an AVIF's container says of the picture in it: its clean aperture and its colors."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from helpers.avifs import boxes, saved
from helpers.engines import by_pillow
from helpers.heics import boxed
from helpers.jpegs import textured
from PIL import Image, ImageCms, features

from fastfeed.decode import DecodeFailure, PillowEngine
from fastfeed.decode.formats.avif import AvifFile
from fastfeed.decode.formats.container import Container
from fastfeed.ops import Decode
from fastfeed.preprocess.pixels.decode import Rasterizer
from fastfeed.preprocess.pixels.image_info import ImageInfo, image_info

pytestmark = pytest.mark.skipif(not features.check("avif"), reason="Pillow without AVIF")

HEIGHT, WIDTH = 48, 64
PHOTO = textured(HEIGHT, WIDTH)
SRGB, PQ, P3, UNKNOWN = (1, 13), (9, 16), (12, 13), (2, 2)  # the coded picture says sRGB


def joined(parts: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(boxed(*part) for part in parts)


def with_property(blob: bytes, added: bytes) -> bytes:
    """With one more property of the picture; places of data move."""
    (ftyp, meta, mdat) = boxes(blob)
    fixed, inner = meta[1][:4], dict(boxes(meta[1][4:]))
    properties, uses = (content for _, content in boxes(inner[b"iprp"]))
    count, number = uses[10], len(boxes(properties)) + 1
    uses = (
        uses[:10]
        + bytes([count + 1])
        + uses[11 : 11 + count]
        + bytes([number | 0x80])
        + uses[11 + count :]
    )
    inner[b"iprp"] = joined([(b"ipco", properties + added), (b"ipma", uses)])
    iloc = inner[b"iloc"]
    place = int.from_bytes(iloc[-8:-4], "big") + len(added) + 1
    inner[b"iloc"] = iloc[:-8] + struct.pack(">I", place) + iloc[-4:]
    return joined([ftyp, (b"meta", fixed + joined(list(inner.items()))), mdat])


def clap(*fractions: tuple[int, int]) -> bytes:
    """Width, height, and how far the center is from the picture's."""
    return boxed(b"clap", b"".join(struct.pack(">iI", *fraction) for fraction in fractions))


def colored(signal: tuple[int, int], **options: Any) -> bytes:
    blob = saved(PHOTO, **options)
    written = b"nclx" + struct.pack(">HH", *SRGB)
    assert written in blob
    return blob.replace(written, b"nclx" + struct.pack(">HH", *signal))


CUTS = {  # a box -> left, top, width, height
    "centered": (clap((40, 1), (20, 1), (0, 1), (0, 1)), (12, 14, 40, 20)),
    "at the top left": (clap((40, 1), (20, 1), (-12, 1), (-14, 1)), (0, 0, 40, 20)),
    "at the bottom right": (clap((41, 1), (21, 1), (23, 2), (27, 2)), (23, 27, 41, 21)),
    "in halves": (clap((80, 2), (40, 2), (4, 2), (0, 7)), (14, 14, 40, 20)),
}
WHOLE = {
    "of half pixels": clap((41, 1), (20, 1), (0, 1), (0, 1)),
    "beyond the picture": clap((40, 1), (20, 1), (13, 1), (0, 1)),
    "of no width": clap((0, 1), (20, 1), (0, 1), (0, 1)),
    "divided by zero": clap((40, 0), (20, 1), (0, 1), (0, 1)),
    "cut off": boxed(b"clap", bytes(12)),
}


@pytest.mark.parametrize("name", CUTS)
def test_a_clean_aperture_is_all_that_is_shown(name: str) -> None:
    box, (left, top, width, height) = CUTS[name]
    whole = by_pillow(saved(PHOTO))
    blob = with_property(saved(PHOTO), box)
    got = by_pillow(blob)
    assert not isinstance(got, DecodeFailure) and not isinstance(whole, DecodeFailure), got
    assert np.array_equal(got, whole[top : top + height, left : left + width])
    info = image_info(blob)
    assert isinstance(info, ImageInfo) and (info.height, info.width) == (height, width)
    pixels = Rasterizer().pixels(blob, info, (0, 0, height, width), (height, width))
    assert not isinstance(pixels, DecodeFailure) and np.array_equal(pixels, got)


def test_the_aperture_is_cut_before_the_picture_is_turned() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    box, (left, top, width, height) = CUTS["at the bottom right"]
    got, whole = by_pillow(with_property(saved(PHOTO, exif=exif), box)), by_pillow(saved(PHOTO))
    assert not isinstance(got, DecodeFailure) and not isinstance(whole, DecodeFailure)
    assert np.array_equal(got, np.rot90(whole[top : top + height, left : left + width], -1))


def test_the_first_of_several_apertures_counts() -> None:
    """As in libavif."""
    first = with_property(saved(PHOTO), CUTS["centered"][0])
    both = with_property(first, CUTS["at the top left"][0])
    assert np.array_equal(by_pillow(both), by_pillow(first))


@pytest.mark.parametrize("name", WHOLE)
def test_an_aperture_of_nonsense_cuts_nothing(name: str) -> None:
    got, whole = by_pillow(with_property(saved(PHOTO), WHOLE[name])), by_pillow(saved(PHOTO))
    assert isinstance(got, DecodeFailure) or np.array_equal(got, whole)


def test_limits_hold_for_what_is_decoded() -> None:
    blob = with_property(saved(PHOTO), CUTS["centered"][0])
    (bad,) = PillowEngine(Decode(max_pixels=1000)).probe([blob])
    assert isinstance(bad, DecodeFailure) and bad.reason == "bomb"


@pytest.mark.parametrize(
    ("signal", "name"), [(SRGB, "sRGB"), (P3, "Display P3"), (PQ, "BT.2020 PQ"), (UNKNOWN, "sRGB")]
)
def test_colors_without_a_profile_are_recorded_and_converted(
    signal: tuple[int, int], name: str
) -> None:
    blob = colored(signal)
    info = image_info(blob)
    assert isinstance(info, ImageInfo) and info.icc == name
    stored = by_pillow(blob)
    got = Rasterizer().pixels(blob, info, (0, 0, HEIGHT, WIDTH), (HEIGHT, WIDTH))
    assert not isinstance(got, DecodeFailure) and not isinstance(stored, DecodeFailure)
    assert np.array_equal(got, stored) == (name == "sRGB")


def test_a_profile_counts_before_the_container() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    written = b"nclx" + struct.pack(">HH", *UNKNOWN)
    blob = saved(PHOTO, icc_profile=profile)
    assert written in blob
    blob = blob.replace(written, b"nclx" + struct.pack(">HH", *PQ))
    image = AvifFile(io.BytesIO(blob), "")
    assert "icc_profile" in image.info and "signal" not in image.info


def test_damaged_containers_say_nothing() -> None:
    blob, rng = saved(PHOTO), np.random.default_rng(0)
    end = blob.index(b"mdat")
    files = [blob[:at] for at in range(0, end, 5)]
    for _ in range(300):
        damaged = bytearray(blob)
        for at in rng.integers(0, end, 3):
            damaged[at] = int(rng.integers(256))
        files.append(bytes(damaged))
    for file in files:
        container = Container(file)
        assert len(container.properties()) + len(container.tile_properties()) < 100
        assert len(container.coded(4096)) <= 4096 and len(container.exif(100)) <= 100
        assert len(container.without_metadata()) == len(file)
    assert Container(b"").properties() == [] and Container(blob[:60]).properties() == []
