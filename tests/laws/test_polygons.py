"""Polygons after any list of ops cover what single ops leave of them, to a hundredth of a pixel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from helpers.followed import Followed, edges_of, even_odd, listed

from fastfeed.feed.batch.object_rows import ObjectRows
from fastfeed.ops.move_boxes import stages
from fastfeed.ops.program.compile import fuse
from fastfeed.runtime.batch import Boxes
from fastfeed.sampling.rng import uniform
from fastfeed.sources.annotations.shapes import Rings, ShapeLists, parse_shape
from fastfeed.spec import PIXELS, ObjectSpec

LISTS = 200
N = 3
SPEC = ObjectSpec(min_visible=0.1, instance_masks=True, polygons=(2, 200))
SIZE = (80, 88)  # that all lists of ops end with


def crossings(edges: np.ndarray) -> np.ndarray:
    """y of the places where two of the lines (e, 2, 2) cross."""
    begin, along = edges[:, 0], edges[:, 1] - edges[:, 0]
    between = begin[None] - begin[:, None]

    def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]

    with np.errstate(divide="ignore", invalid="ignore"):
        share = cross(between, along[None]) / cross(along[:, None], along[None])
        y = begin[:, None, 1] + share * along[:, None, 1]
    return y[np.isfinite(y) & (share > 0) & (share < 1)]


def area_between(
    edges: np.ndarray,
    first: Callable[[np.ndarray], np.ndarray],
    second: Callable[[np.ndarray], np.ndarray],
) -> float:
    """The area that is inside of one of two shapes alone.

    Both shapes end at the lines `edges` (e, 2, 2) only: between two heights at which lines begin,
    end or cross, they are trapezoids.
    """
    heights = np.unique(np.concatenate([edges[..., 1].ravel(), crossings(edges)]))
    heights = heights[(heights > -1) & (heights < SIZE[0] + 1)]
    y = (heights[1:] + heights[:-1]) / 2
    (x0, y0), (x1, y1) = np.moveaxis(edges, 0, -1)
    spanned = (np.minimum(y0, y1) <= y[:, None]) & (np.maximum(y0, y1) > y[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.where(spanned, x0 + (y[:, None] - y0) * (x1 - x0) / (y1 - y0), np.inf)
    x.sort(axis=1)
    row, at = np.nonzero(np.isfinite(x[:, 1:]))
    left, right = x[row, at], x[row, at + 1]
    places = np.stack([(left + right) / 2, y[row]], axis=1)
    areas = (right - left) * np.diff(heights)[row]
    return float(areas[first(places) ^ second(places)].sum())


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(k, marks=pytest.mark.nightly) for k in (2, 3, 4, 5))]
)
def test_polygons_cover_what_single_ops_leave_of_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    compared = whole = cut = gone = 0
    for number in range(LISTS):
        ops = listed(rng)
        program = fuse(ops, PIXELS)
        sizes, ids = rng.integers(81, 131, (N, 2)), np.arange(N)
        low = rng.uniform(0, 0.8, (N, 2)) * sizes[:, ::-1]
        boxes = np.concatenate([low, low + 0.4 * sizes[:, ::-1]], axis=1)
        rings = [
            (low[i] + rng.random((rng.integers(3, 9), 2)) * 0.4 * sizes[i, ::-1]).astype(np.float32)
            for i in range(N)
        ]
        shapes = ShapeLists.of(parse_shape([ring]) for ring in rings).take(ids)

        def draw(slot: int, k: int, ids: np.ndarray = ids, number: int = number) -> np.ndarray:
            return uniform(number, 0, ids, slot, k)

        path = stages(program, program.work(program.draw(draw), sizes))
        kept = ObjectRows(ids, boxes, ids, None, shapes).after(path, SPEC)
        out = Boxes.none(N, 2, 0, SIZE, SPEC.polygons)
        kept.write(out, path)
        assert out.polygons is not None and out.polygon_rings is not None
        assert not out.polygon_rings[out.counts == 0, :, 0].max(initial=-1) + 1
        for row in kept.rows[:1]:
            place, first, last = out.polygon_rings[row, 0]
            got = out.polygons[row, first:last].astype(np.float64)
            assert (place, first) in ((0, 0), (-1, 0)) and len(got) != 1 and len(got) != 2
            assert (got >= 0).all() and (got <= SIZE[::-1]).all()
            assert not out.polygons[row, last:].any()
            points = np.c_[rings[row], np.full(len(rings[row]), 2)].astype(np.float64)
            followed = Followed.through(program.steps, sizes[row], points, draw, row)
            if followed.seen.all():
                np.testing.assert_allclose(got, followed.points, atol=1e-4, err_msg=str(ops))
                whole += 1
            lines = followed.edges()
            if lines is None:
                continue
            error = area_between(
                np.concatenate([lines, edges_of(got)]),
                lambda places, f=followed, ring=rings[row]: f.shows(ring, places),
                lambda places, got=got: even_odd(got, places),
            )
            assert error < 0.01, (ops, number)
            compared += 1
            cut += not followed.seen.all() and len(got) > 0
            gone += not len(got)
            assert out.instance_masks is not None
            drawn = Rings(got.astype(np.float32), np.array([len(got)])).pixels(SIZE)
            assert (drawn != out.instance_masks[row, 0]).sum() <= 2  # centers on an edge
    assert compared > 0.7 * LISTS and whole > 0.15 * LISTS and cut > 0.15 * LISTS and gone
