"""Boxes and masks of mixed samples, of bad ones, in a helper process; what is refused."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.feeds import feed
from helpers.photos import folder
from helpers.rectangles import BEHIND, KINDS, located, rectangles, samples
from PIL import Image

import fastfeed as ff
from fastfeed.adapters.batch_tuples import BatchTuples
from fastfeed.errors import ConfigError, SpecError
from fastfeed.feed.session import FeedSession
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.placement import flatten

N = 24


def inside(batch: Batch, row: int) -> np.ndarray:
    """bool (height, width): in one of the sample's boxes, whose edges are whole pixels here."""
    assert batch.objects is not None
    found = np.zeros(batch.images.shape[1:3], bool)
    for left, top, right, bottom in batch.objects.boxes[row, : batch.objects.counts[row]].astype(
        int
    ):
        found[top:bottom, left:right] = True
    return found


def test_a_mosaic_has_the_boxes_of_all_four():
    with feed(located(N), [ff.Mosaic()], batch=6) as made:
        batches = list(made)
    for batch in batches:
        assert batch.objects is not None and batch.masks is not None
        assert batch.objects.boxes.shape == (6, 4, 4) and batch.objects.counts.max() > 1
        for row, image in enumerate(batch.images):
            bright, boxed = image[..., 0] > 127, inside(batch, row)
            assert bright[boxed].all()
            # a dropped box was seen by a tenth at most: of 12 x 12 to 60 x 90 pixels
            assert (bright & ~boxed).sum() <= 0.1 * bright.size
            np.testing.assert_array_equal(bright, batch.masks[row] != BEHIND)
            for box, label in zip(
                batch.objects.boxes[row].astype(int), batch.objects.labels[row], strict=True
            ):
                assert (
                    label < 0 or (batch.masks[row, box[1] : box[3], box[0] : box[2]] == label).all()
                )
        assert (
            batch.labels.dtype == np.int64
        )  # of images there are none, so that there is nothing to share
    everything = np.concatenate([batch.objects.labels.ravel() for batch in batches])  # type: ignore[union-attr]
    assert set(everything) == {-1, *range(KINDS)}


def test_a_mosaic_drops_what_is_hardly_seen():
    images = np.zeros((4, 40, 40, 3), np.uint8)
    boxes = [[[0, 0, 40, 40], [18, 18, 19, 19], [0, 0, 10, 23], [0, 0, 10, 21]]] * 4
    with feed(
        ff.Objects(ff.Arrays(images), boxes), [ff.Mosaic(center=(0.5, 0.5))], batch=4
    ) as made:
        (batch,) = made
    assert batch.objects is not None and batch.objects.boxes.shape == (4, 16, 4)
    for row in range(4):
        # top left shows [20, 40) of both axes, and so on: of the third box 3 of 23 rows, of the
        # fourth 1 of 21
        assert batch.objects.boxes[row, : batch.objects.counts[row]].tolist() == [
            *([0, 0, 20, 20],),
            *([20, 0, 40, 20], [20, 0, 30, 3]),
            *([0, 20, 20, 40],),
            *([20, 20, 40, 40], [38, 38, 39, 39], [20, 20, 30, 40], [20, 20, 30, 40]),
        ]


def test_mixup_has_the_boxes_of_both():
    with feed(located(N, masks=False), [ff.MixUp(1.0, p=0.5)], batch=8, shuffle="none") as made:
        batches = list(made)
    pure = located(N, masks=False).objects(np.arange(N))
    assert pure is not None
    for batch in batches:
        assert batch.objects is not None and batch.objects.boxes.shape == (8, 2, 4)
        for row, id in enumerate(batch.ids):
            both = [int(id), int(batch.ids[row ^ 1])][: int(batch.objects.counts[row])]
            np.testing.assert_array_equal(
                batch.objects.boxes[row, : len(both)], pure.boxes[both].astype(np.float32)
            )
            assert batch.objects.labels[row].tolist() == [
                *pure.labels[both],
                *[-1] * (2 - len(both)),
            ]
    counts = np.concatenate([batch.objects.counts for batch in batches])  # type: ignore[union-attr]
    assert set(counts) == {1, 2}


