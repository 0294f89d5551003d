"""What a list of ops makes of integer labels."""

import numpy as np
import pytest

from fastfeed.errors import ConfigError
from fastfeed.ops import (
    CutMix,
    LabelSmoothing,
    MixUp,
    Mosaic,
    Normalize,
    OneHot,
    RandomChoice,
    Resize,
)
from fastfeed.ops.labels import Targets, targets
from fastfeed.spec import ENCODED, Spec


def test_labels_stay_integers_without_an_op_that_says_otherwise():
    assert targets([], 0) is None
    assert targets([Resize(8), Normalize.imagenet()], 10) is None


@pytest.mark.parametrize(
    "op", [OneHot(), MixUp(), CutMix(), Mosaic(), RandomChoice([MixUp(), CutMix()])], ids=repr
)
def test_labels_become_soft_by_the_number_of_classes_that_the_source_names(op):
    assert targets([Resize(8), op], 10) == Targets(10)


def test_the_number_of_classes_may_be_said():
    assert targets([OneHot(7)], 0) == Targets(7)
    assert targets([OneHot(7), MixUp()], 0) == targets([MixUp(), OneHot(7)], 0) == Targets(7)
    assert targets([OneHot(12)], 10) == Targets(12)
    assert targets([LabelSmoothing(0.2, classes=7)], 0) == Targets(7, 0.2)
    assert targets([OneHot(7), LabelSmoothing(0.2)], 0) == Targets(7, 0.2)
    assert targets([OneHot(), LabelSmoothing(0.2, 7)], 7) == Targets(7, 0.2)


def test_one_hot_is_one_for_the_class_and_zeros_where_there_is_none():
    found = Targets(4).of(np.array([2, 0, -1]))
    assert found.dtype == np.float32
    assert found.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]


def test_smoothing_is_that_of_the_paper():
    """q(k) = (1 - e) [k is the class] + e / K."""
    found = Targets(4, 0.2).of(np.array([2, -1]))
    np.testing.assert_allclose(found, [[0.05, 0.05, 0.85, 0.05], [0, 0, 0, 0]], atol=1e-7)


@pytest.mark.parametrize("op", [OneHot(3), LabelSmoothing()], ids=repr)
def test_pixels_are_not_touched(op):
    for spec in (ENCODED, Spec((None, None, 3), "uint8", "HWC"), Spec((3, 8, 8), "float32", "CHW")):
        assert op.out(spec) == spec


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        (
            [MixUp()],
            r"MixUp makes soft labels and needs the number of classes: put OneHot\(1000\) before"
            r" it, or give the "
            "source class names",
        ),
        ([LabelSmoothing(), CutMix()], "CutMix makes soft labels and needs the number of classes"),
        ([RandomChoice([MixUp()])], "RandomChoice makes soft labels and needs"),
        (
            [OneHot()],
            (
                r"OneHot needs the number of classes: write OneHot\(classes=1000\), or give the"
                r" source class"
            ),
        ),
        (
            [LabelSmoothing()],
            r"LabelSmoothing needs the number of classes: write LabelSmoothing\(classes=1000\)",
        ),
        (
            [OneHot(3), OneHot(4)],
            r"same number of classes, got OneHot\(classes=3\) and OneHot\(classes=4\)",
        ),
        ([OneHot(3), LabelSmoothing(0.1, 4)], "must have the same number of classes, got OneHot"),
        (
            [LabelSmoothing(0.1, 3), LabelSmoothing(0.2)],
            "labels can be smoothed once, got LabelSmoothing",
        ),
    ],
)
def test_lists_without_one_number_of_classes_are_refused(ops, words):
    with pytest.raises(ConfigError, match=words):
        targets(ops, 0)


@pytest.mark.parametrize("op", [OneHot(9), LabelSmoothing(0.1, 9)], ids=repr)
def test_fewer_classes_than_the_source_names_are_refused(op):
    with pytest.raises(
        ConfigError,
        match="classes must be at least the 10 that the source names, got 9; leave it out",
    ):
        targets([op], 10)


@pytest.mark.parametrize("smoothing", [1, -0.1, 1.5, "much", True, float("nan")])
def test_smoothing_outside_its_range_is_refused(smoothing):
    with pytest.raises(ConfigError, match=r"LabelSmoothing smoothing must be in \[0, 1\), got"):
        LabelSmoothing(smoothing)


@pytest.mark.parametrize("classes", [0, -1, 2.5, "ten", True, 10**9])
@pytest.mark.parametrize("kind", [OneHot, lambda n: LabelSmoothing(0.1, n)])
def test_a_number_of_classes_that_is_none_is_refused(kind, classes):
    with pytest.raises(
        ConfigError, match=r"classes must be an integer in \[1, 16777216\] or None, got"
    ):
        kind(classes)
