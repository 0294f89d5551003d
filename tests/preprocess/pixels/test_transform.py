"""One photograph from bytes to bytes: modes, facts, limits, memory; the short way gives what the
long way gives.
"""

from __future__ import annotations

import hashlib
import io
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers.jpegs import LAYOUTS, NO_KERNEL, native, with_orientation
from helpers.photos import BROKEN, broken, picture
from helpers.preprocess.rasters import without_kernel
from helpers.preprocess.transforming import (
    CountingContext,
    pixels_of,
    processed,
    recipe,
    saved_as,
    transformed,
)
from PIL import Image, ImageCms

from fastfeed.decode.base import DecodeFailure
from fastfeed.preprocess.model.recipe import Encoding, Limits, Scaling
from fastfeed.preprocess.model.record import REASONS
from fastfeed.preprocess.pixels import transform
from fastfeed.preprocess.pixels.decode import Rasterizer
from fastfeed.preprocess.pixels.geometry import output_geometry
from fastfeed.preprocess.pixels.image_info import ImageInfo, image_info
from fastfeed.preprocess.pixels.transform import Transformer, encode

PIXELS = picture(5, (60, 90), detail=0.5)
RAW, PNG = Encoding("raw"), Encoding("png")
BUCKETS = ((32, 32), (24, 48))


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
@pytest.mark.parametrize(
    "scaling,box,size",
    [
        (Scaling(30), (0, 0, 60, 90), (30, 45)),
        (Scaling(30, "long"), (0, 0, 60, 90), (20, 30)),
        (Scaling((20, 40), "cover"), (7.5, 0, 45, 90), (20, 40)),
        (Scaling((50, 120), "cover"), (11, 0, 38, 90), (38, 90)),
        (Scaling((20, 20), "exact"), (0, 0, 60, 90), (20, 20)),
        (Scaling(None, "none"), (0, 0, 60, 90), (60, 90)),
        (Scaling(None, "buckets", buckets=BUCKETS), (7.5, 0, 45, 90), (24, 48)),
        (Scaling(120, enlarge=True), (0, 0, 60, 90), (120, 180)),
    ],
    ids=str,
)
def test_modes(scaling: Scaling, box: Any, size: tuple[int, int], format: str) -> None:
    blob = saved_as(
        PIXELS, format, **({"quality": 95, "subsampling": 0} if format == "JPEG" else {})
    )
    found = processed(blob, scaling, RAW)
    assert (found.height, found.width) == size and found.facts["box"] == list(box)
    top, left, height, width = box
    source = Image.open(io.BytesIO(blob))
    want = source.resize(
        size[::-1], Image.Resampling.LANCZOS, box=(left, top, left + width, top + height)
    )
    assert pixels_of(found).shape == (*size, 3)
    assert np.abs(pixels_of(found).astype(int) - np.asarray(want)).max() <= 6, (
        "the same part, the same way up"
    )


@pytest.mark.parametrize("enlarge", [False, True])
def test_borders_are_filled(enlarge: bool) -> None:
    found = processed(
        saved_as(PIXELS, "PNG"),
        Scaling((100, 120), "contain", enlarge=enlarge, fill=(9, 8, 7)),
        RAW,
    )
    height, width = (80, 120) if enlarge else (60, 90)
    top, left = (100 - height) // 2, (120 - width) // 2
    pixels = pixels_of(found)
    assert pixels.shape == (100, 120, 3) == (found.height, found.width, 3)
    inside = np.zeros((100, 120), bool)
    inside[top : top + height, left : left + width] = True
    assert (pixels[~inside] == (9, 8, 7)).all() and inside.sum() == height * width
    if not enlarge:
        assert np.array_equal(pixels[inside].reshape(60, 90, 3), PIXELS), "pixels are copied"
    fine = Encoding("jpeg", 98, "4:4:4")
    jpeg = processed(
        saved_as(PIXELS, "JPEG", quality=95),
        Scaling((100, 120), "contain", enlarge=enlarge, fill=(9, 8, 7)),
        fine,
    )
    assert np.abs(pixels_of(jpeg)[0].astype(int) - (9, 8, 7)).max() <= 2


DRAWN = {
    "PNG": lambda height, width: picture(3, (height, width)),
    "gray PNG": lambda height, width: picture(3, (height, width))[:, :, 0],
    "PNG with a palette": (
        lambda height, width: Image.fromarray(picture(3, (height, width))).quantize(50)
    ),
}


