"""Scaling strip by strip: the pixels of scaling all at once, natively and with Pillow."""

from __future__ import annotations

import importlib
from functools import cache

import numpy as np
import pytest
from helpers.jpegs import NO_KERNEL, native, resized, textured
from helpers.preprocess.rasters import without_kernel
from helpers.products import in_turn
from PIL import Image

from fastfeed.ops.base import FILTERS
from fastfeed.preprocess.pixels import strips
from fastfeed.preprocess.pixels.strips import scale_strips

LANCZOS = FILTERS.index("lanczos")
PIXELS = textured(211, 163)
BOXES = [
    ((0, 0, 211, 163), (40, 31)),
    ((30.5, 10.25, 120, 133), (64, 64)),
    ((100, 7, 20, 30), (90, 55)),
    ((60, 20, 80, 90), (80, 90)),
    ((0.0, 0.0, 211, 163), (1, 1)),
    ((-1e-9, -1e-9, 211.0000001, 163.0000001), (50, 50)),
]
needs_kernel = pytest.mark.skipif(native is None, reason=NO_KERNEL)


@pytest.fixture(params=["pillow", pytest.param("native", marks=needs_kernel)])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pillow":
        without_kernel(monkeypatch)
    return request.param


def scaled(image: Image.Image, box, size, filter: str) -> Image.Image:
    def rows(top: int, count: int) -> Image.Image:
        return image.crop((0, top, image.width, top + count))

    return scale_strips(rows, (image.height, image.width), box, size, filter)


@cache
def expected(mode: str, box: tuple[float, ...], size: tuple[int, int], filter: str) -> np.ndarray:
    whole = np.asarray(Image.fromarray(PIXELS).convert(mode).convert("RGB"))
    return resized(whole, box, size, filter)


@pytest.mark.parametrize(("filter", "rows"), in_turn(["lanczos", "bicubic", "box"], [1, 7, 1000]))
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pixels_are_those_of_scaling_all_at_once(either, mode, filter, rows, monkeypatch):
    monkeypatch.setattr(strips, "STRIP_PIXELS", rows * 163)
    image = Image.fromarray(PIXELS).convert(mode)
    for box, size in BOXES:
        got = scaled(image, box, size, filter)
        assert got.mode == mode and got.size == size[::-1]
        inside = (0, 0, 211, 163) if box[0] < 0 else box
        off = np.abs(np.asarray(got.convert("RGB")) - expected(mode, inside, size, filter))
        assert off.max() <= (0.51 if either == "native" else 1.6), (box, size)


def test_inks_are_scaled_before_they_are_converted(either):
    """As four channels, by Pillow."""
    image = Image.fromarray(PIXELS).convert("CMYK")
    got = scaled(image, (0, 0, 211, 163), (40, 30), "lanczos")
    assert got.mode == "CMYK"
    assert (
        np.abs(
            np.asarray(got).astype(int)
            - np.asarray(image.resize((30, 40), Image.Resampling.LANCZOS))
        ).max()
        <= 1
    )


@needs_kernel
def test_each_row_that_is_needed_is_asked_for_once_from_top_to_bottom(monkeypatch):
    monkeypatch.setattr(strips, "STRIP_PIXELS", 163 * 10)
    asked, image = [], Image.fromarray(PIXELS)

    def rows(top: int, count: int) -> Image.Image:
        asked.extend(range(top, top + count))
        return image.crop((0, top, 163, top + count))

    scale_strips(rows, (211, 163), (100, 0, 50, 163), (25, 80), "lanczos")
    assert (
        asked == list(range(asked[0], asked[-1] + 1)) and asked[0] <= 94 and 156 <= asked[-1] < 170
    )


def scaler(height=8, width=6, box=(0.0, 0.0, 8.0, 6.0), out=None, filter=LANCZOS):
    out = np.zeros((4, 3, 3), np.uint8) if out is None else out
    return importlib.import_module("fastfeed._native").Scaler(height, width, *box, out, filter)


@needs_kernel
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"height": 0}, ValueError),
        ({"width": -1}, ValueError),
        ({"height": 1 << 25}, ValueError),
        ({"box": (0, 0, 8.5, 6)}, ValueError),
        ({"box": (-0.5, 0, 8, 6)}, ValueError),
        ({"box": (0, 0, 0, 6)}, ValueError),
        ({"box": (0, float("nan"), 8, 6)}, ValueError),
        ({"box": (0, 0, float("inf"), 6)}, ValueError),
        ({"filter": 6}, ValueError),
        ({"out": np.zeros((0, 3, 3), np.uint8)}, ValueError),
        ({"out": np.zeros((4, 3), np.uint8)}, TypeError),
        ({"out": np.zeros((4, 3, 3), np.int16)}, TypeError),
        ({"out": np.zeros((4, 3, 6), np.uint8)[:, :, ::2]}, TypeError),
    ],
    ids=str,
)
def test_what_the_kernel_refuses(wrong, error):
    with pytest.raises(error):
        scaler(**wrong)


@needs_kernel
def test_strips_that_do_not_fit_are_refused():
    one = scaler()
    for strip in (
        np.zeros((9, 6, 3)),
        np.zeros((2, 5, 3)),
        np.zeros((2, 6, 4)),
        np.zeros((2, 6, 2)),
    ):
        with pytest.raises(ValueError):
            one.push(strip.astype(np.uint8))
    one.push(np.zeros((8, 6, 1), np.uint8))
    with pytest.raises(ValueError, match="more rows"):
        one.push(np.zeros((1, 6, 1), np.uint8))
