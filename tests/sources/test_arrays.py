"""Arrays: images in memory."""

from __future__ import annotations

import numpy as np
import pytest

from fastfeed.errors import ConfigError
from fastfeed.sources import Arrays
from fastfeed.spec import Spec

RGB = np.arange(4 * 5 * 6 * 3, dtype=np.uint8).reshape(4, 5, 6, 3)


@pytest.mark.parametrize(
    ("images", "spec"),
    [
        (RGB, Spec((5, 6, 3), "uint8", "HWC")),
        (RGB[..., :1], Spec((5, 6, 1), "uint8", "HWC")),
        (RGB[..., 0], Spec((5, 6, 1), "uint8", "HWC")),
        (RGB[:, ::-1, ::2], Spec((5, 3, 3), "uint8", "HWC")),
    ],
    ids=lambda value: str(getattr(value, "shape", value)),
)
def test_images(images, spec):
    source = Arrays(images, [3, 1, 4, 1])
    assert (source.spec, len(source)) == (spec, 4)
    for i, image in enumerate(source.read([2, 0, 2])):
        np.testing.assert_array_equal(image.reshape(images[0].shape), images[(2, 0, 2)[i]])
    assert source.label(np.array([2, 0])).tolist() == [4, 3]
    assert source.uri(3) == "array[3]"


def test_reading_copies_nothing():
    assert all(np.shares_memory(image, RGB) for image in Arrays(RGB).read([0, 1]))


def test_labels_default_to_none():
    assert Arrays(RGB).label(np.arange(4)).tolist() == [-1] * 4


@pytest.mark.parametrize(
    "labels", [[0, 1, 2, 3], (0, 1, 2, 3), np.arange(4, dtype=np.uint8)], ids=repr
)
def test_labels_become_int64(labels):
    got = Arrays(RGB, labels).label(np.array([3]))
    assert (got.tolist(), got.dtype) == ([3], np.int64)


def test_memory_mapped_images_stay_on_disk(tmp_path):
    np.save(tmp_path / "images.npy", RGB)
    source = Arrays(np.load(tmp_path / "images.npy", mmap_mode="r"))
    assert isinstance(source.read([1])[0], np.memmap)
    assert source.fingerprint == Arrays(RGB).fingerprint


@pytest.mark.parametrize(
    "other",
    [
        lambda: Arrays(RGB + 1, [0, 1, 2, 3]),
        lambda: Arrays(RGB, [0, 1, 2, 4]),
        lambda: Arrays(RGB[::-1], [0, 1, 2, 3]),
        lambda: Arrays(RGB.reshape(4, 6, 5, 3), [0, 1, 2, 3]),
        lambda: Arrays(RGB, [0, 1, 2, 3], classes=("a", "b", "c", "d")),
        lambda: Arrays(RGB[:3], [0, 1, 2]),
    ],
)
def test_fingerprint(other):
    base = Arrays(RGB, [0, 1, 2, 3])
    assert base.fingerprint == Arrays(RGB.copy(), np.arange(4)).fingerprint
    assert base.fingerprint != other().fingerprint


SHAPE = (
    "Arrays needs images of shape (n, height, width) or (n, height, width, 1 or 3), "
    "got {}; move channels last with images.transpose(0, 2, 3, 1)"
)


@pytest.mark.parametrize(
    ("images", "labels", "text"),
    [
        (
            RGB / 255,
            None,
            "Arrays needs uint8 images, got float64; convert with (x * 255).astype('uint8')",
        ),
        (RGB.transpose(0, 3, 1, 2), None, SHAPE.format((4, 3, 5, 6))),
        (RGB[0, 0], None, SHAPE.format((6, 3))),
        (RGB[..., :2], None, SHAPE.format((4, 5, 6, 2))),
        (RGB[:0], None, "Arrays needs at least one image, got an array of shape (0, 5, 6, 3)"),
        (RGB[:, :0], None, "Arrays needs images with pixels, got shape (4, 0, 6, 3)"),
        (RGB, [0, 1], "Arrays needs one integer label per image, got int64[2] for 4 images"),
        (
            RGB,
            [0.0, 1, 2, 3],
            "Arrays needs one integer label per image, got float64[4] for 4 images",
        ),
        (
            RGB,
            np.eye(4, dtype=int),
            "Arrays needs one integer label per image, got int64[4, 4] for 4 images",
        ),
        (
            [[1, 2], [3, 4]],
            None,
            "Arrays needs a NumPy array of uint8 images, got list; convert with np.asarray(images)",
        ),
    ],
    ids=lambda value: str(getattr(value, "shape", value))[:40],
)
def test_refuses(images, labels, text):
    with pytest.raises(ConfigError) as error:
        Arrays(images, labels)
    assert str(error.value) == text


def test_says_what_it_is():
    assert str(Arrays(RGB)) == "Arrays: 4 images, HWC uint8[5, 6, 3]"
    assert (
        str(Arrays(RGB, classes=("a", "b"))) == "Arrays: 4 images of 2 classes, HWC uint8[5, 6, 3]"
    )


@pytest.mark.parametrize(
    ("labels", "classes", "allowed"),
    [
        ([0, 1, 5], ("a", "b"), "in [0, 2) for 2 classes, or -1 for none, got 5 for image 2"),
        ([0, -3, 1], (), ">= 0, or -1 for none, got -3 for image 1"),
        ([-2, 0, 1], ("a", "b"), "in [0, 2) for 2 classes, or -1 for none, got -2 for image 0"),
    ],
)
def test_labels_that_no_class_has(labels, classes, allowed):
    with pytest.raises(ConfigError) as caught:
        Arrays(np.zeros((3, 4, 4), np.uint8), labels, classes=classes)
    assert str(caught.value) == f"Arrays: labels must be {allowed}; number the classes from 0"
    with pytest.raises(ConfigError, match=r"pass \['ab'\]"):
        Arrays(np.zeros((3, 4, 4), np.uint8), [0, 1, 1], classes="ab")


def test_labels_without_names_may_be_any_number():
    source = Arrays(np.zeros((3, 4, 4), np.uint8), [0, 1000, -1])
    assert source.label(np.arange(3)).tolist() == [0, 1000, -1]
