"""A user's function gets an image to do with as it likes; ours stays one that ops behind it can
write to.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.opencv_ops.chain import run

from fastfeed.backends.cpu.native_program import OpFailed
from fastfeed.ops import Function, Invert
from fastfeed.ops.program.compile import fuse
from fastfeed.spec import PIXELS


def locked(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    image[0] = 9
    image.flags.writeable = False
    return image


def flattened(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    image.shape = (-1, 3)
    image[:6] = 9
    return np.array(image).reshape(4, 6, 3)


def bent(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    image.shape = (6, 4, 3)
    return image


def changed(function) -> np.ndarray:
    program = fuse([Function(function), Invert()], PIXELS.with_size(4, 6))
    work = program.work(program.draw(lambda slot, k: np.zeros((1, k))), np.array([[4, 6]]))
    return run(program.layers, work.choices, 0, np.full((4, 6, 3), 1, np.uint8))


@pytest.mark.filterwarnings("ignore:Setting the shape")  # NumPy 2.5 would rather have it reshaped
@pytest.mark.parametrize("function", [locked, flattened])
def test_what_it_does_to_the_array_stays_with_it(function):
    found = changed(function)
    assert found.shape == (4, 6, 3) and (found[0] == 246).all() and (found[1:] == 254).all()


@pytest.mark.filterwarnings("ignore:Setting the shape")
def test_a_shape_that_it_has_changed_is_a_wrong_result():
    with pytest.raises(
        OpFailed, match=r"must return uint8\[4, 6, 3\], as it got, returned uint8\[6, 4, 3\]"
    ):
        changed(bent)
