"""ICC profiles: colors against textbook formulas, what is skipped, and what is ignored."""

from __future__ import annotations

import io
import struct
import threading

import numpy as np
import pytest
from helpers import jpegs
from helpers.preprocess import icc
from helpers.preprocess.rasters import without_kernel
from PIL import Image, ImageCms

from fastfeed.preprocess.pixels import decode
from fastfeed.preprocess.pixels.color import read_profile
from fastfeed.preprocess.pixels.decode import Rasterizer
from fastfeed.preprocess.pixels.image_info import ImageInfo, image_info

P3 = icc.rgb_profile("Display P3")
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def patches(channels: int = 3, seed: int = 0) -> np.ndarray:
    """uint8 (32, 64, channels): flat squares of 16 pixels, whose middle no codec smears much."""
    colors = np.random.default_rng(seed).integers(20, 236, (2, 4, channels), dtype=np.uint8)
    return colors.repeat(16, axis=0).repeat(16, axis=1)


def saved(image: Image.Image, format: str, **options) -> bytes:
    file = io.BytesIO()
    if format == "JPEG":
        options = {"quality": 100, "subsampling": 0} | options
    image.save(file, format, **({"lossless": True} if format == "WEBP" else {}) | options)
    return file.getvalue()


def pixels(blob: bytes, matte=(255, 255, 255), icc: str | None = None) -> np.ndarray:
    """All of it, and its profile's name."""
    found = image_info(blob)
    assert isinstance(found, ImageInfo), found
    assert icc is None or found.icc == icc
    made = Rasterizer(matte).pixels(
        blob, found, (0, 0, found.height, found.width), (found.height, found.width)
    )
    assert isinstance(made, np.ndarray), made
    assert (
        made.shape == (found.height, found.width, 3)
        and made.dtype == np.uint8
        and made.flags.c_contiguous
    )
    return made


def middles(image: np.ndarray) -> np.ndarray:
    return image[8::16, 8::16].astype(float)


@pytest.fixture(params=["native", "pillow"])
def kernel(request, monkeypatch):
    """With the native extension for JPEGs, and without."""
    if request.param == "native" and not decode.is_built():
        pytest.skip(jpegs.NO_KERNEL)
    if request.param == "pillow":
        without_kernel(monkeypatch)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("name", ["Display P3", "Adobe RGB"])
def test_wide_colors_become_srgb(name, format, kernel):
    given = patches()
    blob = saved(Image.fromarray(given), format, icc_profile=icc.rgb_profile(name))
    got, want = middles(pixels(blob, icc=name)), icc.srgb_of(name, middles(given))
    assert np.abs(want - middles(given)).max() > 20, "the profile matters"
    assert np.abs(got - want).max() <= (4 if format == "JPEG" else 2)


def test_the_conversion_follows_the_resize():
    given = jpegs.textured(90, 120)
    blob = saved(Image.fromarray(given), "PNG", icc_profile=P3)
    found = image_info(blob)
    assert isinstance(found, ImageInfo)
    small = Rasterizer().pixels(blob, found, (0, 0, 90, 120), (30, 40))
    assert isinstance(small, np.ndarray)
    off = np.abs(
        small
        - icc.srgb_of(
            "Display P3", np.rint(jpegs.resized(given, (0, 0, 90, 120), (30, 40), "lanczos"))
        )
    )
    assert off.mean() < 0.5 and np.percentile(off, 99) <= 2, (
        "near black one level more in P3 is many in sRGB"
    )


@pytest.mark.parametrize(
    ("format", "mode"), [("PNG", "RGB"), ("TIFF", "RGB"), ("JPEG", "RGB"), ("JPEG", "L")]
)
def test_linear_colors_are_converted_before_the_resize(format, mode, kernel):
    """Scaled in linear light, edges would come out brighter than those of the same photograph in
    sRGB.
    """
    profile = icc.rgb_profile("linear") if mode == "RGB" else icc.gray_profile("linear")
    image = Image.fromarray(jpegs.textured(90, 120)).convert(mode)
    blob = saved(image, format, icc_profile=profile)
    found = image_info(blob)
    assert isinstance(found, ImageInfo) and found.icc == "linear"
    small = Rasterizer().pixels(blob, found, (0, 0, 90, 120), (12, 16))
    whole = np.asarray(Image.open(io.BytesIO(blob)).convert("RGB"))
    want = jpegs.resized(
        np.rint(icc.srgb_of("linear", whole)).astype(np.uint8), (0, 0, 90, 120), (12, 16), "lanczos"
    )
    off = np.abs(small - want)
    assert off.mean() < 0.6 and off.max() <= 4


