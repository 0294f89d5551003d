"""The kernel's own Huffman decoders: at full size a window is exactly what libjpeg, through Pillow, has there."""

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
        height, width = (131, 173) if not i else (int(rng.integers(1, 132)), int(rng.integers(1, 174)))
        top, left = int(rng.integers(0, 132 - height)), int(rng.integers(0, 174 - width))
        got = decode_one(blob, (top, left, height, width), (height, width), "bilinear", enlarge=NEVER)
        assert np.array_equal(got, want[top : top + height, left : left + width]), (top, left, height, width)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shrink", [2, 4, 8])
def test_shrunk_images_are_libjpegs(way, shrink):
    """At an eighth luma needs its means alone; the coefficients in between are leapt over."""
    blob = encoded(textured(160, 240), **WAYS[way])
    image = Image.open(io.BytesIO(blob))
    image.draft(image.mode, (240 // shrink, 160 // shrink))
    want = np.asarray(image.convert("RGB"))
    assert want.shape[:2] == (160 // shrink, 240 // shrink)
    got = decode_one(blob, (0, 0, 160, 240), want.shape[:2], "bilinear", enlarge=1.0)
    assert np.array_equal(got, want)


def detail_scans(blob: bytes, component: int) -> list[tuple[int, int]]:
    """Where the data of scans begins and ends that bring no means of this component."""
    scans, at = [], blob.index(b"\xff\xda")
    while at >= 0:
        length = int.from_bytes(blob[at + 2 : at + 4], "big")
        coded = (0x00, *range(0xD0, 0xD8))  # what may follow 0xFF within a scan
        ends = [i for i in range(at + 2 + length, len(blob) - 1) if blob[i] == 0xFF and blob[i + 1] not in coded]
        if blob[at + 4] == 1 and blob[at + 5] == component and blob[at + 7]:
            scans.append((at + 2 + length, ends[0]))
        at = blob.find(b"\xff\xda", ends[0])
    return scans


@pytest.mark.parametrize(("sampling", "left_out"), [(0, (1, 2, 3)), (1, (1, 2, 3)), (2, (1,))])
def test_an_eighth_leaves_out_scans_that_it_does_not_show(sampling, left_out):
    """Damage in what it shrinks to a pixel per block does not show, elsewhere and at full size it does."""
    good = encoded(textured(160, 240), progressive=True, subsampling=sampling)
    window, eighth = (0, 0, 160, 240), (20, 30)
    want = decode_one(good, window, eighth, "bilinear", enlarge=1.0)
    for component in (1, 2, 3):
        damaged = bytearray(good)
        for first, last in detail_scans(good, component):
            damaged[first:last] = bytes(last - first)
        assert damaged != good
        out, (reason,) = decode([bytes(damaged)], np.array([window], float), eighth, "bilinear", enlarge=1.0)
        assert (reason is None and np.array_equal(out[0], want)) == (component in left_out)
        out, (reason,) = decode([bytes(damaged)], np.array([window], float), (160, 240), "bilinear", enlarge=NEVER)
        assert reason or not np.array_equal(out[0], shown(good))
    cut = good[: detail_scans(good, 1)[-1][0] + 5]  # in a scan that is left out: the file has no end
    assert decode([cut], np.array([window], float), eighth, "bilinear", enlarge=1.0)[1] == ["truncated"]


@pytest.mark.parametrize("way", WAYS)
def test_damage_is_called_what_libjpeg_calls_it(way):
    """Data cut, marker moved, bits turned: a reason and zeros, or all of the picture; never a neighbor's pixels."""
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
    """Tables are kept for files that have the same ones; others in between must not be taken for them."""
    blobs = [encoded(PICTURES[p](64, 80), **WAYS[way]) for way in WAYS for p in PICTURES] * 2
    order = np.random.default_rng(5).permutation(len(blobs))
    boxes = np.array([(0, 0, 64, 80)] * len(blobs), float)
    out, why = decode([blobs[i] for i in order], boxes, (64, 80), "bilinear", enlarge=NEVER)
    assert not any(why)
    for i, got in zip(order, out, strict=True):
        assert np.array_equal(got, shown(blobs[i]))
