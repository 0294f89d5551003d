"""Outlines of objects: what is read, what is refused, and the pixels that they become."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from helpers.feeds import feed

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.sources.annotations.shapes import Rings, Runs, parse_shape

# (height, width), polygons, and the runs that pycocotools 2.0.11 makes of them
COCO: list[tuple[list[int], list[list[float]], str]] = [
    ([49, 23], [[11.23, 6.62, 16.48, 19.69, 10.31, 17.06]], "j?1W193N1N3N1NV:"),
    (
        [96, 45],
        [[5.6, 27.68, 39.97, 21.68, 36.44, 53.81, 26.38, 53.19, 12.98, 39.64]],
        "kb02n22N1O2N1O2M3N1O1O1O1O1N2O1O1O1O1N2O1O1O1O000O10001O00000O10O1G9G9Gc>",
    ),
    (
        [40, 41],
        [
            [15.99, 32.33, 3.88, 16.9, 26.12, 8.09, 15.83, 2.91, 8.29, 22.13, 13.92, 16.44],
            [1.31, 24.69, 20.56, 4.06, 14.36, 4.19],
        ],
        "]41S10oN0Q1310O3L1ROIl06UOLh03ZOOd00]O3?NA4=MB5;MH17N2LK5e0N10001N2O0O2O00ic0",
    ),
    (  # a star that crosses itself: its middle is outside
        [40, 40],
        [[20, 2, 31, 36, 2, 15, 38, 15, 9, 36]],
        r"W41W11O001O1O1O0[OM54GN:3BO?2]O0d0O[O3e0J_O4b0IB5=LD3:0GO64KJ2:>04L\OJ93FO<NC3?L@5?N]O4b0O"
        r"ZO3e0N\O0d0O@O?0EN:1JM53`0O1O1O100OZ3".replace("\\\\", "\\"),
    ),
]


def near_edges(rings: list[list[float]], size: tuple[int, int], distance: float) -> np.ndarray:
    """Pixels whose center is near an edge of a polygon."""
    y, x = np.indices(size)
    centers = np.stack([x, y], axis=-1) + 0.5
    near = np.zeros(size, bool)
    for ring in rings:
        points = np.array(ring).reshape(-1, 2)
        for from_, to in zip(points, np.roll(points, -1, axis=0), strict=True):
            along = to - from_
            share = np.clip((centers - from_) @ along / max(along @ along, 1e-9), 0, 1)
            away = np.linalg.norm(centers - from_ - share[..., None] * along, axis=-1)
            near |= away < distance
    return near


@pytest.mark.parametrize(("size", "rings", "text"), COCO)
def test_polygons_are_those_of_pycocotools_but_at_their_edges(
    size: list[int], rings: list[list[float]], text: str
) -> None:
    runs = parse_shape({"size": size, "counts": text})
    assert isinstance(runs, Runs) and runs.size == tuple(size)
    want = runs.pixels(runs.size)
    got = parse_shape(rings).pixels(runs.size)
    assert got.dtype == np.uint8 and want.sum() > 20
    far = ~near_edges(rings, runs.size, 0.5)
    np.testing.assert_array_equal(got[far], want[far])
    assert (got != want).sum() < 0.1 * want.sum()
    again = parse_shape({"size": size, "counts": runs.counts.tolist()})
    np.testing.assert_array_equal(again.pixels(runs.size), want)
    np.testing.assert_array_equal(parse_shape(want).pixels(runs.size), want)


def test_a_pixel_belongs_to_a_polygon_that_its_center_is_in() -> None:
    square = parse_shape([[1.5, 0.5, 4.5, 0.5, 4.5, 3.5, 1.5, 3.5]])
    assert isinstance(square, Rings)
    want = np.zeros((5, 6), np.uint8)
    want[0:3, 1:4] = 1  # a center on the left or upper edge is inside
    np.testing.assert_array_equal(square.pixels((5, 6)), want)
    np.testing.assert_array_equal(square.bounds, [1.5, 0.5, 4.5, 3.5])
    beyond = parse_shape([np.array([[-9.0, -9], [99, -9], [99, 99], [-9, 99]])])
    assert beyond.pixels((5, 6)).all()
    twice = parse_shape([[0, 0, 4, 0, 4, 5, 0, 5], [2, 0, 6, 0, 6, 5, 2, 5]])
    assert twice.pixels((5, 6)).all(), "rings are joined"
    nothing = parse_shape(None)
    assert not nothing.pixels((5, 6)).any() and nothing.bounds.tolist() == [0] * 4


def test_runs_go_down_the_columns() -> None:
    pixels = np.zeros((4, 5), bool)
    pixels[1:3, 2] = pixels[3, 3] = True
    runs = parse_shape(pixels)
    assert isinstance(runs, Runs) and runs.counts.tolist() == [9, 2, 4, 1, 4]
    np.testing.assert_array_equal(runs.bounds, [2, 1, 4, 4])
    across = parse_shape({"size": [4, 5], "counts": [2, 7, 11]})
    np.testing.assert_array_equal(across.bounds, [0, 0, 3, 4])
    assert parse_shape(np.ones((2, 3), np.uint8)).bounds.tolist() == [0, 0, 3, 2]
    assert parse_shape(np.zeros((2, 3), np.uint8)).bounds.tolist() == [0] * 4


@pytest.mark.parametrize("turn", range(1, 9))
def test_outlines_of_stored_images_turn_with_them(turn: int) -> None:
    rings = parse_shape([[1, 2, 8, 3, 6, 10, 2, 9]])
    pixels = rings.pixels((12, 10))
    runs = parse_shape(pixels)
    size = (12, 10) if turn < 5 else (10, 12)
    got = rings.displayed(turn, np.array(size)).pixels(size)
    want = runs.displayed(turn, np.array(size)).pixels(size)
    assert (got != want).sum() <= 4 and want.sum() == pixels.sum() > 20


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("polygon", "must be a list of rings, .* got str"),
        (np.zeros((3, 2)), "must be a list of rings, .* got ndarray"),
        ([["a", 1, 2, 3, 4, 5]], "got a ring that is not of numbers"),
        ([[1, 2, 3, 4]], r"three points or more, got one of shape \(4,\)"),
        ([[1, 2, 3, 4, 5, 6, 7]], r"three points or more, got one of shape \(7,\)"),
        ([1, 2, 3, 4, 5, 6], r"three points or more, got one of shape \(\)"),
        ([[[1, 2, 3], [4, 5, 6]]], r"got one of shape \(2, 3\)"),
        ([[1, 2, 3, 4, np.nan, 6]], "must have finite x and y"),
        ([[1, 2, 3, 4, 1e300, 6]], "must have finite x and y"),
        ({"size": [2, 3], "counts": [1, 2]}, r"of 2x3 = 6 pixels, got runs of 3"),
        ({"size": [2, 3], "counts": [9, -3]}, "must have runs >= 0"),
        ({"size": [64, 64], "counts": [1 << 59] * 32 + [4096]}, "must have runs >= 0"),
        ({"size": [2, 3], "counts": np.array([1 << 63, 1 << 63, 6], np.uint64)}, "must have runs"),
        ({"size": [2, 3.0], "counts": [6]}, "must have runs"),
        ({"size": [0, 3], "counts": []}, "must have integers"),
        ({"size": [2, 3], "counts": [[6]]}, "must have integers"),
        ({"size": [2, 3], "counts": "j?1W193N1N3N1NV:"}, "got runs of 1127"),
        ({"size": [2, 3], "counts": "j?1W193N1N3N1NV"}, "not one of compressed runs"),
        ({"size": [2, 3], "counts": ""}, "not one of compressed runs"),
        ({"size": [2, 3], "counts": "\u00e9"}, "UnicodeEncodeError"),
        ({"size": [2, 3], "counts": "o" * 20 + "0"}, "not one of compressed runs"),
        ({"size": 5, "counts": [1]}, "TypeError"),
        ({"counts": [1]}, "KeyError 'size'"),
        (np.zeros((0, 4), bool), "must have pixels"),
    ],
)
def test_what_is_no_outline_is_refused_by_sample_and_object(value: Any, message: str) -> None:
    images = ff.Arrays(np.zeros((2, 4, 4, 3), np.uint8))
    whole = np.ones((4, 4), bool)
    with pytest.raises(ConfigError, match=f"instance mask 1 of sample 1 .* {message}"):
        ff.Objects(images, instance_masks=[[whole], [whole, value]])


def test_objects_refuse_outlines_that_do_not_fit() -> None:
    images = ff.Arrays(np.zeros((2, 4, 4, 3), np.uint8))
    whole = np.ones((4, 4), bool)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"instance_masks": [[whole]]}, "instance_masks must be one per sample, got 1 for 2"),
        ({"instance_masks": "masks"}, "instance_masks must be a list, one per sample"),
        ({"instance_masks": [None, []]}, "instance_masks of sample 0 .* must be a list, one entry"),
        ({"boxes": [[], []], "instance_masks": [[whole], []]}, "has 0 boxes and 1 instance masks"),
        ({"instance_masks": [[whole[:3]], []]}, "a mask of another size than its image"),
        ({"instance_masks": [[whole], []], "draw": "all"}, 'draw must be "instances", "classes"'),
        ({"masks": [None] * 2, "draw": "classes"}, "draw='classes' makes masks of instance_masks"),
        (
            {"instance_masks": [[whole], []], "labels": [[254], []], "draw": "classes"},
            'labels must be below 254 with draw="classes", got 254',
        ),
    ]
    for arguments, message in wrong:
        with pytest.raises(ConfigError, match=message):
            ff.Objects(images, **arguments)


def test_sources_keep_outlines() -> None:
    """Pickled, in a subset, in a mixture; the fingerprint has their content."""
    images = ff.Arrays(np.zeros((3, 8, 8, 3), np.uint8))
    masks = [np.eye(8, dtype=bool) if k % 2 else np.tri(8, dtype=bool) for k in range(4)]
    outlines = [[masks[0]], [], [masks[1], [[1, 1, 6, 1, 6, 6]]]]
    source = ff.Objects(images, instance_masks=outlines)
    again = pickle.loads(pickle.dumps(source))
    assert again.fingerprint == source.fingerprint
    other = ff.Objects(images, instance_masks=[[masks[0]], [], [masks[2], outlines[2][1]]])
    assert other.fingerprint != source.fingerprint
    assert "3 boxes and instance masks" in repr(source)
    found = ff.take(again, [2, 0]).objects(np.array([1, 0]))
    assert found is not None and found.shapes is not None and found.counts.tolist() == [1, 2]
    pixels = [shape.pixels((8, 8)) for shape in found.shapes]
    np.testing.assert_array_equal(pixels[:2], [masks[0], masks[1]])
    mixture = ff.Mixture([source, other])
    with feed(mixture, [], batch=6, shuffle="none") as made:
        (batch,) = made
    order = np.argsort(batch.ids)
    got = batch["instance_masks"][order]
    assert batch["box_counts"][order].tolist() == [1, 0, 2] * 2
    np.testing.assert_array_equal(got[[0, 2, 3, 5], 0], [masks[0], masks[1], masks[0], masks[2]])
    with pytest.raises(ConfigError, match=r"must have the same keypoints, .* instance_masks"):
        ff.Mixture([source, ff.Objects(images, [[[0, 0, 4, 4]]] * 3)])
