"""JPEGs whose luma and chroma are scaled one by one: where each sample lands, and which pictures it
is done with.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers import jpegs
from helpers.jpegs import LAYOUTS, encoded, four_by_two, resized, shown, textured, with_orientation
from PIL import Image

from fastfeed.decode import DecodeFailure, Recoder
from fastfeed.decode.base import ENLARGE, Header, Request
from fastfeed.decode.native import NativeEngine
from fastfeed.ops import Crop, Decode, Resize
from fastfeed.ops.program.compile import Windows
from fastfeed.runtime.extension import is_built

pytestmark = pytest.mark.skipif(not is_built(), reason=jpegs.NO_KERNEL)

FULL = {"quality": 100, "subsampling": "4:4:4"}  # what the encoder takes away is a level or two


def recoded(blob: bytes, size: tuple[int, int], filter: str = "lanczos", **how: Any) -> bytes:
    (file,) = Recoder([Resize(size, filter=filter)], **(FULL | how))([blob])
    assert isinstance(file, bytes), file
    return file


def planes_of(blob: bytes, shrunk_by: int = 1) -> np.ndarray:
    """Luma and chroma of a 4:4:4 file as libjpeg has them, before colors: uint8 (height, width,
    3).
    """
    image = Image.open(io.BytesIO(blob))
    image.draft("YCbCr", (image.width // shrunk_by, image.height // shrunk_by))
    assert image.mode == "YCbCr"
    return np.asarray(image)


def by_rgb(
    blob: bytes, size: tuple[int, int], flips: Sequence[bool] = (False, False)
) -> np.ndarray:
    """The same picture by way of RGB pixels: uint8 (*size, 3)."""
    image = shown(blob)
    box = np.array([[0, 0, *image.shape[:2]]], float)
    request = Request(
        [blob],
        [Header(*image.shape[:2], "JPEG")],
        Windows(box, np.array([flips]), np.array([size], np.int64)),
        "lanczos",
    )
    out = np.empty((1, *size, 3), np.uint8)
    assert NativeEngine(Decode(), 1).decode(request, out, threading.Event()) == [None]
    return out[0]


def smooth(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Slopes in all three channels, other ones each way: a sample out of place by half a pixel
    shows.
    """
    y, x = np.mgrid[0:height, 0:width]
    return (
        np.stack([40 + 2 * x, 220 - 1.5 * y, 60 + 0.7 * x + 0.8 * y], axis=2)
        .clip(0, 255)
        .astype(np.uint8)
    )


@pytest.mark.parametrize("filter", jpegs.FILTERS)
@pytest.mark.parametrize(
    ("size", "shrunk_by"),
    [((96, 80), 1), ((90, 121), 1), ((41, 33), 2), ((13, 11), 8), ((200, 300), 1)],
)
def test_each_plane_is_scaled_by_itself(size: tuple[int, int], shrunk_by: int, filter: str) -> None:
    """As libjpeg shrinks it, then the filter's definition, whether it is shrunk, enlarged or left
    as it is.
    """
    blob = encoded(textured(192, 160), subsampling=0, quality=95)
    room = min(192 / size[0], 160 / size[1]) / ENLARGE[filter]
    while shrunk_by > max(room, 1):
        shrunk_by //= 2
    source = planes_of(blob, shrunk_by)
    want = resized(source, (0, 0, *source.shape[:2]), size, filter)
    off = np.abs(planes_of(recoded(blob, size, filter)) - want)
    assert off.max() <= 3 and off.mean() <= 0.7


