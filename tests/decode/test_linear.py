"""The linear filter: OpenCV's, which blends the nearest four pixels at any reduction."""

from __future__ import annotations

import threading
from typing import Any

import cv2
import numpy as np
import pytest
from helpers.photos import picture

import fastfeed as ff
from fastfeed.decode.base import Request
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.ops.program.compile import Windows

SIZES = [((64, 48), (10, 11)), ((64, 48), (90, 60)), ((200, 30), (7, 30)), ((5, 9), (1, 2))]


def made(image: np.ndarray, *ops: Any) -> np.ndarray:
    with ff.Feed(ff.Arrays(image[None]), list(ops), batch=1, shuffle=False, threads=1) as feed:
        return next(iter(feed)).images[0].copy()


@pytest.mark.parametrize(("shape", "size"), SIZES)
def test_pixels_are_those_of_opencv_in_native_code_and_in_python(shape, size):
    image = picture(3, shape)
    wanted = cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR).astype(int)
    assert np.abs(made(image, ff.Resize(size, "linear")) - wanted).max() <= 1
    engine = PixelsEngine()
    windows = Windows(np.array([[0.0, 0, *shape]]), np.zeros((1, 2), bool), np.array([size]))
    out = np.empty((1, *size, 3), np.uint8)
    engine.decode(
        Request([image], engine.probe([image]), windows, "linear"), out, threading.Event()
    )
    assert np.abs(out[0] - wanted).max() <= 1


def test_files_are_decoded_in_full(tmp_path):
    """A JPEG shrunk in the DCT domain would be antialiased."""
    noise = np.random.default_rng(0).integers(0, 256, (256, 256), np.uint8)
    path = tmp_path / "a.jpg"
    cv2.imwrite(str(path), noise, [cv2.IMWRITE_JPEG_QUALITY, 100])
    wanted = cv2.resize(cv2.imread(str(path)), (32, 32), interpolation=cv2.INTER_LINEAR)
    with ff.Feed(ff.Files([path]), [ff.Resize((32, 32), "linear")], batch=1) as feed:
        assert np.abs(next(iter(feed)).images[0] - wanted.astype(int)).max() <= 2


@pytest.mark.parametrize("shape", [(64, 48), (48, 64), (30, 40), (7, 100)])
def test_a_cropped_fit_is_the_largest_centered_part(shape):
    image = picture(5, shape)
    height, width = shape
    rows = min(height, width * 24 // 32)
    columns = min(width, height * 32 // 24)
    part = ff.Crop((height - rows) // 2, (width - columns) // 2, (rows, columns))
    wanted = made(image, part, ff.Resize((24, 32)))
    assert np.array_equal(made(image, ff.Resize((24, 32), fit="crop")), wanted)
    assert str(ff.Resize((24, 32), fit="crop").out(ff.Spec((*shape, 3), "uint8", "HWC"))) == (
        "HWC uint8[24, 32, 3]"
    )
