"""Files that are passed on as they are: only those in which every reader sees what it would see in
a new one.
"""

from __future__ import annotations

import hashlib
import io
from typing import Any

import numpy as np
import pytest
from helpers.jpegs import NO_KERNEL, native, with_orientation
from helpers.photos import picture
from helpers.preprocess.rasters import without_kernel
from helpers.preprocess.transforming import pixels_of, processed, saved_as, transformed
from PIL import Image, ImageCms

from fastfeed.decode.base import DecodeFailure
from fastfeed.preprocess.model.recipe import Encoding, Scaling
from fastfeed.preprocess.pixels.transform import decodes_alike

PIXELS = picture(2, (48, 64), detail=3)
RGB = Image.fromarray(PIXELS)
CLEAR = Image.fromarray(np.dstack([PIXELS, PIXELS[:, :, 1]]))
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
needs_kernel = pytest.mark.skipif(native is None, reason=NO_KERNEL)
LARGE = Scaling(100)


def keeping(image: str) -> Encoding:
    return Encoding(image, keep_small=True)


def other_colors() -> bytes:
    """An sRGB profile whose red and green have changed places."""
    profile = bytearray(SRGB)
    red, green = profile.index(b"rXYZ"), profile.index(b"gXYZ")
    profile[red], profile[green] = b"gr"
    return bytes(profile)


KEPT: list[tuple[str, bytes]] = [
    ("jpeg", saved_as(RGB, "JPEG")),
    ("jpeg", saved_as(RGB, "JPEG", progressive=True, quality=40)),
    ("jpeg", saved_as(RGB, "JPEG", optimize=True, subsampling=1)),
    ("jpeg", saved_as(RGB, "JPEG", icc_profile=SRGB)),
    ("jpeg", saved_as(RGB, "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0")),
    ("jpeg", with_orientation(PIXELS, 1, big=True)),
    ("png", saved_as(RGB, "PNG")),
    ("webp", saved_as(RGB, "WEBP", quality=70)),
    ("webp", saved_as(RGB, "WEBP", lossless=True, icc_profile=SRGB)),
]


@needs_kernel
@pytest.mark.parametrize("image,blob", KEPT)
@pytest.mark.parametrize(
    "scaling", [LARGE, Scaling(None, "none"), Scaling(48), Scaling((48, 64), "cover")], ids=str
)
def test_kept(image: str, blob: bytes, scaling: Scaling) -> None:
    found = processed(blob, scaling, keeping(image))
    assert found.image == blob and found.facts["kept"] is True
    assert (found.height, found.width) == (48, 64) and found.extension == Encoding(image).extension
    assert found.facts["sha256"] == hashlib.sha256(found.image).hexdigest()
    again = processed(blob, scaling, Encoding(image))
    assert again.facts["kept"] is False and again.image != blob


def fewer_scans() -> bytes:
    """A progressive file that ends, in good order, before its last scans."""
    blob = saved_as(RGB, "JPEG", progressive=True)
    scans = [at for at in range(len(blob)) if blob[at : at + 2] == b"\xff\xda"]
    tables = blob.rindex(b"\xff\xc4", 0, scans[3])  # in front of the fourth scan
    return blob[:tables] + b"\xff\xd9"


CHANGED: list[tuple[str, bytes]] = [
    ("jpeg", saved_as(RGB, "PNG")),
    ("jpeg", saved_as(RGB, "WEBP")),
    ("jpeg", with_orientation(PIXELS, 3, big=True)),
    ("jpeg", saved_as(RGB.convert("L"), "JPEG")),
    ("jpeg", saved_as(RGB.convert("CMYK"), "JPEG")),
    ("jpeg", saved_as(RGB, "JPEG", icc_profile=other_colors())),
    ("jpeg", saved_as(RGB, "JPEG", icc_profile=b"no profile")),
    ("jpeg", saved_as(RGB, "JPEG") + b"a film"),
    ("jpeg", saved_as(RGB, "MPO", save_all=True, append_images=[RGB])),
    ("jpeg", saved_as(RGB, "JPEG")[:2] + b"\xff\xe0\x00\x07JFIF\x00" + saved_as(RGB, "JPEG")[2:]),
    ("jpeg", fewer_scans()),
    ("png", saved_as(RGB, "JPEG")),
    ("png", saved_as(CLEAR, "PNG")),
    ("png", saved_as(RGB.convert("P"), "PNG")),
    ("png", saved_as(RGB.convert("L"), "PNG")),
    ("png", saved_as(Image.fromarray(PIXELS[:, :, 0].astype(np.uint16) * 257), "PNG")),
    ("png", saved_as(RGB, "PNG", transparency=(1, 2, 3))),
    (
        "png",
        saved_as(
            RGB, "PNG", save_all=True, append_images=[RGB.transpose(Image.Transpose.ROTATE_180)]
        ),
    ),
    ("png", saved_as(RGB, "PNG") + b"more"),
    (
        "png",
        saved_as(
            RGB, "PNG", exif=b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
        ),
    ),
    ("webp", saved_as(CLEAR, "WEBP")),
    (
        "webp",
        saved_as(
            RGB, "WEBP", save_all=True, append_images=[RGB.transpose(Image.Transpose.ROTATE_180)]
        ),
    ),
    ("webp", saved_as(RGB, "WEBP") + b"more"),
    ("raw", saved_as(RGB, "PNG")),
]


