"""Keypoints after any list of ops are where the matrices of the single ops put them."""

from __future__ import annotations

from typing import Any

import numpy as np

import fastfeed as ff
from fastfeed.feed.batch.object_rows import ObjectRows
from fastfeed.ops.move_boxes import stages
from fastfeed.ops.program.compile import fuse
from fastfeed.sampling.rng import uniform
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
    """Points of one sample and its image's size, moved by one op after another."""

    def __init__(self, size: np.ndarray, points: np.ndarray) -> None:
        self.size = size
        self.points = points[:, :2].copy()
        self.seen = points[:, 2] > 0
        self.is_mirrored = False
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
        if "matrix" in values:
            moved = np.c_[self.points, np.ones(POINTS)] @ np.linalg.inv(values["matrix"][0]).T
            self.points = moved[:, :2] / moved[:, 2:]
            self.size = values.get("size", self.size[None])[0]
        elif "box" in values:
            (top, left, height, width), size = values["box"][0], values["size"][0]
            scale = np.array([size[1] / width, size[0] / height])
            self.points = (self.points - [left, top]) * scale
            for axis, flipped in enumerate(values["flip"][0][::-1]):
                if flipped:
                    self.points[:, axis] = size[1 - axis] - self.points[:, axis]
                    self.is_mirrored ^= True
            self.size = np.array(size)
        self._look()

    def _look(self) -> None:
        self.seen = self.seen & ((self.points >= 0) & (self.points <= self.size[::-1])).all(axis=1)

    def result(self, visibility: np.ndarray) -> np.ndarray:
        found = np.c_[self.points, np.where(self.seen, visibility, 0)]
        return found[[1, 0, 2, 3]] if self.is_mirrored else found


def listed(rng: np.random.Generator) -> list[Any]:
    ops = [ff.Resize((90, 100))] * int(rng.integers(2))
    for k in rng.integers(len(MOVES), size=rng.integers(1, 6)):
        op = MOVES[k]
        fits = isinstance(op, (ff.RandomFlip, ff.RandomResizedCrop))
        ops += [op] if fits else [ff.Resize((90, 100)), op]
    return [*ops, ff.Resize((80, 88))]


def test_points_are_where_single_ops_put_them() -> None:
    rng = np.random.default_rng(0)
    visible = moved = dropped = 0
    for number in range(LISTS):
        ops = listed(rng)
        program = fuse(ops, PIXELS)
        sizes, ids = rng.integers(81, 131, (N, 2)), np.arange(N)
        points = rng.uniform(-5, 1.05 * sizes[:, None, ::-1], (N, POINTS, 2))
        points = np.concatenate([points, rng.integers(0, 3, (N, POINTS, 1))], axis=2)
        low = rng.uniform(0, 0.8, (N, 2)) * sizes[:, ::-1]
        boxes = np.concatenate([low, low + 0.3 * sizes[:, ::-1]], axis=1)

        def draw(slot: int, k: int, ids: np.ndarray = ids, number: int = number) -> np.ndarray:
            return uniform(number, 0, ids, slot, k)

        path = stages(program, program.work(program.draw(draw), sizes))
        objects = ObjectRows(ids, boxes, ids, points)
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
        sides = kept.boxes[:, 2:] - kept.boxes[:, :2]
        assert (sides >= 2).all() and (sides.prod(axis=1) >= 30).all()
        dropped += N - len(kept.rows)
        moved += N
    assert 0.2 < visible / (moved * POINTS) < 0.7 and 0.1 < dropped / moved < 0.9
