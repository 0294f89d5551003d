"""Keypoints and masks after any list of ops are where the matrices of the single ops put them."""

from __future__ import annotations

from typing import Any

import numpy as np

import fastfeed as ff
from fastfeed.feed.batch.object_rows import ObjectRows
from fastfeed.ops.move_boxes import stages
from fastfeed.ops.program.compile import fuse
from fastfeed.runtime.batch import Boxes
from fastfeed.sampling.rng import uniform
from fastfeed.sources.annotations.shapes import ShapeLists, shape_of
from fastfeed.spec import PIXELS, ObjectSpec

LISTS = 300
N = 5
POINTS = 4
SPEC = ObjectSpec(POINTS, (), ((0, 1),), min_visible=0.2, min_size=2.0, min_area=30.0)
MOVES = [
    ff.Resize((50, 90)),
    ff.Resize((70, 70), fit="pad"),
    ff.CenterCrop((70, 60)),
    ff.RandomCrop((64, 60), padding=(10, 30)),
    ff.Pad((5, 0, 20, 31)),
    ff.RandomFlip(),
    ff.RandomFlip(0.5, "both"),
    ff.RandomResizedCrop((64, 78), scale=(0.3, 0.9)),
    ff.Rotate(40),
    ff.Rotate(30, expand=True),
    ff.Rotate(30, border="reflect", center=(0.3, 0.8)),
    ff.Affine(20, (0.1, 0.1), (0.6, 1.4), (-10, 10, -10, 10)),
    ff.Perspective(0.5, 1.0),
    ff.ColorJitter(0.4),
    ff.Maybe(ff.RandomFlip(1.0)),
    ff.OneOf(
        [ff.Rotate(20), ff.Sequential([ff.RandomFlip(1.0), ff.Affine(5)]), ff.Brightness(0.2)]
    ),
]


class Followed:
    """Points of one sample and its image's size, moved by one op after another.

    Keeps the matrix of each op, from output to input, and the size of its input.
    """

    def __init__(self, size: np.ndarray, points: np.ndarray) -> None:
        self.size = size
        self.points = points[:, :2].copy()
        self.seen = points[:, 2] > 0
        self.is_mirrored = False
        self.moves: list[tuple[np.ndarray, np.ndarray]] = []
        self._look()

    def take(self, op: Any, u: np.ndarray) -> None:
        if isinstance(op, ff.Maybe):
            if u[0] < op.p:
                self.take(op.op, u[1:])
        elif isinstance(op, ff.OneOf):
            at, choice = 1, int(u[0] * len(op.ops))
            for k, each in enumerate(op.ops):
                if k == choice:
                    self.take(each, u[at : at + each.draws])
                at += each.draws
        elif isinstance(op, ff.Sequential):
            at = 0
            for each in op.ops:
                self.take(each, u[at : at + each.draws])
                at += each.draws
        elif hasattr(op, "params"):
            self._move(op, op.params(u[None], self.size[None]))

    def _move(self, op: Any, values: dict[str, Any]) -> None:
        before = self.size
        if "matrix" in values:
            self.moves.append((values["matrix"][0], before))
            moved = np.c_[self.points, np.ones(POINTS)] @ np.linalg.inv(values["matrix"][0]).T
            self.points = moved[:, :2] / moved[:, 2:]
            self.size = values.get("size", self.size[None])[0]
        elif "box" in values:
            (top, left, height, width), size = values["box"][0], values["size"][0]
            scale = np.array([size[1] / width, size[0] / height])
            self.points = (self.points - [left, top]) * scale
            back = np.array([[1 / scale[0], 0, left], [0, 1 / scale[1], top], [0, 0, 1]])
            for axis, flipped in enumerate(values["flip"][0][::-1]):
                if flipped:
                    mirror = np.eye(3)
                    mirror[axis, axis] = -1
                    mirror[axis, 2] = size[1 - axis]
                    back = back @ mirror
                    self.points[:, axis] = size[1 - axis] - self.points[:, axis]
                    self.is_mirrored ^= True
            self.size = np.array(size)
            self.moves.append((back, before))
        self._look()

    def _look(self) -> None:
        self.seen = self.seen & ((self.points >= 0) & (self.points <= self.size[::-1])).all(axis=1)

    def mask(self, ring: np.ndarray, offset: tuple[float, float]) -> np.ndarray:
        """Pixels that show the inside of a polygon at `offset` from their center."""
        y, x = np.indices(self.size)
        places = np.stack([x.ravel() + 0.5 + offset[0], y.ravel() + 0.5 + offset[1]], axis=1)
        inside = np.ones(len(places), bool)
        for back, size in self.moves[::-1]:
            moved = np.c_[places, np.ones(len(places))] @ back.T
            places = moved[:, :2] / moved[:, 2:]
            inside &= ((places > 0) & (places < size[::-1])).all(axis=1)
        return (inside & even_odd(ring, places)).reshape(self.size)

    def result(self, visibility: np.ndarray) -> np.ndarray:
        found = np.c_[self.points, np.where(self.seen, visibility, 0)]
        return found[[1, 0, 2, 3]] if self.is_mirrored else found


def even_odd(ring: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Places that an odd number of edges of a polygon is to the right of."""
    inside = np.zeros(len(places), bool)
    x, y = places.T
    for (x0, y0), (x1, y1) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
        crosses = (y0 <= y) != (y1 <= y)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside ^= crosses & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return inside


def listed(rng: np.random.Generator) -> list[Any]:
    ops = [ff.Resize((90, 100))] * int(rng.integers(2))
    for k in rng.integers(len(MOVES), size=rng.integers(1, 6)):
        op = MOVES[k]
        fits = isinstance(op, (ff.RandomFlip, ff.RandomResizedCrop))
        ops += [op] if fits else [ff.Resize((90, 100)), op]
    return [*ops, ff.Resize((80, 88))]


def test_points_and_masks_are_where_single_ops_put_them() -> None:
    rng = np.random.default_rng(0)
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
        shapes = ShapeLists.of(shape_of([ring]) for ring in rings).take(ids)

        def draw(slot: int, k: int, ids: np.ndarray = ids, number: int = number) -> np.ndarray:
            return uniform(number, 0, ids, slot, k)

        path = stages(program, program.work(program.draw(draw), sizes))
        objects = ObjectRows(ids, boxes, ids, points, shapes)
        alone = objects.after(path, SPEC._replace(has_boxes=False))
        for row in range(N):
            followed = Followed(sizes[row], points[row])
            for step in program.steps:
                followed.take(step.op, draw(step.slot, step.op.draws)[row])
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
            followed = Followed(sizes[row], points[row])
            for step in program.steps:
                followed.take(step.op, draw(step.slot, step.op.draws)[row])
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