@pytest.mark.parametrize("name", ["linear", "Display P3"])
def test_what_is_half_transparent_is_blended_in_srgb(name):
    """As browsers, Pillow and libvips do, whatever the image's own colors are."""
    given, matte = patches(), (255, 240, 20)
    share = np.array([0, 64, 128, 255])[None, :].repeat(16, axis=1).repeat(32, axis=0)
    blob = saved(
        Image.fromarray(np.dstack([given, share]).astype(np.uint8)),
        "PNG",
        icc_profile=icc.rgb_profile(name),
    )
    part = middles(share[:, :, None]) / 255
    want = icc.srgb_of(name, middles(given)) * part + np.array(matte) * (1 - part)
    assert np.abs(middles(pixels(blob, matte)) - want).max() <= 2


@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF"])
def test_gray_with_a_curve_of_its_own(format, kernel):
    given = patches(1)[:, :, 0]
    blob = saved(Image.fromarray(given), format, icc_profile=icc.gray_profile())
    got = middles(pixels(blob, icc="gray 1.8"))
    want = 255 * icc.srgb_encoded(icc.CURVES["gray 1.8"](middles(given) / 255))
    assert np.abs(got - want[..., None]).max() <= 2 and np.abs(want - middles(given)).max() > 8


@pytest.mark.parametrize(
    "profile", [SRGB, icc.rgb_profile("sRGB", "my screen")], ids=["LittleCMS's", "by its content"]
)
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_srgb_is_left_exactly_as_it_is(format, profile, kernel):
    image = Image.fromarray(jpegs.textured(40, 60))
    with_it = pixels(saved(image, format, icc_profile=profile), icc="sRGB")
    assert np.array_equal(with_it, pixels(saved(image, format), icc="none"))


def test_a_name_does_not_make_it_srgb():
    given = patches()
    blob = saved(
        Image.fromarray(given), "PNG", icc_profile=icc.rgb_profile("Adobe RGB", "sRGB IEC61966-2.1")
    )
    got = pixels(blob, icc="not sRGB IEC61966-2.1")
    assert np.abs(middles(got) - icc.srgb_of("Adobe RGB", middles(given))).max() <= 2


def test_gray_files_with_an_rgb_profile():
    """sRGB in a gray file is common and harmless; another one says nothing about gray."""
    gray = Image.fromarray(patches(1)[:, :, 0])
    want = np.asarray(gray.convert("RGB"))
    assert np.array_equal(pixels(saved(gray, "PNG", icc_profile=SRGB), icc="sRGB"), want)
    assert np.array_equal(pixels(saved(gray, "PNG", icc_profile=P3), icc="damaged"), want)


