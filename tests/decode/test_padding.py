"""Windows that reach beyond an image: what exists is decoded as ever, the border is what NumPy's
`pad` makes of it.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers import jpegs
from helpers.engines import engine_for
from helpers.jpegs import encoded, textured, with_orientation
from helpers.opencv_ops.windows import cut
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.decode import DecodeFailure, Header, PixelsEngine, Request
from fastfeed.decode.padding import decode_with_border
from fastfeed.feed.feed import Feed
from fastfeed.ops import (
    CenterCrop,
    Crop,
    Invert,
    Pad,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Resize,
)
from fastfeed.ops.base import Border
from fastfeed.ops.program.compile import fuse
from fastfeed.ops.program.window import Window, Windows
from fastfeed.runtime.extension import is_built
from fastfeed.sampling.rng import uniform
from fastfeed.sources import Arrays, ImageFolder
from fastfeed.spec import ENCODED

ENGINES = [
    "pillow",
    pytest.param("native", marks=pytest.mark.skipif(not is_built(), reason=jpegs.NO_KERNEL)),
]
MODES = st.sampled_from(["constant", "edge", "reflect", "symmetric"])
NEVER = threading.Event()
FILL = (9, 200, 77)


def padded(image, sides, mode):
    """(top, left, bottom, right) more pixels."""
    top, left, bottom, right = sides
    width = ((top, bottom), (left, right), (0, 0))
    if mode != "constant":
        return np.pad(image, width, mode=mode)
    out = np.empty(
        (image.shape[0] + top + bottom, image.shape[1] + left + right, image.shape[2]), np.uint8
    )
    out[:] = FILL if image.shape[2] == 3 else 129  # their luma
    out[top : top + image.shape[0], left : left + image.shape[1]] = image
    return out


def mirrored(image, flip):
    return image[:: -1 if flip[0] else 1, :: -1 if flip[1] else 1]


@given(
    mode=MODES,
    channels=st.sampled_from([1, 3]),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    sides=st.tuples(*[st.integers(0, 14)] * 4),
    places=st.lists(
        st.tuples(*[st.floats(0, 1)] * 4, st.booleans(), st.booleans()), min_size=1, max_size=5
    ),
    row=st.integers(0, 4),
)
def test_a_window_is_a_crop_of_the_padded_image(mode, channels, size, sides, places, row):
    """For many rows at once, and for one image in the chain."""
    border = Border(mode, FILL if mode == "constant" else (0, 0, 0))
    image = np.random.default_rng(1).integers(0, 256, (*size, channels), dtype=np.uint8)
    whole = padded(image, sides, mode)
    height = 1 + int(places[0][2] * (whole.shape[0] - 1))
    width = 1 + int(places[0][3] * (whole.shape[1] - 1))
    corners = [
        (int(y * (whole.shape[0] - height)), int(x * (whole.shape[1] - width)))
        for y, x, *_ in places
    ]
    flips = np.array([p[4:] for p in places])
    boxes = np.array([[y - sides[0], x - sides[1], height, width] for y, x in corners], np.float64)
    n = len(places)
    limits = np.tile(np.array([[0.0, 0, *size]]), (n, 1))
    want = np.stack(
        [
            mirrored(whole[y : y + height, x : x + width], f)
            for (y, x), f in zip(corners, flips, strict=True)
        ]
    )
    sizes = np.full((n, 2), (height, width))
    out = np.full((n, height, width, channels), 99, np.uint8)
    request = Request(
        [image] * n, [Header(*size, "array")] * n, Windows(boxes, flips, sizes, limits), "bilinear"
    )
    assert decode_with_border(PixelsEngine(), request, border, out, NEVER) == [None] * n
    np.testing.assert_array_equal(out, want)
    row = min(row, n - 1)
    values = {"box": boxes, "flip": flips, "size": sizes, "limit": limits}
    got = cut(Window((height, width), border=border), values, row, image.copy())
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, want[row])


@pytest.mark.parametrize("flip", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_chain_mirrors_and_cuts_without_resampling(flip, channels):
    image = textured(11, 14)[:, :, :channels].copy()
    values = {
        "box": np.array([[0.0, 0, 11, 14], [2, 3, 5, 7]]),
        "flip": np.array([flip, flip]),
        "size": np.array([[11, 14], [5, 7]]),
        "limit": np.array([[0.0, 0, 11, 14]] * 2),
    }
    np.testing.assert_array_equal(cut(Window(), values, 0, image.copy()), mirrored(image, flip))
    np.testing.assert_array_equal(
        cut(Window((5, 7)), values, 1, image), mirrored(image[2:7, 3:10], flip)
    )
    assert flip != (False, False) or np.shares_memory(cut(Window(), values, 0, image), image)


def test_what_an_earlier_crop_cut_away_is_border():
    images = np.stack([textured(30, 40, i) for i in range(3)])
    ops = [Crop(5, 6, 20), Pad(4, "reflect"), Crop(2, 2, (22, 10))]
    want = np.pad(images[:, 5:25, 6:26], ((0, 0), (4, 4), (4, 4), (0, 0)), mode="reflect")[
        :, 2:24, 2:12
    ]
    for listed in (ops, [Invert(), *ops, Invert()]):
        with Feed(Arrays(images), listed, batch=3, shuffle=False) as feed:
            np.testing.assert_array_equal(next(iter(feed)).images, want)


def test_two_borders_one_in_the_other():
    images = np.stack([textured(10, 12, i) for i in range(2)])
    ops = [Pad(3, "edge"), Pad((1, 2), fill=FILL), RandomFlip(1.0)]
    inner = np.pad(images, ((0, 0), (3, 3), (3, 3), (0, 0)), mode="edge")
    want = np.stack([padded(image, (1, 2, 1, 2), "constant")[:, ::-1] for image in inner])
    with Feed(Arrays(images), ops, batch=2, shuffle=False) as feed:
        np.testing.assert_array_equal(next(iter(feed)).images, want)


# -- files

ODD = [(61, 83), (33, 200), (200, 33), (100, 100), (1, 50), (50, 1), (300, 401), (7, 5)]


def files(tmp_path):
    (tmp_path / "a").mkdir()
    for i, (height, width) in enumerate(ODD):
        blob = encoded(textured(height, width, i), quality=95)
        (tmp_path / "a" / f"{i}.jpg").write_bytes(blob)
    return ImageFolder(tmp_path)


def run(ops, blobs, engine, seed=0):
    """Pixels, why not, and the windows they were cut by."""
    program = fuse(ops, ENCODED)
    engine = engine_for(program, engine)
    headers = engine.probe(blobs)
    good = [i for i, h in enumerate(headers) if isinstance(h, Header)]
    sizes = np.array([(headers[i].height, headers[i].width) for i in good])
    work = program.work(
        program.draw(lambda slot, k: uniform(seed, 0, np.array(good), slot, k)), sizes
    )
    out = np.full((len(good), *program.pixels.shape), 99, np.uint8)
    request = Request(
        [blobs[i] for i in good], [headers[i] for i in good], work.windows, program.filter
    )
    return out, decode_with_border(engine, request, program.border, out, NEVER), work.windows


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("filter", ["bilinear", "lanczos"])
def test_letterbox_of_files(engine, filter, tmp_path):
    """Inside is what the same engine makes of the image at that size."""
    ops = [Resize((96, 80), filter, "pad", FILL), RandomFlip(0.5, "both")]
    with Feed(files(tmp_path), ops, batch=len(ODD), shuffle=False, decode=engine, seed=3) as feed:
        batch = next(iter(feed))
        assert not feed.stats().bad
    flips = RandomFlip(0.5, "both").params(uniform(3, 0, np.arange(len(ODD)), 0, 2), np.array(ODD))[
        "flip"
    ]
    assert len(np.unique(flips, axis=0)) > 2
    for i, (height, width) in enumerate(ODD):
        scale = min(96 / height, 80 / width)
        inner = max(1, round(height * scale)), max(1, round(width * scale))
        top, left = (96 - inner[0]) // 2, (80 - inner[1]) // 2
        sides = (top, left, 96 - top - inner[0], 80 - left - inner[1])
        blob = (tmp_path / "a" / f"{i}.jpg").read_bytes()
        whole, why, _ = run([Resize(inner, filter)], [blob], engine)
        assert why == [None]
        np.testing.assert_array_equal(
            batch.images[i], mirrored(padded(whole[0], sides, "constant"), flips[i])
        )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_random_crops_of_padded_files(engine, mode):
    """Against the whole image, decoded and padded: the native extension's windows may differ by
    rounding at their chroma.
    """
    sizes = [(61, 83), (40, 45), (100, 37)] * 4
    blobs = [encoded(textured(*size, i), quality=95) for i, size in enumerate(sizes)]
    blobs[1] = with_orientation(textured(40, 45, 1), 6, True)
    sizes[1] = (45, 40)
    op = RandomCrop(
        (36, 40), padding=(12, 9, 30, 4), mode=mode, fill=FILL if mode == "constant" else (0, 0, 0)
    )
    out, why, windows = run([op, RandomFlip()], blobs, engine, 7)
    assert why == [None] * len(blobs)
    beyond = 0
    for i, (size, blob) in enumerate(zip(sizes, blobs, strict=True)):
        whole, _, _ = run([Resize(size)], [blob], engine)
        top, left, height, width = windows.boxes[i].astype(int)
        assert windows.boxes[i].tolist() == [top, left, 36, 40]
        want = padded(whole[0], (12, 9, 30, 4), mode)[
            top + 12 : top + 12 + height, left + 9 : left + 9 + width
        ]
        np.testing.assert_allclose(out[i].astype(int), mirrored(want, windows.flips[i]), atol=2)
        beyond += top < 0 or left < 0 or top + 36 > size[0] or left + 40 > size[1]
    assert 0 < beyond < len(blobs)


@pytest.mark.parametrize("engine", ENGINES)
def test_scaled_crops_that_reach_over_the_edge(engine):
    """The edge falls on the nearest pixel; the whole padded image, scaled at once, is nearly the
    same.
    """
    blobs = [encoded(textured(90, 120, i), quality=95) for i in range(8)]
    ops = [Pad(40, fill=FILL), RandomResizedCrop((48, 56), scale=(0.3, 0.8)), RandomFlip()]
    out, why, windows = run(ops, blobs, engine)
    assert why == [None] * 8
    for i, blob in enumerate(blobs):
        whole, _, _ = run([Resize((90, 120))], [blob], engine)
        box = windows.boxes[i] + [40, 40, 0, 0]
        want = np.empty((1, 48, 56, 3), np.uint8)
        window = Windows(box[None], windows.flips[i : i + 1], np.array([[48, 56]]))
        large = padded(whole[0], (40,) * 4, "constant")
        PixelsEngine().decode(
            Request([large], [Header(170, 200, "array")], window, "bilinear"), want, NEVER
        )
        far = np.abs(out[i].astype(int) - want[0]).max(axis=2)
        assert np.median(far) <= 12 and (far > 60).mean() < 0.12
        fill = (out[i] == FILL).all(axis=2), (np.abs(want[0].astype(int) - FILL) <= 1).all(axis=2)
        assert (fill[0] ^ fill[1]).mean() < 0.08


@pytest.mark.parametrize("engine", ENGINES)
def test_bad_files_are_bad_and_black_wherever_the_window_lies(engine):
    good = encoded(textured(64, 64), quality=95)
    blobs = [good, good[: len(good) // 2], good, good[: len(good) // 2], good]
    for ops in (
        [Resize((80, 40), fit="pad", fill=FILL)],
        [RandomCrop(48, 30, "edge")],
        [CenterCrop(40), Pad(1)],
    ):
        out, why, _ = run(ops, blobs, engine)
        assert [w.reason if isinstance(w, DecodeFailure) else w for w in why] == [
            None,
            "truncated",
            None,
            "truncated",
            None,
        ]
        assert not out[1].any() and not out[3].any() and all(out[i].any() for i in (0, 2, 4))


def test_a_stop_between_two_groups_is_seen():
    stop = threading.Event()

    class Once(PixelsEngine):
        calls = 0

        def decode(self, request, out, stop):
            self.calls += 1
            stop.set()
            return super().decode(request, out, threading.Event())

    engine, image = Once(), textured(8, 8)
    windows = Windows(
        np.array([[-1.0, 0, 8, 8], [-2, 0, 8, 8]]),
        np.zeros((2, 2), bool),
        np.full((2, 2), 8),
        np.array([[0.0, 0, 8, 8]] * 2),
    )
    request = Request([image] * 2, [Header(8, 8, "array")] * 2, windows, "bilinear")
    decode_with_border(engine, request, Border(), np.empty((2, 8, 8, 3), np.uint8), stop)
    assert engine.calls == 1
