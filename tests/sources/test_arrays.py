"""Arrays: images in memory."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fastfeed.errors import ConfigError, SourceError
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


INTEGERS = (
    "Arrays needs one integer label per image, got {} for 4 images; pass label_kind='value',"
    " 'multi' or 'text' for targets of another kind"
)


@pytest.mark.parametrize(
    ("images", "labels", "text"),
    [
        (
            RGB / 255,
            None,
            "Arrays needs uint8, uint16 or float32 images, got float64; convert with"
            " x.astype('float32')",
        ),
        (
            RGB.astype(">u2"),
            None,
            "Arrays needs uint8, uint16 or float32 images, got >u2; convert with"
            " x.astype('float32')",
        ),
        (RGB.transpose(0, 3, 1, 2), None, SHAPE.format((4, 3, 5, 6))),
        (RGB[0, 0], None, SHAPE.format((6, 3))),
        (RGB[..., :2], None, SHAPE.format((4, 5, 6, 2))),
        (RGB[:0], None, "Arrays needs at least one image, got an array of shape (0, 5, 6, 3)"),
        (RGB[:, :0], None, "Arrays needs images with pixels, got shape (4, 0, 6, 3)"),
        (RGB, [0, 1], INTEGERS.format("int64[2]")),
        (RGB, np.eye(4, dtype=int), INTEGERS.format("int64[4, 4]")),
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


PIXELS = np.zeros((3, 4, 4), np.uint8)
TAGS = [["dog"], [], ["cat", "dog"]]


@pytest.mark.parametrize(
    ("labels", "kind", "classes", "wanted"),
    [
        ([0.5, 1, -2], None, (), np.array([0.5, 1, -2], np.float32)),
        (np.arange(6.0).reshape(3, 2), None, (), np.arange(6, dtype=np.float32).reshape(3, 2)),
        ([[1.0, 2.0]] * 3, None, (), np.array([[1, 2]] * 3, np.float32)),
        (np.arange(12).reshape(3, 2, 2), "value", (), np.arange(12.0).reshape(3, 2, 2)),
        ([3, 1, 2], "value", (), np.array([3, 1, 2], np.float32)),
        (TAGS, "multi", ("cat", "dog"), np.array([[0, 1], [0, 0], [1, 1]], np.float32)),
        (TAGS, "multi", ("dog", "cat"), np.array([[1, 0], [0, 0], [1, 1]], np.float32)),
        (np.eye(3, 2, dtype=bool), "multi", ("a", "b"), np.eye(3, 2, dtype=np.float32)),
        (["one", "zwölf", "3"], "text", (), np.array(["one", "zwölf", "3"], object)),
        (["one", "two", "3"], "none", (), np.array([-1, -1, -1])),
    ],
)
def test_targets_of_other_kinds(labels, kind, classes, wanted):
    source = Arrays(PIXELS, labels, classes=classes, label_kind=kind)
    found = source.label(np.arange(3))
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == (np.float32 if wanted.dtype.kind == "f" else wanted.dtype)
    assert source.label_spec.shape == wanted.shape[1:]
    assert source.classes == (classes if kind == "multi" else ())
    assert source.fingerprint != Arrays(PIXELS).fingerprint or kind == "none"


@pytest.mark.parametrize(
    ("labels", "kind", "classes", "text"),
    [
        ([0.5, np.nan, 1], None, (), "needs a label for every image, got none for image 1"),
        ([0.5, 1e39, 1], None, (), "row 1: column 'labels' must hold numbers that float32"),
        ([0.5, 1], None, (), "Arrays needs one label per image, got 2 for 3 images"),
        (["a", "b", "c"], "value", (), "column 'labels' must hold numbers"),
        ([[1], [1, 2], [1]], "value", (), "holds a list of 2, those above hold 1; make all of"),
        (["a", None, "c"], "text", (), "needs a label for every image, got none for image 1"),
        ([["a"], None, []], "multi", (), "needs a label for every image, got none for image 1"),
        ([["a"], ["b"], []], "multi", ("a",), "labels that are not in classes: b"),
        (np.eye(3), "multi", ("a", "b"), "got 2 classes for 3 columns; pass classes=[...]"),
        (np.eye(3) * 2, "multi", ("a", "b", "c"), "column 'a' must hold 0 or 1, got 2.0"),
        ([0, 1, 2], "numbers", (), "label_kind must be one of 'name'"),
        (["a", "b", "c"], None, (), "pass label_kind='value', 'multi' or 'text' for targets"),
    ],
)
def test_targets_that_are_refused(labels, kind, classes, text):
    with pytest.raises((ConfigError, SourceError), match=re.escape(text)) as raised:
        Arrays(PIXELS, labels, classes=classes, label_kind=kind)
    assert str(raised.value).startswith("Arrays")