BROKEN = {
    "noise": bytes(np.random.default_rng(3).integers(0, 256, 900, dtype=np.uint8)),
    "cut off": P3[:300],
    "empty tags": P3[:128] + bytes(len(P3) - 128),
    "for inks": icc.cmyk_profile(),
    "short": b"icc",
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_profile_that_is_damaged_or_of_other_pixels_is_ignored(format, name, kernel):
    image = Image.fromarray(jpegs.textured(40, 60))
    got = pixels(saved(image, format, icc_profile=BROKEN[name]), icc="damaged")
    assert np.array_equal(got, pixels(saved(image, format)))


def app2(blob: bytes) -> list[tuple[int, int]]:
    """Where the profile's segments lie."""
    found, at = [], blob.find(b"ICC_PROFILE\0")
    while at >= 0:
        found.append((at - 4, at - 2 + struct.unpack(">H", blob[at - 2 : at])[0]))
        at = blob.find(b"ICC_PROFILE\0", at + 1)
    return found


def test_a_long_profile_in_segments_in_any_order(kernel):
    given = patches()
    profile = icc.rgb_profile("Display P3", padding=150_000)
    blob = saved(Image.fromarray(given), "JPEG", icc_profile=profile)
    segments = app2(blob)
    assert len(segments) == 3
    parts = [blob[first:last] for first, last in segments]
    head, tail = blob[: segments[0][0]], blob[segments[-1][1] :]
    want = pixels(blob, icc="Display P3")
    assert np.array_equal(
        pixels(head + parts[2] + parts[0] + parts[1] + tail, icc="Display P3"), want
    )
    plain = pixels(head + tail, icc="none")
    assert np.abs(want.astype(int) - plain).max() > 20
    if decode.is_built():
        assert np.array_equal(pixels(head + parts[0] + parts[2] + tail, icc="damaged"), plain)


def inks(seed: int = 1) -> np.ndarray:
    """Full inks and none: (32, 64, 4)."""
    return (patches(4, seed) > 128) * np.uint8(255)


@pytest.mark.parametrize("format", ["JPEG", "TIFF"])
def test_inks_with_a_profile(format):
    given = inks()
    blob = saved(Image.fromarray(given, "CMYK"), format, icc_profile=icc.cmyk_profile())
    got = middles(pixels(blob, icc="Two inks and two more"))
    want = icc.srgb_of_lab(icc.cmyk_colors()[tuple(np.moveaxis(given[8::16, 8::16] // 255, 2, 0))])
    assert np.abs(got - want).max() <= (6 if format == "JPEG" else 3)


def test_black_becomes_black():
    """Black point compensation: the darkest the inks can do, a dark gray, is 0 in sRGB; white stays
    white.
    """
    given = np.zeros((8, 16, 4), np.uint8)
    given[:, 8:] = 255
    profile = icc.cmyk_profile(black=20, kind=b"scnr")
    got = pixels(
        saved(Image.fromarray(given, "CMYK"), "TIFF", icc_profile=profile),
        icc="Two inks and two more",
    )
    assert icc.srgb_of_lab(np.array([20.0, 0, 0])).min() > 40
    assert got[:, :8].min() >= 254 and got[:, 8:].max() <= 1


@pytest.mark.parametrize("format", ["JPEG", "TIFF"])
def test_inks_without_a_profile(format):
    given = patches(4)
    got = middles(pixels(saved(Image.fromarray(given, "CMYK"), format), icc="none"))
    c, m, y, k = np.moveaxis(255 - middles(given), 2, 0)
    assert np.abs(got - np.stack([c, m, y], axis=2) * k[..., None] / 255).max() <= (
        4 if format == "JPEG" else 1
    )


def test_lab():
    lab = np.array([[(50, 0, 0), (60, 20, -20), (80, -20, 40), (30, 10, 10)]], float)
    stored = (
        (lab * [2.55, 1, 1] + [0, 128, 128])
        .round()
        .astype(np.uint8)
        .repeat(8, axis=0)
        .repeat(8, axis=1)
    )
    blob = saved(
        Image.merge("LAB", [Image.fromarray(stored[:, :, k].copy()) for k in range(3)]), "TIFF"
    )
    got = pixels(blob, icc="none")[4, 4::8].astype(float)
    assert image_info(blob).mode == "LAB" and np.abs(got - icc.srgb_of_lab(lab[0])).max() <= 3


@pytest.mark.parametrize("matte", [(255, 255, 255), (200, 90, 40)])
def test_the_matte_is_srgb_whatever_the_image_is(matte):
    """What is wholly transparent shows the color that was asked for, not that color taken for one
    of the profile's.
    """
    given = patches()
    clear = np.dstack(
        [given, np.where(np.arange(64) < 32, 0, 255)[None].repeat(32, axis=0)]
    ).astype(np.uint8)
    got = middles(pixels(saved(Image.fromarray(clear), "PNG", icc_profile=P3), matte))
    assert np.abs(got[:, :2] - matte).max() <= 2
    assert np.abs(got[:, 2:] - icc.srgb_of("Display P3", middles(given))[:, 2:]).max() <= 2
    gray = Image.fromarray(clear[:, :, [0, 3]])
    got = middles(pixels(saved(gray, "PNG", icc_profile=icc.gray_profile()), matte))
    want = 255 * icc.srgb_encoded(icc.CURVES["gray 1.8"](middles(given)[:, 2:, :1] / 255))
    assert np.abs(got[:, :2] - matte).max() == 0 and np.abs(got[:, 2:] - want).max() <= 2


def test_profiles_are_read_once_and_by_several_threads():
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(read_profile(P3, "RGB"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [profile.name for profile in found] == ["Display P3"] * 4
    assert (
        read_profile(bytes(P3), "RGB") is read_profile(P3, "RGB")
        and read_profile(P3, "L").name == "damaged"
    )
    many = [read_profile(icc.rgb_profile("Adobe RGB", f"screen {k}"), "RGB") for k in range(70)]
    assert many[-1].name == "screen 69" and read_profile(P3, "RGB").name == "Display P3"
