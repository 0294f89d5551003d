"""TIFFs of every photometric interpretation, depth and layout: the right pixels, or refused with
the reason.
"""

from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest
from helpers.engines import MATTE, by_pillow, routed
from helpers.preprocess.rasters import preprocessed, without_kernel
from helpers.products import in_turn
from helpers.tiffs import any_tiff
from PIL import Image

from fastfeed.decode import DecodeFailure

RNG = np.random.default_rng(1)
SIZE = 9, 13
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, MASK, CMYK, YCBCR, LAB = 0, 1, 2, 3, 4, 5, 6, 8
CHANNELS = {RGB: 3, CMYK: 4, YCBCR: 3, LAB: 3}
BITS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 24, 32, 64)
PACKED = [(1, 1), (5, 1), (5, 2), (8, 2), (32773, 1)]  # compression, predictor


def shown(samples: np.ndarray, bits: int, photometric: int, colors: np.ndarray) -> np.ndarray:
    """By TIFF 6.0: 8 bits."""
    top = samples >> (bits - 8) if bits > 8 else samples * 255 // ((1 << bits) - 1)
    top = top.astype(np.uint8)
    if photometric == PALETTE:
        return colors[samples[..., 0]]
    if photometric in (WHITE_IS_ZERO, BLACK_IS_ZERO):
        return np.repeat(top[..., :1] if photometric else 255 - top[..., :1], 3, axis=2)
    if photometric == RGB:
        return top[..., :3]
    mode, channels = {CMYK: ("CMYK", 4), YCBCR: ("YCbCr", 3)}[photometric]
    return np.asarray(
        Image.fromarray(np.ascontiguousarray(top[..., :channels]), mode).convert("RGB")
    )


def variants(photometric: int, bits: int, extra: tuple[int, ...] = ()):
    """(file, what it shows) of every layout."""
    channels = CHANNELS.get(photometric, 1) + len(extra)
    for (compression, predictor), big, planar in itertools.product(PACKED, (False, True), (1, 2)):
        if (planar == 2 and channels == 1) or (predictor == 2 and bits not in (8, 16, 32)):
            continue
        samples = RNG.integers(0, 1 << min(bits, 62), (*SIZE, channels))
        if extra:
            samples[..., -1] = (1 << bits) - 1
        table = RNG.integers(0, 256, (3, 1 << bits if bits <= 8 else 1))
        tags = {320: (3, (table * 257).ravel().tolist())} if photometric == PALETTE else {}
        tags |= {530: (3, [1, 1])} if photometric == YCBCR else {}
        how = {"big": big, "planar": planar, "compression": compression, "predictor": predictor}
        placed = {"tile": (16, 16)} if big else {"strip": 4}
        blob = any_tiff(samples, bits, photometric, extra=extra, tags=tags, **placed, **how)
        readable = (
            photometric not in (MASK, LAB)
            and bits <= 16
            and not (photometric == PALETTE and bits > 8)
        )
        yield (
            how,
            blob,
            shown(samples, bits, photometric, table.T.astype(np.uint8)) if readable else None,
        )


READ = {
    WHITE_IS_ZERO: (1, 2, 4, 8, 16),
    BLACK_IS_ZERO: (1, 2, 4, 8, 12, 16),
    RGB: (8, 16),
    PALETTE: (1, 2, 4, 8),
    CMYK: (8, 16),
    YCBCR: (8,),
}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(
    "photometric", [WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, MASK, CMYK, YCBCR]
)
def test_right_or_refused(photometric, bits):
    is_read = bits in READ.get(photometric, ())
    for how, blob, want in variants(photometric, bits):
        for read in (routed, by_pillow, preprocessed):
            got = read(blob)
            if isinstance(got, DecodeFailure):
                assert got.reason == "unsupported_format" and not is_read, (how, got)
                assert str(bits) in got.detail, got
            else:
                off = np.abs(got.astype(int) - want).max()
                assert is_read and off <= (2 if photometric == YCBCR else 0), (how, off)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("photometric", [WHITE_IS_ZERO, BLACK_IS_ZERO, RGB])
def test_libvips_and_opencv_agree(photometric, bits):
    pyvips = pytest.importorskip("pyvips", reason="no pyvips; pip install 'fastfeed[vips]'")
    for how, blob, want in variants(photometric, bits):
        if how["planar"] == 2:  # libvips reads no tiles of planes
            continue
        by_vips = pyvips.Image.new_from_buffer(blob, "").numpy().reshape(*SIZE, -1) >> (bits - 8)
        assert np.array_equal(np.broadcast_to(by_vips, (*SIZE, 3)), want), how
        by_opencv = cv2.imdecode(np.frombuffer(blob, np.uint8), cv2.IMREAD_COLOR)
        if not how["big"]:  # it refuses some tiles and misreads others
            assert np.abs(by_opencv[..., ::-1].astype(int) - want).max() <= 1, how


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize(
    ("photometric", "extra"),
    in_turn([WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, CMYK], [(0,), (1,), (2,)]),
)
def test_one_more_channel(photometric, bits, extra):
    """It is opaque: the colors are as without it."""
    for how, blob, want in variants(photometric, bits, extra):
        for read in (routed, by_pillow, preprocessed):
            got = read(blob)
            if isinstance(got, DecodeFailure):
                assert got.reason == "unsupported_format" and photometric != RGB, (how, got)
            else:
                assert np.array_equal(got, want), (how, np.abs(got.astype(int) - want).max())