def test_cutmix_pastes_masks_as_images():
    images, _ = rectangles(N)
    masks = (images[..., 0] // 255).astype(np.uint8)
    with feed(ff.Objects(ff.Arrays(images), masks=masks), [ff.CutMix()], batch=8) as made:
        for batch in made:
            assert batch.objects is None and batch.masks is not None
            np.testing.assert_array_equal(batch.images[..., 0] > 0, batch.masks == 1)


def test_image_labels_are_shared_as_ever():
    images, boxes = rectangles(N)
    source = ff.Objects(
        ff.Arrays(images, np.arange(N) % 3, classes=["a", "b", "c"]), boxes[:, None]
    )
    with feed(source, [ff.Mosaic()], batch=8) as made:
        for batch in made:
            assert batch.labels.shape == (8, 3)
            np.testing.assert_allclose(batch.labels.sum(axis=1), 1, atol=1e-6)


def png(mask: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(mask).save(file, "PNG")
    return file.getvalue()


def flawed(root: Path) -> tuple[ff.Objects, dict[int, str]]:
    """Photographs of 40 x 56; masks are all 3.

    Id -> reason of bad ones, the last is a broken photograph.
    """
    source = ff.ImageFolder(folder(root / "photos", {"a": 6, "b": 6}))
    good = png(np.full((40, 56), 3, np.uint8))
    masks: list[Any] = [root / "3.png" for _ in range(12)]
    (root / "3.png").write_bytes(good)
    (root / "wide.png").write_bytes(png(np.zeros((56, 40), np.uint8)))
    (root / "half.png").write_bytes(good[: len(good) - 20])
    masks[1], masks[4], masks[7], masks[8] = (
        root / "none.png",
        root / "wide.png",
        root / "half.png",
        None,
    )
    source.path(10).write_bytes(b"no photograph")
    boxes = [[[i, i, i + 20, i + 10]] for i in range(12)]
    return ff.Objects(source, boxes, masks=masks), {
        1: "not_found",
        4: "corrupt",
        7: "truncated",
        10: "not_image",
    }


def test_bad_masks_make_bad_samples(tmp_path: Path):
    source, bad = flawed(tmp_path)
    with feed(source, [ff.Resize((40, 56))], batch=12, shuffle="none", on_bad="mask") as made:
        (batch,) = made
        found = {failure.id: failure for failure in made.stats().bad}
    assert batch.objects is not None and batch.masks is not None
    assert {id: failure.reason for id, failure in found.items()} == bad
    assert found[4].detail == "its mask has 56x40 pixels (height x width), the image 40x56"
    assert found[1].uri == source.uri(1) and found[1].detail.startswith("its mask")
    for row in range(12):
        gone = row in bad
        assert batch.weights[row] == (not gone) and batch.images[row].any() != gone
        assert batch.objects.counts[row] == (not gone) and batch.objects.labels[row, 0] == (
            -1 if gone else 0
        )
        assert batch.objects.boxes[row, 0].tolist() == (
            [0] * 4 if gone else [row, row, row + 20, row + 10]
        )
        assert (batch.masks[row] == (255 if gone or row == 8 else 3)).all()


def test_a_substitute_has_its_own_boxes(tmp_path: Path):
    source, bad = flawed(tmp_path)
    with feed(source, [ff.Resize((40, 56))], batch=12, shuffle="none") as made:
        (batch,) = made
    assert batch.objects is not None and batch.masks is not None and not set(batch.ids) & set(bad)
    for row, id in enumerate(batch.ids.tolist()):
        assert batch.objects.boxes[row, 0].tolist() == [id, id, id + 20, id + 10]
        assert (batch.masks[row] == (255 if id == 8 else 3)).all()


def test_a_masked_sample_is_in_no_mosaic(tmp_path: Path):
    source, bad = flawed(tmp_path)
    with feed(
        source, [ff.Resize((40, 56)), ff.Mosaic()], batch=12, shuffle="none", on_bad="mask"
    ) as made:
        (batch,) = made
    assert batch.objects is not None and batch.masks is not None
    for row, id in enumerate(batch.ids.tolist()):
        group = set(batch.ids[row - row % 4 : row - row % 4 + 4].tolist())
        if id in bad:
            assert batch.objects.counts[row] == 0 and (batch.masks[row] == 255).all()
        elif group & set(bad):
            assert batch.objects.counts[row] == 1
            assert (batch.masks[row] == (255 if id == 8 else 3)).all()
    assert (batch.weights == 0).sum() == len(bad)


@pytest.mark.parametrize(
    ("ops", "masks", "error"),
    [
        ([ff.CutMix()], False, "CutMix would cover objects whose boxes remain; use Mosaic"),
        ([ff.RandomChoice([ff.MixUp(), ff.CutMix()])], False, "CutMix would cover"),
        (
            [ff.MixUp()],
            True,
            r"MixUp gives a pixel two classes, and masks hold one; use Mosaic\(\), which",
        ),
        ([ff.CutMix()], True, r"use Mosaic\(\) instead"),
        (
            [ff.FiveCrop(16)],
            False,
            "boxes and masks belong to one image, got an op that makes several views",
        ),
    ],
    ids=["boxes, CutMix", "a choice", "both, MixUp", "both, CutMix", "views"],
)
def test_refuses(ops: list[Any], masks: bool, error: str):
    with pytest.raises(SpecError, match=error):
        feed(located(N, masks=masks), ops, batch=8)


def test_masks_alone_may_be_pasted():
    source = ff.Objects(
        ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), masks=[np.zeros((8, 8), np.uint8)] * 4
    )
    with pytest.raises(
        SpecError, match=r"use CutMix\(\) or Mosaic\(\), which paste masks as images are pasted"
    ):
        feed(source, [ff.MixUp()], batch=4)


@pytest.mark.slow  # test_fields.py sends all fields
def test_a_helper_process_makes_the_same():
    source, ops = located(N), [ff.RandomResizedCrop(24), ff.Mosaic()]
    assert samples(feed(source, ops, batch=8, side_process=True)) == samples(
        feed(source, ops, batch=8)
    )


def test_trainers_get_images_and_a_dict():
    for source, names in (
        (located(N), ["boxes", "labels", "masks"]),
        (located(N, masks=False), ["boxes", "labels"]),
    ):
        with feed(source, [], batch=10, tail="pad") as made:
            tuples = BatchTuples.of(FeedSession.of(made))
            for batch in made.batches():
                images, targets = tuples.nested(tuples(batch))
                rows = slice(0, 4 if batch.step == 2 else 10)
                assert list(targets) == names and len(images) == len(targets["boxes"]) == rows.stop
                np.testing.assert_array_equal(targets["boxes"], batch.objects.boxes[rows])
                np.testing.assert_array_equal(targets["labels"], batch.objects.labels[rows])
        with feed(source, [], batch=10, on_bad="mask") as made:
            tuples = BatchTuples.of(FeedSession.of(made))
            images, targets, weights = tuples.nested(tuples(next(iter(made))))
            assert list(targets) == names and weights.tolist() == [1] * 10
        with pytest.raises(
            ConfigError,
            match='class_weight is by the field "label" of an image, and this feed yields image, b',
        ):
            BatchTuples.of(FeedSession.of(made), factors=np.ones(2, np.float32))


def test_batches_are_placed_with_their_boxes():
    with feed(located(N), [], batch=8) as made:
        batch = next(iter(made))
    arrays, rebuild = flatten(batch)
    again = rebuild(iter([array + 1 for array in arrays]))
    assert isinstance(again, Batch) and again.objects is not None and batch.objects is not None
    np.testing.assert_array_equal(again.objects.boxes, batch.objects.boxes + 1)
    np.testing.assert_array_equal(again.masks, batch.masks + np.uint8(1))
    bare = dataclasses.replace(batch, objects=None, masks=None)
    arrays, rebuild = flatten(bare)
    assert len(arrays) == 3 and rebuild(iter(arrays)).objects is None
