"""Points of a sample that single ops move, one after another: where they belong after a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fastfeed as ff

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

    @classmethod
    def through(
        cls,
        steps: Any,
        size: np.ndarray,
        points: np.ndarray,
        draw: Callable[[int, int], np.ndarray],
        row: int,
    ) -> Followed:
        """Points after the steps of a program; draw: numbers of all samples by slot and count."""
        followed = cls(size, points)
        for step in steps:
            followed.take(step.op, draw(step.slot, step.op.draws)[row])
        return followed

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
            ones = np.ones(len(self.points))
            moved = np.c_[self.points, ones] @ np.linalg.inv(values["matrix"][0]).T
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
        return self.shows(ring, places).reshape(self.size)

    def shows(self, ring: np.ndarray, places: np.ndarray) -> np.ndarray:
        """True for places of the result that show the inside of a polygon."""
        inside = np.ones(len(places), bool)
        for back, size in self.moves[::-1]:
            moved = np.c_[places, np.ones(len(places))] @ back.T
            places = moved[:, :2] / moved[:, 2:]
            inside &= ((places > 0) & (places < size[::-1])).all(axis=1)
        return inside & even_odd(ring, places)

    def edges(self) -> np.ndarray | None:
        """Lines that what is visible may end at: float64 (e, 2, 2); None beyond a horizon."""
        path = np.eye(3)
        corners = np.array([[0, 0], [0, 1], [1, 1], [1, 0]])
        found = [self.points, corners * self.size[::-1]]
        for back, size in self.moves[::-1]:
            path = back @ path
            moved = np.c_[corners * size[::-1], np.ones(4)] @ np.linalg.inv(path).T
            if np.ptp(np.sign(moved[:, 2])):
                return None
            found.append(moved[:, :2] / moved[:, 2:])
        return np.concatenate([edges_of(ring) for ring in found])

    def result(self, visibility: np.ndarray) -> np.ndarray:
        found = np.c_[self.points, np.where(self.seen, visibility, 0)]
        return found[[1, 0, 2, 3]] if self.is_mirrored else found


def edges_of(ring: np.ndarray) -> np.ndarray:
    """Lines between the points of a closed ring: (k, 2, 2)."""
    return np.stack([ring, np.roll(ring, -1, axis=0)], axis=1)


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
