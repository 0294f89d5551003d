"""Encoding: what each file says when it is read again, and that nothing else is in it."""

from __future__ import annotations

import io
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers.photos import picture
from PIL import Image

from fastfeed.preprocess.model.image_recipe import IMAGES
from fastfeed.preprocess.model.recipe import Encoding
from fastfeed.preprocess.pixels.transform import encode, working_bytes

PIXELS = picture(3, (61, 83))
ENCODINGS = [
    Encoding(),
    Encoding("jpeg", 70, "4:4:4"),
    Encoding("jpeg", 90, optimize=True),
    Encoding("webp", 80),
    Encoding("webp", 100),
    Encoding("png"),
    Encoding("raw"),
]


def read(file: bytes) -> np.ndarray:
    if file.startswith(b"\x93NUMPY"):
        return np.load(io.BytesIO(file), allow_pickle=False)
    return np.asarray(Image.open(io.BytesIO(file)))


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_files_hold_the_pixels_and_nothing_else(encoding: Encoding) -> None:
    file = encode(PIXELS, encoding)
    found = read(file)
    assert found.shape == PIXELS.shape and found.dtype == np.uint8
    lossless = encoding.image in ("png", "raw") or encoding == Encoding("webp", 100)
    assert np.array_equal(found, PIXELS) == lossless
    assert np.abs(found.astype(int) - PIXELS).mean() < 3
    if encoding.image != "raw":
        opened = Image.open(io.BytesIO(file))
        assert opened.mode == "RGB" and opened.format == encoding.image.upper()
        assert (
            not opened.getexif() and "icc_profile" not in opened.info and "xmp" not in opened.info
        )


def test_jpegs_are_baseline_with_the_tables_of_their_quality() -> None:
    for quality, subsampling, sampling in ((90, "4:2:0", (2, 2)), (35, "4:4:4", (1, 1))):
        found = Image.open(io.BytesIO(encode(PIXELS, Encoding("jpeg", quality, subsampling))))
        assert "progressive" not in found.info and found.layer[0][1:3] == sampling  # type: ignore[attr-defined]
        assert [part[1:3] for part in found.layer[1:]] == [(1, 1), (1, 1)]  # type: ignore[attr-defined]
        # libjpeg, jpeg_quality_scaling
        scale = 200 - 2 * quality if quality >= 50 else 5000 // quality
        assert found.quantization[0][0] == (16 * scale + 50) // 100  # type: ignore[attr-defined]


def test_raw_is_numpys_format_in_version_1() -> None:
    file = encode(PIXELS, Encoding("raw"))
    assert file[:8] == b"\x93NUMPY\x01\x00"
    assert len(file) % 64 == PIXELS.nbytes % 64, "pixels are aligned"


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_the_same_pixels_give_the_same_bytes(encoding: Encoding) -> None:
    backwards = np.ascontiguousarray(PIXELS[::-1])[::-1]  # the same pixels, laid out otherwise
    with ThreadPoolExecutor(2) as pool:
        files = list(pool.map(lambda pixels: encode(pixels, encoding), [PIXELS, backwards] * 4))
    assert len(set(files)) == 1


def test_the_least_image() -> None:
    for image in IMAGES:
        assert read(encode(np.full((1, 1, 3), 128, np.uint8), Encoding(image))).shape == (1, 1, 3)


def test_working_bytes_cover_what_python_sees_of_raw() -> None:
    pixels = np.zeros((500, 700, 3), np.uint8)
    tracemalloc.start()
    try:
        encode(pixels, Encoding("raw"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert pixels.nbytes < peak <= working_bytes(Encoding("raw"), (500, 700))
