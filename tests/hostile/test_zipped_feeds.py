"""Feeds that are iterated in turn, such as images and their targets: pairs stay pairs, or the
iteration says no.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import broken, folder

import fastfeed as ff
from fastfeed.errors import SampleError
from fastfeed.feed.session import FeedSession


def side(root: Path, name: str, bad: tuple[str, ...] = ()) -> ff.ImageFolder:
    where = folder(root / name, {"a": 6, "b": 6})
    for file in bad:
        (where / file).write_bytes(broken("truncated"))
    return ff.ImageFolder(where, labeled=False)


def feed(source: Any, **options: Any) -> ff.Feed:
    how: dict[str, Any] = {"batch": 4, "threads": 1, "seed": 3} | options
    return ff.Feed(source, [ff.RandomResizedCrop(16)], **how)


@pytest.mark.parametrize("left", [(), ("a/0002.jpg",)])
@pytest.mark.parametrize("right", [(), ("b/0004.jpg",)])
@pytest.mark.parametrize("side_process", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_pairs_are_never_of_two_samples(
    tmp_path: Path, left: tuple[str, ...], right: tuple[str, ...], side_process
):
    more = {"side_process": side_process}
    with (
        feed(side(tmp_path, "x", left), **more) as one,
        feed(side(tmp_path, "y", right), **more) as other,
    ):

        def walk() -> None:
            for a, b in zip(one, other, strict=True):
                assert a.ids.tolist() == b.ids.tolist()

        if left or right:
            with pytest.raises(
                SampleError,
                match=r'row \d is sample \d+ here and \d+ there.* pass on_bad="mask" to both',
            ):
                walk()
        else:
            walk()


def test_the_same_bad_file_on_both_sides_is_replaced_alike(tmp_path: Path):
    bad = ("a/0002.jpg", "b/0000.jpg")
    with feed(side(tmp_path, "x", bad)) as one, feed(side(tmp_path, "y", bad)) as other:
        for a, b in zip(one, other, strict=True):
            assert a.ids.tolist() == b.ids.tolist()


def test_masks_keep_pairs(tmp_path: Path):
    with feed(side(tmp_path, "x", ("a/0002.jpg",)), on_bad="mask") as one:
        with feed(side(tmp_path, "y", ("b/0004.jpg",)), on_bad="mask") as other:
            weights = [
                a.weights * b.weights
                for a, b in zip(one, other, strict=True)
                if (a.ids == b.ids).all()
            ]
    assert np.concatenate(weights).sum() == 10


def test_placed_batches_are_compared_too(tmp_path: Path):
    """As adapters take them: results that say no ids."""
    with feed(side(tmp_path, "x", ("a/0002.jpg",))) as one, feed(side(tmp_path, "y")) as other:
        first, second = (
            FeedSession.of(each).placed(lambda batch: batch.images) for each in (one, other)
        )
        with pytest.raises(SampleError, match="feeds of one order"):
            for _ in zip(first, second, strict=True):
                pass


def test_feeds_that_are_no_pairs_go_their_way(tmp_path: Path):
    """One after the other, at other steps, of another order."""
    good, bad = side(tmp_path, "x"), side(tmp_path, "y", ("a/0002.jpg", "b/0003.jpg"))
    with feed(good) as one, feed(bad) as other:
        assert len(list(one)) == len(list(other)) == 3
        iterator = one.batches(epoch=0, epochs=None)
        next(iterator)
        assert len(list(zip(other, iterator, strict=False))) == 3
    with feed(good) as one, feed(bad, seed=4) as other:
        assert len(list(zip(one, other, strict=True))) == 3
    labels = [np.arange(12) % 2, np.arange(12) // 6]
    arrays = [ff.Arrays(np.zeros((12, 16, 16, 3), np.uint8), each) for each in labels]
    with (
        feed(arrays[0], shuffle=ff.Balanced()) as one,
        feed(arrays[1], shuffle=ff.Balanced()) as other,
    ):
        assert len(list(zip(one, other, strict=True))) == 3
