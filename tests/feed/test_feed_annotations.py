"""What a source says of its samples besides labels: weights, boxes, columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.feeds import feed
from helpers.photos import picture

import fastfeed as ff
from fastfeed.adapters.batch_tuples import BatchTuples
from fastfeed.feed.session import FeedSession

IMAGES = np.stack([picture(i, (20, 30)) for i in range(12)])
NAN = float("nan")


class Told:
    """Images with whatever is given of weights, boxes and columns."""

    classes, fingerprint = (), "told"

    def __init__(self, weights: Any = None, boxes: Any = None, **columns: Any) -> None:
        self._arrays = ff.Arrays(IMAGES, np.arange(12))
        self.spec, self._weights, self._boxes, self._columns = (
            self._arrays.spec,
            weights,
            boxes,
            columns,
        )

    def __len__(self) -> int:
        return 12

    def uri(self, i: int) -> str:
        return f"picture {i}"

    def read(self, ids: Any) -> list[Any]:
        return self._arrays.read(ids)

    def label(self, ids: np.ndarray) -> np.ndarray:
        return self._arrays.label(ids)

    def weights(self, ids: np.ndarray) -> np.ndarray | None:
        return None if self._weights is None else np.asarray(self._weights, np.float32)[ids]

    def boxes(self, ids: np.ndarray) -> np.ndarray | None:
        return None if self._boxes is None else np.asarray(self._boxes, np.float64)[ids]

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        return {name: np.asarray(column)[ids] for name, column in self._columns.items()}


def test_columns_go_with_their_samples():
    with feed(Told(year=np.arange(12) + 1900, name=[f"n{i}" for i in range(12)]), batch=4) as made:
        for batch in made:
            assert batch.columns["year"].tolist() == (batch.ids + 1900).tolist()
            assert batch.columns["name"].tolist() == [f"n{i}" for i in batch.ids]


def test_weights_reach_the_trainer():
    weights = np.linspace(0, 2, 12)
    with feed(Told(weights), batch=5, tail="pad", shuffle="none") as made:
        assert FeedSession.of(made).weighted
        batches = list(made)
        np.testing.assert_allclose(np.concatenate([b.weights for b in batches])[:12], weights)
        assert batches[-1].weights[2:].tolist() == [0, 0, 0]
        assert [len(BatchTuples.of(FeedSession.of(made))(batch)) for batch in made.batches()] == [
            3,
            3,
            3,
        ]
    with feed(Told(), batch=5) as made:
        assert not FeedSession.of(made).weighted and [
            len(BatchTuples.of(FeedSession.of(made))(batch)) for batch in made.batches()
        ] == [2, 2]


def test_what_is_drawn_by_weight_is_not_weighed_again():
    weights = np.arange(12)
    with feed(Told(weights), batch=6, shuffle=ff.Weighted()) as made:
        assert not FeedSession.of(made).weighted
        for batch in made.batches(epochs=3):
            assert (batch.weights == 1).all() and 0 not in batch.ids
    with feed(Told(weights), batch=6, shuffle=ff.Weighted(np.ones(12))) as made:
        batch = next(iter(made))
        assert batch.weights.tolist() == batch.ids.tolist()


def close(one: np.ndarray, other: np.ndarray) -> None:
    """The same inside; at the edge the filter of the one sees a little of what lies outside of the
    box.
    """
    np.testing.assert_array_equal(one[1:-1, 1:-1], other[1:-1, 1:-1])
    np.testing.assert_allclose(one.astype(int), other, atol=20)


def test_boxes_say_which_part_counts():
    boxes = np.full((12, 4), NAN)
    boxes[3] = (4, 6, 10, 12)
    boxes[5] = (-3.5, 10.2, 9, 100)  # beyond the image: what of it lies inside
    with feed(Told(boxes=boxes), [ff.Resize((10, 12))], batch=12, shuffle="none") as made:
        images = next(iter(made)).images
    with feed(ff.Arrays(IMAGES[3:4, 4:14, 6:18].copy()), [ff.Resize((10, 12))], batch=1) as part:
        close(images[3], next(iter(part)).images[0])
    with feed(ff.Arrays(IMAGES[5:6, 0:6, 10:30].copy()), [ff.Resize((10, 12))], batch=1) as part:
        close(images[5], next(iter(part)).images[0])
    with feed(ff.Arrays(IMAGES), [ff.Resize((10, 12))], batch=12, shuffle="none") as whole:
        np.testing.assert_array_equal(images[[0, 4, 11]], next(iter(whole)).images[[0, 4, 11]])


def test_crops_stay_inside_the_box():
    marked = np.zeros((12, 40, 40, 3), np.uint8)
    marked[:, 10:30, 5:35] = 200
    source = Told(boxes=np.tile([10.0, 5.0, 20.0, 30.0], (12, 1)))
    source._arrays = ff.Arrays(marked, np.arange(12))
    source.spec = source._arrays.spec
    with feed(source, [ff.RandomResizedCrop(8), ff.RandomFlip()], batch=12) as made:
        for batch in made.batches(epochs=4):
            assert (
                batch.images > 100
            ).all()  # at its edge a filter sees what lies half a pixel beyond


def test_views_are_of_the_part_that_counts():
    ops, part = [ff.TenCrop((6, 8)), ff.Invert()], IMAGES[:, 2:14, 3:23]
    with feed(
        Told(boxes=np.tile([2.0, 3.0, 12.0, 20.0], (12, 1))), ops, batch=12, shuffle="none"
    ) as made:
        got = next(iter(made)).images
    with feed(ff.Arrays(part, np.arange(12)), ops, batch=12, shuffle="none") as made:
        np.testing.assert_array_equal(got, next(iter(made)).images)


@pytest.mark.parametrize("box", [(25, 0, 5, 5), (0, -9, 5, 5), (0, 0, 0, 5)])
def test_a_box_outside_makes_a_bad_sample(box: tuple[float, ...]):
    boxes = np.full((12, 4), NAN)
    boxes[7] = box
    with feed(
        Told(boxes=boxes), [ff.Resize((8, 8))], batch=12, on_bad="mask", shuffle="none"
    ) as made:
        batch = next(iter(made))
        assert batch.weights.tolist() == [1] * 7 + [0] + [1] * 4
        (bad,) = made.stats().bad
    assert (bad.id, bad.uri, bad.reason) == (
        7,
        "picture 7",
        "corrupt",
    ) and "is outside of 20x30" in bad.detail