@pytest.mark.skipif(native is None, reason=NO_KERNEL)
@pytest.mark.parametrize("layout", [*LAYOUTS, *DRAWN])
def test_one_call_of_the_kernel_gives_the_bytes_of_the_long_way(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of JPEGs with `full_decode`; without, their planes are scaled one by one."""
    full = layout in LAYOUTS
    monkeypatch.setattr(transform, "encode", lambda *_: pytest.fail("the long way was gone"))
    for k, (height, width) in enumerate([(120, 161), (333, 97)]):
        blob = (
            saved_as(DRAWN[layout](height, width), "PNG")
            if layout in DRAWN
            else LAYOUTS[layout](height, width, k)
        )
        seen = image_info(blob)
        assert isinstance(seen, ImageInfo) and seen.path == "native"
        for how in ((40,), ((31, 47), "cover", "bicubic"), (53, "long", "area")):
            scaling = Scaling(*how, full_decode=full)
            for encoding in (
                Encoding(),
                Encoding("jpeg", 60, "4:4:4"),
                Encoding("jpeg", optimize=True),
            ):
                goal = output_geometry(scaling, height, width)
                pixels = Rasterizer(filter=scaling.filter, full_decode=full).pixels(
                    blob, seen, goal.box, goal.size
                )
                assert isinstance(pixels, np.ndarray)
                assert processed(blob, scaling, encoding).image == encode(pixels, encoding)


def test_sizes_of_jpegs_are_rounded_alike_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = saved_as(PIXELS, "JPEG")
    one = processed(blob, Scaling(31))
    without_kernel(monkeypatch)
    other = processed(blob, Scaling(31))
    assert (one.height, one.width, one.facts) == (other.height, other.width, other.facts)
    assert np.abs(pixels_of(one).astype(int) - pixels_of(other)).max() <= 8


FACTS = {
    "format",
    "source_height",
    "source_width",
    "source_bytes",
    "sha256",
    "orientation",
    "icc",
    "mode",
    "box",
    "kept",
}


def p3() -> bytes:
    """A profile with other primaries than sRGB's, made from LittleCMS's sRGB: red and green change
    places.
    """
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    red, green = profile.index(b"rXYZ"), profile.index(b"gXYZ")
    profile[red], profile[green] = b"gr"
    return bytes(profile)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_facts_of_turned_photographs(orientation: int) -> None:
    blob = with_orientation(PIXELS, orientation, big=False)
    found = processed(blob, Scaling((20, 20), "cover"), RAW)
    height, width = (60, 90) if orientation < 5 else (90, 60)
    assert found.facts == {
        "format": "JPEG",
        "source_height": height,
        "source_width": width,
        "source_bytes": len(blob),
        "sha256": hashlib.sha256(blob).hexdigest(),
        "orientation": orientation,
        "icc": "none",
        "mode": "RGB",
        "box": [0, 15, 60, 60] if orientation < 5 else [15, 0, 60, 60],
        "kept": False,
    }
    assert found.facts.keys() == FACTS


@pytest.mark.parametrize(
    "image,format,options,facts",
    [
        (
            Image.fromarray(PIXELS).convert("CMYK"),
            "JPEG",
            {},
            {"format": "JPEG", "mode": "CMYK", "icc": "none"},
        ),
        (Image.fromarray(PIXELS).convert("L"), "JPEG", {}, {"format": "JPEG", "mode": "L"}),
        (
            Image.fromarray(np.dstack([PIXELS, PIXELS[:, :, 0]])),
            "WEBP",
            {"lossless": True},
            {"format": "WEBP", "mode": "RGBA"},
        ),
        (Image.fromarray(PIXELS).convert("P"), "GIF", {}, {"format": "GIF", "mode": "P"}),
        (
            Image.fromarray(PIXELS[:, :, 0].astype(np.uint16) * 257),
            "PNG",
            {},
            {"format": "PNG", "mode": "I;16"},
        ),
        (Image.fromarray(PIXELS), "TIFF", {}, {"format": "TIFF", "mode": "RGB", "icc": "none"}),
    ],
)
def test_facts_of_other_kinds(
    image: Image.Image, format: str, options: Any, facts: dict[str, str]
) -> None:
    for encoding in (Encoding(), Encoding("webp", 80), PNG, RAW):
        found = processed(saved_as(image, format, **options), Scaling(30), encoding)
        assert found.facts.keys() == FACTS and found.facts == found.facts | facts
        assert pixels_of(found).shape == (30, 45, 3) and found.extension == encoding.extension
        assert (
            found.seconds.keys() == {"decode", "resize", "encode"}
            and min(found.seconds.values()) >= 0
        )


def test_profiles_are_converted_and_named() -> None:
    plain = saved_as(PIXELS, "JPEG", quality=95)
    other = saved_as(PIXELS, "JPEG", quality=95, icc_profile=p3())
    one, two = (processed(blob, Scaling(30), RAW) for blob in (plain, other))
    assert one.facts["icc"] == "none" and two.facts["icc"] not in ("none", "sRGB")
    assert np.abs(pixels_of(one).astype(int) - pixels_of(two)).mean() > 5
    jpeg = pixels_of(processed(other, Scaling(30), Encoding("jpeg", 95, "4:4:4")))
    assert np.abs(jpeg.astype(int) - pixels_of(two)).mean() < 3, "into JPEGs as well"


@pytest.mark.parametrize("reason", BROKEN)
def test_broken_files_have_a_reason(reason: str) -> None:
    for encoding in (Encoding(), RAW, Encoding(keep_small=True)):
        found = transformed(broken(reason), Scaling(30), encoding)
        assert (
            isinstance(found, DecodeFailure) and found.reason == reason and found.reason in REASONS
        )


@pytest.mark.parametrize(
    "limits,reason",
    [
        (Limits(min_side=61), "too_small"),
        (Limits(max_aspect=1.4), "aspect"),
        (Limits(formats=("PNG",)), "policy"),
        (Limits(max_pixels=60 * 90 - 1), "bomb"),
    ],
)
def test_limits(limits: Limits, reason: str) -> None:
    for orientation in (1, 6):  # as displayed
        blob = with_orientation(PIXELS, orientation, big=True)
        found = transformed(blob, None, None, limits)
        assert isinstance(found, DecodeFailure) and found.reason == reason


def test_results_that_are_too_large_have_a_reason() -> None:
    blob = saved_as(np.zeros((2, 300, 3), np.uint8), "JPEG")
    for encoding, most in ((Encoding(), 65_500), (Encoding("webp"), 16_383)):
        found = transformed(blob, Scaling(500, enlarge=True), encoding)
        detail = f"would become 75000x500 pixels; {encoding.image} allows at most {most} per side"
        assert found == ("bomb", detail)
    found = transformed(blob, Scaling(500, enlarge=True), PNG, Limits(max_pixels=10**7))
    assert found == ("bomb", "would become 75000x500 pixels, the limit is 10000000")


def test_memory_is_asked_for_once_and_refusals_have_a_reason() -> None:
    blob, watch = saved_as(PIXELS, "JPEG"), CountingContext()
    for scaling in (Scaling(30), Scaling(64, "contain")):
        for encoding in (Encoding(), RAW, Encoding(keep_small=True)):
            assert not isinstance(
                Transformer(recipe(scaling, encoding))(blob, watch), DecodeFailure
            )
    assert len(watch.needs) == 6 and not watch.inside
    found = Transformer(recipe())(blob, CountingContext(limit=1000))
    assert isinstance(found, DecodeFailure) and found.reason == "oom"
    assert found.detail == f"needs {watch.needs[0] / 1e6:.0f} MB, the limit is 0 MB"


def test_larger_results_need_more_memory() -> None:
    blob = saved_as(PIXELS, "PNG")
    needs: list[int] = []
    for size in (100, 1000, 2000):
        watch = CountingContext(limit=0)
        Transformer(recipe(Scaling(size, "contain"), PNG))(blob, watch)
        needs += watch.needs
    assert needs[2] - needs[1] >= 6 * (2000**2 - 1000**2) and needs == sorted(needs)


def test_no_memory_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(transform, "encode", none)
    found = transformed(saved_as(PIXELS, "GIF"))
    assert isinstance(found, DecodeFailure) and found.reason == "oom"


def test_the_same_bytes_from_every_transformer_and_thread() -> None:
    blobs = [saved_as(picture(k, (50 + k, 71)), "PNG" if k % 3 == 0 else "JPEG") for k in range(9)]
    for scaling, encoding in (
        (Scaling(32), Encoding()),
        (Scaling(64, "contain"), Encoding("webp", 75)),
    ):
        first = Transformer(recipe(scaling, encoding))
        second = Transformer(recipe(scaling, encoding))
        want = [processed(blob, scaling, encoding) for blob in blobs]
        with ThreadPoolExecutor(3) as pool:
            for one in (first, second):
                got = list(pool.map(lambda blob, one=one: one(blob, CountingContext()), blobs))
                assert [(m.image, m.facts) for m in got] == [(m.image, m.facts) for m in want]  # type: ignore[union-attr]


def test_facts_can_be_counted() -> None:
    from fastfeed.preprocess.model.record import Counts

    tally = Counts()
    tally.add(Counts.of(processed(saved_as(PIXELS, "JPEG"), Scaling(120, enlarge=True))))
    assert tally.samples == tally.enlarged == 1 and tally.sizes == {"120x180": 1}
    assert math.isclose(float(next(iter(tally.megapixels))), 2.0**-8)
