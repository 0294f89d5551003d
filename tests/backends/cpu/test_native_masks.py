"""Masks that the native extension moves are those of the definition, in OpenCV and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import jpegs
from helpers.opencv_ops.masks import mask_after as defined

from fastfeed.backends.cpu.masks import mask_after
from fastfeed.ops.move_boxes import Stage

pytestmark = pytest.mark.skipif(jpegs.native is None, reason=jpegs.NO_KERNEL)
RNG = np.random.default_rng(4)


def straight(height: int, width: int, limit: np.ndarray) -> Stage:
    """A window of any place, scale and flip, which may reach far outside."""
    back = np.eye(3)
    back[[0, 1], [0, 1]] = RNG.uniform(0.05, 6, 2) * RNG.choice([-1, 1], 2)
    back[:2, 2] = RNG.uniform(-60, 60, 2)
    if RNG.random() < 0.3:
        back = np.rint(back) + np.eye(3) * (np.rint(back) == 0)
    return Stage(np.eye(3)[None], back[None], limit[None], np.array([[height, width]]))


def bent(height: int, width: int) -> Stage:
    """A turn or a tilt, which keeps the size."""
    back = np.eye(3) + RNG.uniform(-0.3, 0.3, (3, 3))
    back[2, :2] *= RNG.choice([0, 0.01])
    limit = np.array([0.0, 0.0, height, width])
    return Stage(np.eye(3)[None], back[None], limit[None], np.array([[height, width]]))


def test_any_moves():
    for _ in range(300):
        height, width = (int(side) for side in RNG.integers(1, 50, 2))
        mask, path = RNG.integers(0, 256, (height, width), dtype=np.uint8), []
        for _ in range(RNG.integers(1, 5)):
            if RNG.random() < 0.5:
                limit = np.array([*RNG.uniform(-5, 20, 2), *RNG.uniform(0, 60, 2)])
                height, width = (int(side) for side in RNG.integers(1, 70, 2))
                path.append(straight(height, width, limit))
            else:
                path.append(bent(height, width))
        np.testing.assert_array_equal(mask_after(path, 0, mask, 77), defined(path, 0, mask, 77))


def test_a_mask_that_stays_and_masks_that_are_views():
    mask = RNG.integers(0, 256, (40, 50), dtype=np.uint8)
    stays = Stage(
        np.eye(3)[None], np.eye(3)[None], np.array([[0.0, 0, 40, 50]]), np.array([[40, 50]])
    )
    for view in (mask, mask[::-1], mask[:, ::-1]):
        np.testing.assert_array_equal(mask_after([stays, stays], 0, view), view)


@pytest.mark.parametrize(
    ("shape", "moves", "size", "out", "message"),
    [
        ((4, 5), 0, (4, 5), (4, 5), "out must be of the size after the last move"),
        ((4, 5), 1, (4, 6), (4, 5), "out must be of the size after the last move"),
        ((4, 5), 1, (4, 0), (4, 0), r"sides of masks must be in \[1, 2\^24\]"),
        ((0, 5), 1, (4, 5), (4, 5), r"sides of masks must be in \[1, 2\^24\]"),
    ],
)
def test_the_kernel_refuses_masks(shape, moves, size, out, message):
    back = np.tile(np.eye(3), (abs(moves), 1, 1))
    back[:, 0, 1] = moves < 0
    sizes, limits = np.tile(np.array(size), (abs(moves), 1)), np.zeros((abs(moves), 4))
    with pytest.raises(ValueError, match=message):
        jpegs.native.move_mask(
            np.zeros(shape, np.uint8), back, sizes, limits, 255, np.zeros(out, np.uint8)
        )