@pytest.mark.parametrize("planar", [1, 2])
@pytest.mark.parametrize("extra", [1, 2], ids=["premultiplied", "alpha"])
@pytest.mark.parametrize("deep", [False, True])
def test_alpha(planar, extra, deep):
    alpha = RNG.integers(0, 256, (*SIZE, 1))
    colors = RNG.integers(0, 256, (*SIZE, 3))
    stored = colors * alpha // 255 if extra == 1 else colors
    samples = np.concatenate([stored, alpha], axis=2) * (257 if deep else 1)
    blob = any_tiff(samples, 16 if deep else 8, RGB, extra=(extra,), planar=planar)
    share = alpha / 255
    want = (stored if extra == 1 else colors * share) + np.array(MATTE) * (1 - share)
    for read in (routed, by_pillow, preprocessed):
        got = read(blob)
        assert isinstance(got, np.ndarray) and np.abs(got - want).max() <= 2


@pytest.mark.parametrize(
    ("bits", "format"), [(8, 2), (16, 2), (32, 1), (32, 2), (16, 3), (32, 3), (64, 3)]
)
def test_numbers_that_are_no_levels_are_refused_whatever_they_are(bits, format):
    """Also those that would fit: what a file is must not depend on how bright it is."""
    for predictor in (1, 3) if format == 3 else (1,):
        blob = any_tiff(
            RNG.integers(0, 100, (*SIZE, 1)),
            bits,
            BLACK_IS_ZERO,
            format=format,
            compression=5,
            predictor=predictor,
        )
        for read in (routed, by_pillow, preprocessed):
            bad = read(blob)
            assert isinstance(bad, DecodeFailure) and bad.reason == "unsupported_format"
            assert "samples" in bad.detail


def test_luma_and_chroma_that_are_not_compressed():
    """Blocks of four luma samples and two of chroma: as libtiff and OpenCV read them."""
    luma, chroma = RNG.integers(40, 200, (2, 8, 2, 8)), RNG.integers(100, 150, (2, 8, 8))
    blocks = np.concatenate(
        [luma[0].transpose(0, 2, 1), luma[1].transpose(0, 2, 1), chroma.transpose(1, 2, 0)], axis=2
    )
    whole = np.empty((16, 16, 3), np.uint8)
    whole[0::2, :, 0] = luma[0].transpose(0, 2, 1).reshape(8, 16)
    whole[1::2, :, 0] = luma[1].transpose(0, 2, 1).reshape(8, 16)
    whole[..., 1:] = chroma.transpose(1, 2, 0).repeat(2, axis=0).repeat(2, axis=1)
    size = {
        256: (4, [16]),
        257: (4, [16]),
        258: (3, [8, 8, 8]),
        277: (3, [3]),
        278: (4, [16]),
        530: (3, [2, 2]),
    }
    blob = any_tiff(blocks.reshape(8, 48, 1), 8, YCBCR, tags=size | {339: None})
    want = np.asarray(Image.fromarray(whole, "YCbCr").convert("RGB")).astype(int)
    for read in (routed, by_pillow, preprocessed):
        got = read(blob)
        assert isinstance(got, np.ndarray) and np.abs(got - want).max() <= 3


def test_what_zero_is_must_be_said():
    blob = any_tiff(RNG.integers(0, 256, (*SIZE, 1)), 8, BLACK_IS_ZERO, tags={262: None})
    bad = routed(blob)
    assert (
        isinstance(bad, DecodeFailure)
        and bad.reason == "corrupt"
        and "PhotometricInterpretation" in bad.detail
    )


@pytest.mark.parametrize("compression", [1, 5])
@pytest.mark.parametrize(
    "photometric", [WHITE_IS_ZERO, RGB], ids=["through Pillow", "in the native extension"]
)
def test_metadata_never_decides_over_pixels(photometric, compression, monkeypatch):
    samples = RNG.integers(0, 256, (*SIZE, CHANNELS.get(photometric, 1)))
    want = shown(samples, 8, photometric, np.empty(0))
    strange = {
        "a description outside of the file": {270: (1, [7] * 5)},
        "a private tag outside of the file": {270: (1, [7] * 5)},
        "a resolution of four": {282: (4, [1, 2, 3, 4]), 283: (4, [1, 2, 3, 4]), 296: (3, [3])},
        "a resolution of letters": {282: (7, [65] * 9), 283: (7, [65] * 9), 296: (3, [3])},
        "a profile of numbers": {34675: (3, [1, 2, 3])},
        "a profile of nothing": {34675: (7, [0])},
        "a long XMP packet": {700: (1, [65] * 2_000_000)},
        "EXIF somewhere": {34665: (4, [1 << 31])},
    }
    for name, tags in strange.items():
        blob = any_tiff(samples, 8, photometric, compression=compression, tags=tags)
        if name.endswith("outside of the file"):
            at = blob.index(b"\x0e\x01\1\0\5\0\0\0")
            tag = b"\x09\1" if name.startswith("a private") else blob[at : at + 2]
            blob = blob[:at] + tag + blob[at + 2 : at + 8] + b"\xff\xff\xff\x7f" + blob[at + 12 :]
        for read in (routed, by_pillow, preprocessed):
            assert np.array_equal(read(blob), want), (name, read(blob))
    without_kernel(monkeypatch)
    assert np.array_equal(preprocessed(blob), want)