@pytest.mark.parametrize("subsampling", ["4:2:0", "4:4:4"])
@pytest.mark.parametrize("layout", [0, 1, 2])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_colors_stay_where_they_are(orientation: int, layout: int, subsampling: str) -> None:
    """Odd sizes, every orientation: chroma of half the size ends with a sample of which a half
    counts.
    """
    blob = with_orientation(smooth(99, 75), orientation, True, subsampling=layout, quality=100)
    height, width = shown(blob).shape[:2]
    size = (43, 43 * width // height)
    off = np.abs(
        shown(recoded(blob, size, subsampling=subsampling)).astype(int) - by_rgb(blob, size)
    )
    assert off.max() <= 6 and off.mean() <= 0.8
    assert not is_shifted(shown(recoded(blob, size, subsampling=subsampling)), by_rgb(blob, size))


def is_shifted(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the mean of a channel differs by more than half a level."""
    return bool(np.abs(one.astype(float).mean((0, 1)) - other.mean((0, 1))).max() > 0.5)


@pytest.mark.parametrize("flips", [(False, True), (True, False), (True, True)])
def test_flipped_planes(flips: tuple[bool, bool]) -> None:
    blob, size = encoded(smooth(99, 75), subsampling=2, quality=100), (33, 25)
    windows = Windows(
        np.array([[0.0, 0.0, 99.0, 75.0]]), np.array([flips]), np.array([size], np.int64)
    )
    request = Request([blob], [Header(99, 75, "JPEG")], windows, "lanczos")
    (file,) = NativeEngine(Decode(), 1).recode(request, 100, False, False, threading.Event())
    assert isinstance(file, bytes)
    off = np.abs(shown(file).astype(int) - by_rgb(blob, size, flips))
    assert off.max() <= 6 and off.mean() <= 0.8


@pytest.mark.parametrize("subsampling", ["4:2:0", "4:4:4"])
@pytest.mark.parametrize("size", [(150, 130), (50, 43), (23, 19), (9, 7), (1, 1), (2, 301)])
@pytest.mark.parametrize("layout", [*LAYOUTS, "4x2"])
def test_every_layout_at_every_scale(layout: str, size: tuple[int, int], subsampling: str) -> None:
    blob = four_by_two(3) if layout == "4x2" else LAYOUTS[layout](150, 130, 3)
    file = recoded(blob, size, subsampling=subsampling)
    other = encoded(by_rgb(blob, size), quality=100, subsampling=subsampling)
    off = np.abs(shown(file).astype(float) - shown(other))
    # their colors leave RGB, and are clipped at another step
    scrambled = layout in (
        "4:4:0",
        "4:1:1",
        "4x2",
    )
    assert shown(file).shape == (*size, 3)
    assert off.mean() <= (11 if scrambled else 4)


def test_gray_files_have_no_color() -> None:
    file = recoded(encoded(textured(150, 130)[:, :, 0]), (61, 53), subsampling="4:2:0")
    pixels = shown(file)
    assert Image.open(io.BytesIO(file)).mode == "RGB" and (pixels == pixels[:, :, :1]).all()


def test_a_small_part_of_a_picture_goes_by_rgb() -> None:
    """Of which only its own rows and columns are transformed; and a large part, to pixels next to
    those.
    """
    blob = encoded(textured(300, 400), subsampling=0, quality=95)
    for side in (120, 290):
        (file,) = Recoder([Crop(5, 60, side), Resize((80, 80), filter="lanczos")], **FULL)([blob])
        want = resized(shown(blob), (5, 60, side, side), (80, 80), "lanczos")
        off = np.abs(shown(file) - want)
        assert off.mean() <= 1.2 and np.percentile(off, 99) <= 5


def test_colors_other_than_luma_and_chroma_go_by_rgb() -> None:
    """A file of RGB samples; an Adobe marker says so."""
    pixels = textured(90, 120)
    blob = encoded(pixels, subsampling=0, quality=95, keep_rgb=True)
    off = np.abs(
        shown(recoded(blob, (60, 80))) - resized(shown(blob), (0, 0, 90, 120), (60, 80), "lanczos")
    )
    assert off.max() <= 6 and off.mean() <= 1


@pytest.mark.parametrize("filter", ["bilinear", "lanczos", "box"])
def test_color_of_a_single_pixel(filter: str) -> None:
    """Half the size of one pixel is one pixel, too: not the edge of the picture."""
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[:32, :, 0] = picture[32:, :, 2] = 255
    one, other = (
        planes_of(recoded(encoded(picture, subsampling=2), (1, 1), filter, subsampling=subsampling))
        for subsampling in ("4:2:0", "4:4:4")
    )
    assert np.abs(one.astype(int) - other).max() <= 2


def test_a_window_that_begins_all_but_half_a_pixel_in() -> None:
    """Rounding then leaves an input out, and copies would be a pixel too long: nothing is written
    behind a row.
    """
    start, side = float(np.nextafter(2.5, 0)), 104
    blob = encoded(textured(side + 8, side + 8), subsampling=0)
    box = np.array([[start, start, side, side]] * 2)
    flips, guarded = np.zeros((2, 2), bool), np.full((3, side, side, 3), 77, np.uint8)
    jpegs.decode([blob] * 2, box, (side, side), "box", flips=flips, out=guarded[:2], enlarge=3.0)
    assert (guarded[2] == 77).all()
    request = Request(
        [blob],
        [Header(side + 8, side + 8, "JPEG")],
        Windows(box[:1], flips[:1], np.array([[side, side]])),
        "box",
    )
    (file,) = NativeEngine(Decode(), 1).recode(request, 100, False, False, threading.Event())
    assert isinstance(file, bytes)
    off = np.abs(
        planes_of(file).astype(float) - resized(planes_of(blob), box[0], (side, side), "box")
    )
    assert off[4:-4, 4:-4].mean() <= 4 and off.max() <= 60


def test_samples_that_are_no_whole_factor_are_refused_whatever_the_window() -> None:
    """libjpeg enlarges by whole factors: 3 to 2 is none."""
    blob = bytearray(encoded(textured(48, 48), subsampling=0))
    frame = blob.index(b"\xff\xc0")
    blob[frame + 11], blob[frame + 14], blob[frame + 17] = 0x31, 0x21, 0x21
    for side in (48, 20):
        windows = Windows(
            np.array([[0.0, 0.0, side, side]]), np.zeros((1, 2), bool), np.array([[16, 16]])
        )
        request = Request([bytes(blob)], [Header(48, 48, "JPEG")], windows, "lanczos")
        (bad,) = NativeEngine(Decode(), 1).recode(request, 90, True, False, threading.Event())
        assert isinstance(bad, DecodeFailure) and bad.reason == "unsupported_format"


@pytest.mark.parametrize("layout", [1, 2])
def test_room_for_the_coefficients_of_planes(layout: int) -> None:
    """Where chroma is coarser, an eighth of luma may be a quarter of chroma, of which 40
    coefficients are kept.
    """
    blob = encoded(textured(800, 1600), subsampling=layout, progressive=True)
    chroma_blocks = 2 * 800 * 1600 // (64 * 2 * layout)
    assert jpegs.native.held_bytes(blob)[3] >= chroma_blocks * 40 * 2


@pytest.mark.parametrize(
    "layout",
    [
        "4:2:0",
        "progressive",
        *(pytest.param(layout, marks=pytest.mark.slow) for layout in ("4:4:4", "restarts")),
    ],
)
def test_damage_has_the_same_reason_as_in_a_feed(layout: str) -> None:
    blob = LAYOUTS[layout](150, 130, 1)
    scan = blob.index(b"\xff\xda")
    rng = np.random.default_rng(0)
    for _ in range(200):
        broken = bytearray(blob)
        broken[int(rng.integers(scan + 14, len(blob)))] ^= 1 << int(rng.integers(8))
        broken = broken[: int(rng.integers(scan, len(blob)))] if rng.random() < 0.3 else broken
        (file,) = Recoder([Resize((48, 48))])([bytes(broken)])
        why = jpegs.decode_one(bytes(broken), (0, 0, 150, 130), (48, 48))
        if isinstance(why, str):
            assert isinstance(file, DecodeFailure) and file.reason == why
        else:
            assert isinstance(file, bytes)
