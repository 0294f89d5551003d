"""Native pixels: every layout, window, filter, orientation and flip against float64."""

from __future__ import annotations

import io
import itertools
import zlib

import numpy as np
import pytest
from helpers import jpegs
from helpers.jpegs import (
    FILTERS,
    LAYOUTS,
    NEVER,
    STATUS,
    decode,
    decode_one,
    encoded,
    four_by_two,
    resized,
    shown,
    ssim,
    textured,
)
from PIL import Image

import fastfeed as ff
from fastfeed.decode.base import ENLARGE

pytestmark = pytest.mark.skipif(jpegs.native is None, reason=jpegs.NO_KERNEL)

ROUNDING = 0.51  # levels: to the nearest integer, and float32 sums
SHAPES = ((1, 1), (1, 17), (17, 1), (7, 9), (15, 17), (16, 16), (17, 33), (40, 83))


def windows(height: int, width: int) -> list[tuple[float, float, float, float]]:
    """The whole, each edge and corner, fractions of pixels, single pixels, lines."""
    h, w = (height + 1) // 2, (width + 1) // 2
    return [
        (0, 0, height, width),
        (0, 0, h, w),
        (height - h, width - w, h, w),
        (0, width - w, h, w),
        (height - h, 0, h, w),
        (height / 4, width / 4, height / 2, width / 2),
        (height * 0.13, width * 0.31, height * 0.77, width * 0.53),
        (0, width - 1, height, 1),
        (height - 1, 0, 1, width),
        (height - 1, width - 1, 1, 1),
        (height // 2, width // 2, 1, 1),
        (height // 3, width // 3, 0.4, 0.3),
    ]


def sizes(box) -> set[tuple[int, int]]:
    """Same size, one pixel, three times as many (centers of outputs then meet centers of pixels),
    fewer.
    """
    h, w = max(round(box[2]), 1), max(round(box[3]), 1)
    return {(h, w), (1, 1), (3 * h, 3 * w), (max(h * 2 // 5, 1), max(w * 2 // 5, 1)), (5, 3)}


@pytest.mark.parametrize(
    ("filter", "shapes"),
    [
        *((filter, SHAPES[i :: len(FILTERS)]) for i, filter in enumerate(FILTERS)),
        *(pytest.param(filter, SHAPES, marks=pytest.mark.slow) for filter in FILTERS),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pixels_are_those_of_the_filter(layout, filter, shapes):
    for seed, (height, width) in enumerate(shapes):
        blob = LAYOUTS[layout](height, width, seed)
        pixels = shown(blob)
        assert pixels.shape == (height, width, 3)
        for box in windows(height, width):
            for size in sizes(box):
                got = decode_one(blob, box, size, filter, enlarge=NEVER)
                assert not isinstance(got, str), (height, width, box, got)
                off = np.abs(got - resized(pixels, box, size, filter)).max()
                assert off <= ROUNDING, f"{height}x{width} {box} -> {size}: {off:.2f} levels"


@pytest.mark.parametrize("filter", ["bicubic", "lanczos"])
def test_hard_edges_are_clipped_once(filter):
    """Pillow's resize of floats is the same; that of bytes clips between its two passes."""
    y, x = np.mgrid[0:60, 0:80]
    pixels = np.uint8(255) * ((x // 9 + y // 7) % 2).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    expected = {}
    for engine, dtype in (("native", np.float32), ("pillow", np.uint8)):
        scaled = Image.fromarray(pixels.astype(dtype)).resize(
            (50, 70), Image.Resampling[filter.upper()]
        )
        expected[engine] = np.rint(np.asarray(scaled)).clip(0, 255).astype(int)
        ops = [ff.Decode(channels=1), ff.Resize((70, 50), filter=filter)]
        with ff.Transform(ops, threads=1, decode=engine) as transform:
            images = transform([file.getvalue()]).images
        np.testing.assert_allclose(images[0, ..., 0], expected[engine], atol=1)
    assert np.abs(expected["native"] - expected["pillow"]).max() > 9


@pytest.mark.parametrize("layout", LAYOUTS)
def test_windows_begin_at_any_row_and_column(layout):
    """Rows are skipped and blocks left out above, left and right of the window: chroma next to it
    must not notice.
    """
    blob, rng = LAYOUTS[layout](150, 210, 5), np.random.default_rng(6)
    pixels = shown(blob)
    for i in range(80):
        top, height = (
            (i, rng.integers(1, 60)) if i < 50 else (rng.uniform(0, 140), rng.uniform(1, 10))
        )
        left = i if i % 2 else rng.uniform(0, 190)
        box = (top, left, height, rng.uniform(1, 210 - left))
        size = (int(rng.integers(1, 40)), int(rng.integers(1, 40)))
        filter = FILTERS[i % 4]
        off = np.abs(
            decode_one(blob, box, size, filter, enlarge=NEVER) - resized(pixels, box, size, filter)
        ).max()
        assert off <= ROUNDING, f"{box} -> {size} {filter}: {off:.2f} levels"


def test_rounding_may_put_a_window_a_little_outside():
    blob = encoded(textured(24, 40))
    want = decode_one(blob, (0, 0, 24, 40), (9, 9))
    for box in ((-1e-9, -1e-9, 24, 40), (0, 0, 24 + 1e-9, 40 + 1e-9), (1e-12, 0, 24, 40)):
        assert np.array_equal(decode_one(blob, box, (9, 9)), want)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_windows_and_flips(orientation, big):
    blob = jpegs.with_orientation(textured(40, 83), orientation, big)
    pixels = shown(blob)
    height, width = pixels.shape[:2]
    assert (height, width) == ((40, 83) if orientation < 5 else (83, 40))
    info = np.empty((1, 9), np.int32)
    jpegs.native.probe([blob], info, 10**9)
    assert info[0, :4].tolist() == [0, height, width, orientation]
    for box, flip in itertools.product(
        windows(height, width), itertools.product([False, True], repeat=2)
    ):
        for size, filter in (((13, 7), "bilinear"), ((31, 50), "lanczos")):
            want = resized(pixels, box, size, filter)[
                :: -1 if flip[0] else 1, :: -1 if flip[1] else 1
            ]
            off = np.abs(
                decode_one(blob, box, size, filter, flips=[flip], enlarge=NEVER) - want
            ).max()
            assert off <= ROUNDING, f"{box} flipped {flip}: {off:.2f} levels"


@pytest.mark.parametrize(
    ("shrink", "size"),
    [(1, (67, 67)), (2, (66, 66)), (2, (34, 45)), (4, (33, 33)), (8, (16, 16)), (8, (1, 1))],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_windows_are_shrunk_in_the_dct_domain_by_a_rule(layout, size, shrink):
    """The window, shrunk, stays 1.5 times its target: then it is that of libjpeg's own shrunk image
    (draft).
    """
    blob = LAYOUTS[layout](201, 203, 3)
    box = np.array([0.0, 2.0, 200.0, 201.0])
    image = Image.open(io.BytesIO(blob))
    image.draft(image.mode, (203 // shrink, 201 // shrink))
    assert image.size == (-(-203 // shrink), -(-201 // shrink))
    want = resized(np.asarray(image.convert("RGB")), box / shrink, size, "bilinear")
    last_bits = 1.5 if layout == "progressive" and shrink in (2, 4) else 0  # which may be left out
    assert np.abs(decode_one(blob, box, size) - want).max() <= ROUNDING + last_bits


@pytest.mark.parametrize("shrink", [2, 4, 8])
@pytest.mark.parametrize("layout", [*LAYOUTS, "4x2"])
def test_windows_of_shrunk_images_are_parts_of_the_whole(layout, shrink):
    """Of 4x2 at a half libjpeg's own cropping shows wrong chroma at the window's right edge."""
    blob, rng = (
        four_by_two(9) if layout == "4x2" else LAYOUTS[layout](160, 320, 9),
        np.random.default_rng(4),
    )
    image = Image.open(io.BytesIO(blob))
    image.draft(image.mode, (320 // shrink, 160 // shrink))
    whole = np.asarray(image.convert("RGB"))
    assert whole.shape[:2] == (160 // shrink, 320 // shrink)
    if layout == "progressive":  # without some last bits
        whole = decode_one(blob, (0, 0, 160, 320), whole.shape[:2], "bilinear", enlarge=1.0)
    for _ in range(60):
        h, w = int(rng.integers(1, 20)), int(rng.integers(1, 20))
        top, left = (
            int(rng.integers(0, whole.shape[0] - h + 1)),
            int(rng.integers(0, whole.shape[1] - w + 1)),
        )
        box = np.array([top, left, h, w]) * float(shrink)
        got = decode_one(blob, box, (h, w), "bilinear", enlarge=1.0)
        assert np.array_equal(got, whole[top : top + h, left : left + w]), (top, left, h, w)


def test_an_unknown_or_broken_exif_block_leaves_the_picture_upright():
    pixels = textured(8, 16)
    good = jpegs.with_orientation(pixels, 6, True)
    at = good.index(b"MM")
    broken = {
        "order": good[:at] + b"XX" + good[at + 2 :],
        "magic": good[: at + 3] + b"\x07" + good[at + 4 :],
        "offset": good[: at + 4] + b"\xff\xff\xff\xff" + good[at + 8 :],
        "entries": good[: at + 8] + b"\x00\x00" + good[at + 10 :],
        "value": good[: at + 18] + b"\x00\x09" + good[at + 20 :],
    }
    for name, blob in broken.items():
        assert blob != good, name
        assert np.array_equal(decode_one(blob, (0, 0, 8, 16), (8, 16)), shown(encoded(pixels))), (
            name
        )


def test_probe_tells_the_frame():
    blobs = [LAYOUTS[name](17, 33, 0) for name in LAYOUTS] + [b"", b"GIF89a"]
    info = np.empty((len(blobs), 9), np.int32)
    jpegs.native.probe(blobs, info, 10**9)
    status, *rest = info.T
    assert [STATUS[s] for s in status] == [None] * len(LAYOUTS) + ["not_image"] * 2
    found = {
        name: tuple(row) for name, row in zip(LAYOUTS, np.array(rest).T.tolist(), strict=False)
    }
    plain = (17, 33, 1, 3, 0xC0, 8, 0, 0)
    assert found == dict.fromkeys(LAYOUTS, plain) | {
        "gray": (17, 33, 1, 1, 0xC0, 8, 0, 0),
        "progressive": (17, 33, 1, 3, 0xC2, 8, 0, 0),
        "restarts": (17, 33, 1, 3, 0xC0, 8, 3, 0),
    }


def test_the_same_bytes_for_any_threads_split_and_order():
    rng = np.random.default_rng(0)
    blobs = [
        LAYOUTS[name](90 + 7 * i, 70 + 9 * i, i)
        for i, name in enumerate([*LAYOUTS, *LAYOUTS, *LAYOUTS])
    ]
    # what a bad file leaves behind in a thread must not show in the next one
    blobs[5] = blobs[5][:-300]
    n = len(blobs)
    boxes = np.column_stack([rng.uniform(0, 20, (n, 2)), rng.uniform(8, 70, (n, 2))])
    flips, sums = rng.random((n, 2)) < 0.5, {}
    pools = {threads: jpegs.native.Pool(threads) for threads in (1, 4)}
    assert {pool.threads for pool in pools.values()} == {1, 4}
    for filter in FILTERS:
        want, why = decode(blobs, boxes, (24, 31), filter, flips)
        assert [i for i, w in enumerate(why) if w] == [5]
        sums[filter] = zlib.crc32(want)
        for threads, pool in pools.items():
            for rows in (range(n), rng.permutation(n)):
                for step in (n, 5, 1):
                    out = np.full_like(want, 7)
                    for first in range(0, n, step):
                        some = list(rows[first : first + step])
                        part, _ = decode(
                            [blobs[i] for i in some],
                            boxes[some],
                            (24, 31),
                            filter,
                            flips[some],
                            pool=pool,
                        )
                        out[some] = part
                    assert np.array_equal(out, want), (filter, threads, step)
    assert len(set(sums.values())) == len(FILTERS)


# mean SSIM against full decoding and the same filter, and the least of any image. Bicubic lies
# between the first two
BARS = {"bilinear": (0.996, 0.985), "lanczos": (0.998, 0.985), "box": (0.996, 0.985)}


@pytest.mark.slow
def test_shrinking_in_the_dct_domain_keeps_photographs(data):
    names = sorted((data / "photos-large").glob("*.jpg"))
    table = {}
    for path in names:
        blob = path.read_bytes()
        image = Image.fromarray(shown(blob))
        width, height = image.size
        side = min(height, width)
        boxes = {
            "whole": (0, 0, height, width),
            "crop": (height * 0.2, width * 0.3, side * 0.45, side * 0.5),
        }
        for filter, (window, box) in itertools.product(BARS, boxes.items()):
            got = decode_one(blob, box, (224, 224), filter, enlarge=ENLARGE[filter])
            assert not isinstance(got, str), (path.name, got)
            edges = (box[1], box[0], box[1] + box[3], box[0] + box[2])
            want = image.resize((224, 224), Image.Resampling[filter.upper()], box=edges)
            table[path.stem[:30], window, filter] = ssim(got, np.asarray(want))
    print()
    for path in names:
        for window in ("whole", "crop"):
            print(
                f"{path.stem[:30]:30} {window:5}",
                *(f"{table[path.stem[:30], window, f]:.4f}" for f in BARS),
            )
    for filter, (mean, least) in BARS.items():
        values = [value for key, value in table.items() if key[2] == filter]
        print(f"{filter}: mean {np.mean(values):.4f}, least {min(values):.4f}")
        assert np.mean(values) >= mean and min(values) >= least, filter
