"""Rotated boxes: five numbers, whose corners move as keypoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.feeds import feed

import fastfeed as ff
from fastfeed.errors import ConfigError

SIZE = (60, 90)
BOX = [40, 30, 30, 12, 0]
CORNERS = [[25, 24], [55, 24], [55, 36], [25, 36]]  # clockwise from the upper left one


def rotated(*boxes: Any, **more: Any) -> ff.Objects:
    image = np.zeros((1, *SIZE, 3), np.uint8)
    return ff.Objects(ff.Arrays(image), [list(boxes)], format="cxcywhr", **more)


def corners_of(source: ff.Objects, ops: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    with feed(source, ops, batch=1) as made:
        (batch,) = made
    return batch["keypoints"][0, 0], batch["boxes"][0, 0]


def test_corners_without_and_with_an_angle() -> None:
    points, box = corners_of(rotated(BOX), [])
    np.testing.assert_array_equal(points, np.c_[CORNERS, [2] * 4])
    assert box.tolist() == [25, 24, 55, 36]
    points, box = corners_of(rotated([*BOX[:4], 90]), [])
    # counterclockwise, as seen: the upper left corner is the lower left one now
    np.testing.assert_allclose(points[:, :2], [[34, 45], [34, 15], [46, 15], [46, 45]], atol=1e-5)
    np.testing.assert_allclose(box, [34, 15, 46, 45], atol=1e-5)


@pytest.mark.parametrize("angle", [20, -35, 170])
def test_a_rotated_box_is_a_box_after_a_rotation(angle: float) -> None:
    """Rotated about its center, as Rotate rotates an image about it."""
    plain = ff.Objects(
        ff.Arrays(np.zeros((1, *SIZE, 3), np.uint8)),
        keypoints=[[CORNERS]],
        flip_pairs=(),
    )
    want, _ = corners_of(plain, [ff.Rotate((angle, angle), center=(BOX[0], BOX[1]))])
    got, box = corners_of(rotated([*BOX[:4], angle]), [])
    np.testing.assert_allclose(got[:, :2], want[:, :2], atol=1e-3)
    np.testing.assert_allclose(box, [*got[:, :2].min(axis=0), *got[:, :2].max(axis=0)], rtol=1e-5)


def test_corners_move_with_the_pixels() -> None:
    """Each corner stays the same one of its object, in a mirrored image too."""
    points, box = corners_of(rotated(BOX), [ff.RandomFlip(1.0), ff.Resize((120, 180))])
    want = np.array([[90 - x, y] for x, y in CORNERS]) * 2
    np.testing.assert_allclose(points, np.c_[want, [2] * 4], atol=1e-4)
    assert box.tolist() == [70, 48, 130, 72]
    points, _ = corners_of(rotated(BOX, min_visible=0), [ff.CenterCrop((60, 20))])
    assert points[:, 2].tolist() == [0, 2, 2, 0] and points[0, :2].tolist() == [-10, 24]


def test_with_masks_and_images_without_boxes() -> None:
    images = ff.Arrays(np.zeros((2, *SIZE, 3), np.uint8))
    ring = [[float(v) for place in CORNERS for v in place]]
    source = ff.Objects(images, [[BOX], []], format="cxcywhr", instance_masks=[[ring], []])
    with feed(source, [], batch=2, shuffle="none") as made:
        (batch,) = made
    assert batch["box_counts"].tolist() == [1, 0]
    assert batch["instance_masks"].sum() == 30 * 12


def test_what_is_no_rotated_box_is_refused() -> None:
    image = ff.Arrays(np.zeros((1, *SIZE, 3), np.uint8))
    with pytest.raises(ConfigError, match=r"boxes of sample 0 .* numbers of shape \(k, 5\)"):
        rotated([1, 2, 3, 4])
    with pytest.raises(ConfigError, match=r"box 1 of sample 0 .* its width or height is negative"):
        rotated(BOX, [40, 30, -3, 12, 0])
    with pytest.raises(ConfigError, match=r"box 0 of sample 0 .* must be finite"):
        rotated([40, 30, 3, 12, np.nan])
    for more in ({"normalized": True}, {"keypoints": [[CORNERS]]}):
        with pytest.raises(ConfigError, match="pass boxes, and neither keypoints nor normalized"):
            rotated(BOX, **more)
    with pytest.raises(ConfigError, match="is of boxes in pixels"):
        ff.Objects(image, keypoints=[[CORNERS]], format="cxcywhr")
