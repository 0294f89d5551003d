"""Numbers copied from elsewhere.

Tests that take them from the code would not notice a slip of the pen.
"""

import zlib

import numpy as np

from fastfeed import recipes
from fastfeed.ops import Normalize, RandomCrop, RandomErasing
from fastfeed.ops.policies import POLICIES
from fastfeed.ops.policy import TrivialAugmentWide
from fastfeed.ops.policy_space import MIX, NAMES, RAND, WIDE, PolicyDraw, Space


def test_learned_policies_are_those_of_torchvision():
    """All 75 pairs, compared with `AutoAugment._get_policies` of torchvision 0.28."""
    said = (
        "compare ops/policies.py with torchvision's AutoAugment._get_policies, then write the new"
        " checksum here"
    )
    assert zlib.crc32(repr(POLICIES).encode()) == 1151753527, said


def test_strengths_are_those_of_torchvision():
    """Each highest number of its `_augmentation_space`s."""
    assert Space(0.3, 150 / 331, 0.0, 30.0, 0.9, 8, 4) == RAND
    assert Space(0.99, 0.0, 32.0, 135.0, 0.99, 8, 6) == WIDE
    assert Space(0.3, 1 / 3, 0.0, 30.0, 0.9, 4, 4) == MIX


def test_translations_of_policies_are_cut_to_whole_pixels():
    """`int(magnitude)` in torchvision's `_apply_op`: 8.53 of 32 pixels are 8, either way."""
    which, level = np.full(2, NAMES.index("TranslateX")), np.full(2, 8)
    one = WIDE.choose(
        NAMES,
        TrivialAugmentWide(),
        PolicyDraw(which, level, np.array([False, True])),
        31,
        np.array([[99, 99]] * 2),
    )
    assert one.values[one.choice[0]]["matrix"][:, 0, 2].tolist() == [-8, 8]


def test_recipes_have_the_statistics_and_the_border_of_their_data():
    # of CIFAR-10's training images
    mean, deviation = (
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
    )
    assert [recipes.cifar_train()[0], recipes.cifar_train()[-1]] == [
        RandomCrop(32, padding=4),
        Normalize(mean, deviation),
    ]
    byte_means = tuple(round(255 * share) for share in Normalize.imagenet().mean)
    assert RandomErasing(0.1, fill=byte_means) in recipes.imagenet_train(erase=0.1)
