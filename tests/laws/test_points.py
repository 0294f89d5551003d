"""Keypoints and masks after any list of ops are where the matrices of the single ops put them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.followed import Followed, listed

from fastfeed.feed.batch.object_rows import ObjectRows
from fastfeed.ops.move_boxes import stages
from fastfeed.ops.program.compile import fuse
from fastfeed.runtime.batch import Boxes
from fastfeed.sampling.rng import uniform
from fastfeed.sources.annotations.shapes import ShapeLists, parse_shape
from fastfeed.spec import PIXELS, ObjectSpec

LISTS = 75
N = 5
POINTS = 4
SPEC = ObjectSpec(POINTS, (), ((0, 1),), min_visible=0.2, min_size=2.0, min_area=30.0)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(k, marks=pytest.mark.nightly) for k in (1, 2, 3))]
)
def test_points_and_masks_are_where_single_ops_put_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    visible = moved = dropped = drawn = 0
    for number in range(LISTS):
        ops = listed(rng)
        program = fuse(ops, PIXELS)
        sizes, ids = rng.integers(81, 131, (N, 2)), np.arange(N)
        points = rng.uniform(-5, 1.05 * sizes[:, None, ::-1], (N, POINTS, 2))
        points = np.concatenate([points, rng.integers(0, 3, (N, POINTS, 1))], axis=2)
        low = rng.uniform(0, 0.8, (N, 2)) * sizes[:, ::-1]
        boxes = np.concatenate([low, low + 0.3 * sizes[:, ::-1]], axis=1)
        rings = [(low[i] + rng.random((5, 2)) * 0.3 * sizes[i, ::-1]) for i in range(N)]
        rings = [ring.astype(np.float32) for ring in rings]
        shapes = ShapeLists.of(parse_shape([ring]) for ring in rings).take(ids)

        def draw(slot: int, k: int, ids: np.ndarray = ids, number: int = number) -> np.ndarray:
            return uniform(number, 0, ids, slot, k)

        path = stages(program, program.work(program.draw(draw), sizes))
        objects = ObjectRows(ids, boxes, ids, points, shapes)
        alone = objects.after(path, SPEC._replace(has_boxes=False))
        for row in range(N):
            followed = Followed.through(program.steps, sizes[row], points[row], draw, row)
            want = followed.result(points[row, :, 2])
            assert alone.keypoints is not None
            np.testing.assert_allclose(alone.keypoints[row], want, atol=1e-6, err_msg=str(ops))
            visible += int((want[:, 2] > 0).sum())
        kept = objects.after(path, SPEC)
        np.testing.assert_array_equal(kept.labels, kept.rows)  # what drops a box drops its points
        np.testing.assert_array_equal(kept.keypoints, alone.keypoints[kept.rows])
        out = Boxes.none(N, 2, POINTS, (80, 88))
        kept.write(out, path)
        assert out.instance_masks is not None
        np.testing.assert_array_equal(out.counts, np.bincount(kept.rows, minlength=N))
        assert not out.instance_masks[:, 1].any()
        for row in kept.rows[:1]:
            followed = Followed.through(program.steps, sizes[row], points[row], draw, row)
            near = [followed.mask(rings[row], (dx, dy)) for dx in (-0.5, 0.5) for dy in (-0.5, 0.5)]
            got, center = out.instance_masks[row, 0], followed.mask(rings[row], (0, 0))
            sure = np.logical_or(np.all([*near, center], axis=0), ~np.any([*near, center], axis=0))
            np.testing.assert_array_equal(got[sure], center[sure], err_msg=str(ops))
            drawn += int(center[sure].sum())
            left, top, right, bottom = kept.boxes[kept.rows == row][0] + [-1, -1, 1, 1]
            y, x = np.nonzero(got)
            assert ((x >= left) & (x < right) & (y >= top) & (y < bottom)).all()
        sides = kept.boxes[:, 2:] - kept.boxes[:, :2]
        assert (sides >= 2).all() and (sides.prod(axis=1) >= 30).all()
        dropped += N - len(kept.rows)
        moved += N
    assert drawn > 30 * LISTS
    assert 0.2 < visible / (moved * POINTS) < 0.7 and 0.1 < dropped / moved < 0.9
