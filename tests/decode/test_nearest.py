"""The nearest filter: the pixels of Pillow and OpenCV, whatever decodes or moves them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from helpers.jpegs import shown
from PIL import Image

import fastfeed as ff
from fastfeed.decode.base import Request
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.ops.program.compile import Windows

# whose centers are often on the line between two pixels: halves, 16/7, and others
SIZES = [
    ((256, 256), (128, 64)),
    ((512, 96), (224, 42)),
    ((384, 624), (168, 273)),
    ((120, 354), (525, 382)),
    ((68, 56), (370, 226)),
    ((1, 7), (5, 3)),
    ((333, 201), (100, 77)),
]


def labels(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def images_of(source: Any, ops: list[Any], **how: Any) -> np.ndarray:
    with ff.Feed(source, ops, batch=len(source), shuffle=False, threads=1, **how) as feed:
        return next(iter(feed)).images.copy()


def by_pillow(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.NEAREST))


@pytest.mark.parametrize(("shape", "size"), SIZES)
def test_whole_images_are_those_of_pillow_and_opencv(shape, size):
    for image in (labels((*shape, 3)), labels(shape)):
        (got,) = images_of(ff.Arrays(image[None]), [ff.Resize(size, filter="nearest")])
        want = by_pillow(image, size)
        np.testing.assert_array_equal(got.reshape(want.shape), want)
        exact = cv2.resize(image, size[::-1], interpolation=cv2.INTER_NEAREST_EXACT)
        np.testing.assert_array_equal(want, exact)


@pytest.mark.parametrize(("shape", "size"), SIZES)
def test_python_and_native_code_take_the_same_pixels(shape, size):
    image = labels((shape[0] + 5, shape[1] + 3, 3))
    box = (4, 1, *shape)
    windows = Windows(np.array([box], float), np.array([[True, False]]), np.array([size]))
    engine = PixelsEngine()
    out = np.empty((1, *size, 3), np.uint8)
    request = Request([image], engine.probe([image]), windows, "nearest")
    engine.decode(request, out, threading.Event())
    want = by_pillow(image[4 : 4 + shape[0], 1 : 1 + shape[1]], size)[::-1]
    np.testing.assert_array_equal(out[0], want)
    ops = [ff.Crop(4, 1, shape), ff.Resize(size, filter="nearest"), ff.RandomFlip(1.0, "vertical")]
    np.testing.assert_array_equal(images_of(ff.Arrays(image[None]), ops)[0], want)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF"])
@pytest.mark.parametrize("decode", ["native", "pillow"])
def test_files_are_decoded_in_full(kind: str, decode: str, tmp_path: Path):
    path = tmp_path / "a"
    Image.fromarray(labels((512, 384, 3))).save(path, kind)
    (got,) = images_of(ff.Files([path]), [ff.Resize((56, 42), filter="nearest")], decode=decode)
    np.testing.assert_array_equal(got, by_pillow(shown(path.read_bytes()), (56, 42)))


@pytest.mark.parametrize("encoded", [False, True])
def test_label_images_and_masks_move_alike(encoded, tmp_path):
    maps = labels((6, 96, 112))
    if encoded:
        for i, each in enumerate(maps):
            Image.fromarray(each).save(tmp_path / f"{i}.png")
    images = ff.Files(sorted(tmp_path.iterdir())) if encoded else ff.Arrays(maps)
    source = ff.Objects(images, masks=list(maps))
    ops = [
        ff.RandomResizedCrop((48, 56), filter="nearest"),
        ff.RandomFlip(direction="both"),
        ff.Resize((21, 24), filter="nearest"),
    ]
    for each in (ops, ops[2:], [ops[2], ff.RandomFlip(1.0, "both")]):
        with ff.Feed(source, each, batch=6, seed=1, threads=1) as feed:
            batch = next(iter(feed))
            np.testing.assert_array_equal(batch.images[..., 0], batch.masks)


@pytest.mark.parametrize("filter", ["bilinear", "bicubic", "lanczos", "box", "nearest"])
def test_every_filter_works_after_an_op_that_changes_pixels(filter):
    images = labels((3, 40, 33, 3))
    resize = ff.Resize((16, 21), filter=filter)
    want = images_of(ff.Arrays(images_of(ff.Arrays(images), [ff.Invert()])), [resize])
    got = images_of(ff.Arrays(images), [ff.Invert(), resize])
    np.testing.assert_array_equal(got, want)


def test_nearest_mixes_no_pixels_after_a_warp():
    images = np.where(labels((2, 40, 33, 3)) > 90, 200, 7).astype(np.uint8)
    move = ff.Affine(degrees=20, translate=(0.2, 0.2), filter="nearest")
    crop = ff.RandomResizedCrop(16, filter="nearest")
    assert set(np.unique(images_of(ff.Arrays(images), [move, crop]))) <= {0, 7, 200}
