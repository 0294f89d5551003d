"""The native extension's own Huffman decoders: at full size a window is exactly what libjpeg,
through Pillow, has there.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
from helpers import jpegs
from helpers.jpegs import NEVER, decode, decode_one, encoded, shown, textured
from PIL import Image

pytestmark = pytest.mark.skipif(jpegs.native is None, reason=jpegs.NO_KERNEL)


def noise(height: int, width: int) -> np.ndarray:
    """Every coefficient of every size: long codes, and values that no look-up holds."""
    return np.random.default_rng(7).integers(0, 256, (height, width, 3)).astype(np.uint8)


def flat(height: int, width: int) -> np.ndarray:
    """Blocks without anything but a mean: runs of them are one code in a progressive file."""
    pixels = np.full((height, width, 3), 90, np.uint8)
    pixels[height // 2 :, width // 3 :] = (200, 30, 60)
    return pixels


def sparse(height: int, width: int) -> np.ndarray:
    """A few blocks with everything among many with nothing."""
    pixels = flat(height, width)
    pixels[40:56, 48:74] = noise(16, 26)
    return pixels


PICTURES = {"textured": textured, "noise": noise, "flat": flat, "sparse": sparse}
WAYS = {
    "baseline": {},
    "4:4:4": {"subsampling": 0},
    "quality 100": {"quality": 100, "subsampling": 0},
    "quality 5": {"quality": 5},
    "own tables": {"optimize": True},
    "restarts": {"restart_marker_blocks": 5},
    "restart rows": {"restart_marker_rows": 1},
    "progressive": {"progressive": True},
    "progressive 4:4:4": {"progressive": True, "quality": 85, "subsampling": 0},
    "progressive 4:2:2": {"progressive": True, "subsampling": 1},
    "progressive restarts": {"progressive": True, "restart_marker_blocks": 7},
}


@pytest.mark.parametrize("gray", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("picture", PICTURES)
def test_windows_hold_libjpegs_pixels(picture, way, gray):
    pixels = PICTURES[picture](131, 173)
    blob = encoded(pixels[:, :, 0] if gray else pixels, **WAYS[way])
    want, rng = shown(blob), np.random.default_rng(1)
    for i in range(30):
        height, width = (
            (131, 173) if not i else (int(rng.integers(1, 132)), int(rng.integers(1, 174)))
        )
        top, left = int(rng.integers(0, 132 - height)), int(rng.integers(0, 174 - width))
        got = decode_one(
            blob, (top, left, height, width), (height, width), "bilinear", enlarge=NEVER
        )
        assert np.array_equal(got, want[top : top + height, left : left + width]), (
            top,
            left,
            height,
            width,
        )


# restart intervals of half a row of MCUs, of several rows, of none that ends where a row does
LEAPS = {
    "half a row": {"restart_marker_blocks": 6},
    "rows": {"restart_marker_rows": 3},
    "odd": {"restart_marker_blocks": 17},
    "one": {"restart_marker_blocks": 1},
}


def intervals(blob: bytes) -> list[int]:
    """Where the restart markers stand."""
    at, found = blob.index(b"\xff\xda"), []
    while (at := blob.find(b"\xff", at + 2)) >= 0:
        if 0xD0 <= blob[at + 1] <= 0xD7:
            found.append(at)
    return found


@pytest.mark.parametrize(
    "sampling", [{"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}, None], ids=str
)
@pytest.mark.parametrize("leaps", LEAPS)
def test_restart_intervals_above_a_window_are_leapt_over(leaps, sampling):
    """Damage there does not show; a marker out of sequence does, as without leaping."""
    pixels = textured(400, 190)
    pixels = pixels[:, :, 0] if sampling is None else pixels
    blob = encoded(pixels, **(sampling or {}), **LEAPS[leaps])
    want, rng = shown(blob), np.random.default_rng(2)
    assert np.array_equal(want, shown(encoded(pixels, **(sampling or {}))))
    for top in (0, 1, 15, 16, 17, 47, 48, 130, 200, 291, 392, 399):
        left, height = int(rng.integers(0, 100)), min(int(rng.integers(1, 60)), 400 - top)
        got = decode_one(blob, (top, left, height, 90), (height, 90), "bilinear", enlarge=NEVER)
        assert np.array_equal(got, want[top : top + height, left : left + 90]), top
    for shrink in (2, 4, 8):
        size = (160 // shrink, 160 // shrink)
        one, other = (
            decode_one(each, (240, 16, 160, 160), size, "bilinear", enlarge=1.0)
            for each in (blob, encoded(pixels, **(sampling or {})))
        )
        assert np.array_equal(one, other), shrink
    markers = intervals(blob)
    damaged = bytearray(blob)
    damaged[markers[0] + 3] = 0x2A if damaged[markers[0] + 3] == 0x55 else 0x55
    below = np.array([(390, 0, 10, 190)], float)
    out, (reason,) = decode([bytes(damaged)], below, (10, 190), "bilinear", enlarge=NEVER)
    assert reason is None and np.array_equal(out[0], want[390:])
    swapped = bytearray(blob)
    swapped[markers[0] + 1], swapped[markers[1] + 1] = (
        swapped[markers[1] + 1],
        swapped[markers[0] + 1],
    )
    assert decode([bytes(swapped)], below, (10, 190), "bilinear", enlarge=NEVER)[1] == ["corrupt"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shrink", [2, 4, 8])
def test_shrunk_images_are_libjpegs(way, shrink):
    """At an eighth luma needs its means alone; of a progressive file some last bits may be left
    out.
    """
    blob = encoded(textured(160, 240), **WAYS[way])
    image = Image.open(io.BytesIO(blob))
    image.draft(image.mode, (240 // shrink, 160 // shrink))
    want = np.asarray(image.convert("RGB"))
    assert want.shape[:2] == (160 // shrink, 240 // shrink)
    got = decode_one(blob, (0, 0, 160, 240), want.shape[:2], "bilinear", enlarge=1.0)
    if "progressive" in way and shrink < 8:
        assert (
            np.abs(got.astype(int) - want).max() <= 4
            and np.square(got.astype(float) - want).mean() <= 1
        )
    else:
        assert np.array_equal(got, want)


def detail_scans(blob: bytes, component: int) -> list[tuple[int, int]]:
    """Where the data of scans begins and ends that bring no means of this component."""
    scans, at = [], blob.index(b"\xff\xda")
    while at >= 0:
        length = int.from_bytes(blob[at + 2 : at + 4], "big")
        coded = (0x00, *range(0xD0, 0xD8))  # what may follow 0xFF within a scan
        ends = [
            i
            for i in range(at + 2 + length, len(blob) - 1)
            if blob[i] == 0xFF and blob[i + 1] not in coded
        ]
        if blob[at + 4] == 1 and blob[at + 5] == component and blob[at + 7]:
            scans.append((at + 2 + length, ends[0]))
        at = blob.find(b"\xff\xda", ends[0])
    return scans


@pytest.mark.parametrize(("sampling", "left_out"), [(0, (1, 2, 3)), (1, (1, 2, 3)), (2, (1,))])
def test_an_eighth_leaves_out_scans_that_it_does_not_show(sampling, left_out):
    """Damage in what it shrinks to a pixel per block does not show, elsewhere and at full size it
    does.
    """
    good = encoded(textured(160, 240), progressive=True, subsampling=sampling)
    window, eighth = (0, 0, 160, 240), (20, 30)
    want = decode_one(good, window, eighth, "bilinear", enlarge=1.0)
    for component in (1, 2, 3):
        damaged = bytearray(good)
        for first, last in detail_scans(good, component):
            damaged[first:last] = bytes(last - first)
        assert damaged != good
        out, (reason,) = decode(
            [bytes(damaged)], np.array([window], float), eighth, "bilinear", enlarge=1.0
        )
        assert (reason is None and np.array_equal(out[0], want)) == (component in left_out)
        out, (reason,) = decode(
            [bytes(damaged)], np.array([window], float), (160, 240), "bilinear", enlarge=NEVER
        )
        assert reason or not np.array_equal(out[0], shown(good))
    # in a scan that is left out: the file has no end
    cut = good[: detail_scans(good, 1)[-1][0] + 5]
    assert decode([cut], np.array([window], float), eighth, "bilinear", enlarge=1.0)[1] == [
        "truncated"
    ]


@pytest.mark.parametrize(
    ("quality", "shrink", "left_out"),
    [(98, 4, 2), (95, 4, 2), (95, 2, 1), (85, 4, 1), (85, 2, 0), (40, 4, 0), (98, 1, 0)],
)
def test_last_bits_are_left_out_where_steps_are_small(quality, shrink, left_out):
    """Each is damaged in turn: pixels stay where it is not read."""
    good = encoded(textured(160, 240)[..., 0], progressive=True, quality=quality)
    window, size = (0, 0, 160, 240), (160 // shrink, 240 // shrink)
    want = decode_one(good, window, size, "bilinear", enlarge=1.0)
    scans = detail_scans(good, 1)
    assert len(scans) == 4, "bits of 1 to 5, of 6 to 63, then two refinements of all"
    unread = []
    for k, (first, last) in enumerate(scans):
        damaged = good[:first] + bytes(last - first) + good[last:]
        out, (reason,) = decode([damaged], np.array([window], float), size, "bilinear", enlarge=1.0)
        if reason is None and np.array_equal(out[0], want):
            unread.append(k)
    assert unread == [2, 3][2 - left_out :]
    image = Image.open(io.BytesIO(good))
    image.draft("L", size[::-1])
    assert np.square(want[..., 0] - np.asarray(image).astype(float)).mean() <= 2, (
        "of noise; libjpeg reads all bits"
    )


@pytest.mark.parametrize("way", WAYS)
def test_damage_is_called_what_libjpeg_calls_it(way):
    """Data cut, marker moved, bits turned: a reason and zeros, or all of the picture; never a
    neighbor's pixels.
    """
    good = encoded(textured(96, 120), **WAYS[way])
    scan, rng = good.index(b"\xff\xda") + 14, np.random.default_rng(3)
    damaged = [good[: int(at)] for at in rng.integers(scan, len(good) - 2, 12)]
    for at in rng.integers(scan, len(good) - 2, 40):
        blob = bytearray(good)
        blob[at] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(blob))
    n = len(damaged)
    boxes, seen = np.array([(0, 0, 96, 120)] * n, float), set()
    out, why = decode(damaged, boxes, (96, 120), "bilinear", enlarge=NEVER)
    for blob, got, reason in zip(damaged, out, why, strict=True):
        seen.add(reason)
        if reason:
            assert not got.any()
            continue
        assert np.array_equal(got, shown(blob)), "Pillow decodes other pixels"
    assert seen - {None} and seen <= {None, "truncated", "corrupt", "unsupported_format"}


def test_one_file_does_not_show_in_the_next():
    """Tables are kept for files that have the same ones; others in between must not be taken for
    them.
    """
    blobs = [encoded(PICTURES[p](64, 80), **WAYS[way]) for way in WAYS for p in PICTURES] * 2
    order = np.random.default_rng(5).permutation(len(blobs))
    boxes = np.array([(0, 0, 64, 80)] * len(blobs), float)
    out, why = decode([blobs[i] for i in order], boxes, (64, 80), "bilinear", enlarge=NEVER)
    assert not any(why)
    for i, got in zip(order, out, strict=True):
        assert np.array_equal(got, shown(blobs[i]))