@pytest.mark.parametrize("image,blob", CHANGED)
def test_written_again(image: str, blob: bytes) -> None:
    found = processed(blob, LARGE, keeping(image))
    assert found.facts["kept"] is False and found.image != blob
    assert found.image == processed(blob, LARGE, Encoding(image)).image
    assert pixels_of(found).shape == (found.height, found.width, 3), (
        "all readers see three channels"
    )


@pytest.mark.parametrize(
    "scaling",
    [
        Scaling(47),
        Scaling((48, 63), "cover"),
        Scaling(100, enlarge=True),
        Scaling(100, "contain"),
        Scaling((48, 60), "exact"),
    ],
    ids=str,
)
@pytest.mark.parametrize("image,format", [("jpeg", "JPEG"), ("png", "PNG"), ("webp", "WEBP")])
def test_of_another_size(scaling: Scaling, image: str, format: str) -> None:
    blob = saved_as(RGB, format)
    found = processed(blob, scaling, keeping(image))
    assert found.facts["kept"] is False and found.image != blob
    assert pixels_of(found).shape == (found.height, found.width, 3)


def damaged() -> list[tuple[str, bytes, str]]:
    jpeg, png, webp = (saved_as(RGB, format, **options) for format, options in FORMATS)
    scan = jpeg.index(b"\xff\xda") + 14
    return [
        ("jpeg", jpeg[: len(jpeg) // 2], "truncated"),
        ("jpeg", jpeg[:-40] + b"\xff\xd9", "corrupt"),
        ("jpeg", jpeg[: scan + 100] + b"\xff\xd9", "corrupt"),
        ("jpeg", jpeg[: scan + 200] + b"\xff\xc4" + jpeg[scan + 202 :], "corrupt"),
        ("png", png[: len(png) // 2] + png[-12:], ""),
        ("png", png[:-30] + bytes([png[-30] ^ 64]) + png[-29:], "corrupt"),
        ("webp", webp[: len(webp) // 2], "truncated"),
        (
            "webp",
            webp[:4] + (len(webp) // 2 - 8).to_bytes(4, "little") + webp[8 : len(webp) // 2],
            "",
        ),
    ]


FORMATS: list[tuple[str, dict[str, Any]]] = [("JPEG", {}), ("PNG", {}), ("WEBP", {})]


@needs_kernel
@pytest.mark.parametrize("image,blob,reason", damaged())
def test_damage_is_found(image: str, blob: bytes, reason: str) -> None:
    found = transformed(blob, LARGE, keeping(image))
    assert isinstance(found, DecodeFailure), "Pillow alone reads some of these without a word"
    assert found.reason == reason or (not reason and found.reason in ("truncated", "corrupt"))


def test_without_the_kernel_no_jpeg_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    without_kernel(monkeypatch)
    assert processed(saved_as(RGB, "JPEG"), LARGE, keeping("jpeg")).facts["kept"] is False
    assert processed(saved_as(RGB, "PNG"), LARGE, keeping("png")).facts["kept"] is True


@pytest.mark.parametrize("row", [0, 300, 599])
def test_one_pixel_that_readers_see_otherwise_is_found(row: int) -> None:
    pixels = np.asarray(Image.open(io.BytesIO(saved_as(picture(1, (600, 20)), "JPEG")))).copy()
    blob = saved_as(picture(1, (600, 20)), "JPEG")
    assert decodes_alike(blob, pixels) and not decodes_alike(blob, pixels[:-1])
    pixels[row, 7, 1] ^= 64
    assert not decodes_alike(blob, pixels)
