"""Boxes and masks follow the pixels, end to end: a bright rectangle is where its box says, whatever
was done to it.
"""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import pytest
from helpers.feeds import feed
from helpers.photos import folder
from helpers.rectangles import BEHIND, KINDS, located, rectangles, samples, seen
from PIL import Image

import fastfeed as ff
from fastfeed.errors import StateError

N = 24
WHITE = (255, 255, 255)
UNKNOWN = 255

STRAIGHT = {  # by what of the rectangle may be lost: nothing, or much
    False: [
        ff.RandomFlip(),
        ff.RandomFlip(0.5, "vertical"),
        ff.RandomFlip(0.7, "both"),
        ff.Resize((80, 70)),
        ff.Resize((48, 100), fit="pad"),
        ff.Pad((3, 0, 8, 5)),
        ff.Pad(4),
        ff.Maybe(ff.RandomFlip(1.0), 0.5),
        ff.Brightness((0.9, 1.0)),
    ],
    True: [
        ff.RandomResizedCrop(56),
        ff.RandomResizedCrop((40, 72), scale=(0.3, 1)),
        ff.CenterCrop(50),
    ],
}


def lists(crops: bool, count: int) -> list[list[Any]]:
    rng, found = np.random.default_rng(7 + crops), []
    for _ in range(count):
        ops = [
            STRAIGHT[False][i] for i in rng.integers(len(STRAIGHT[False]), size=rng.integers(1, 5))
        ]
        if crops:
            ops.insert(
                rng.integers(len(ops) + 1), STRAIGHT[True][rng.integers(len(STRAIGHT[True]))]
            )
        found.append([ff.Resize((64, 96)), *ops] if rng.random() < 0.3 else ops)
    return found


def agrees(image: np.ndarray, mask: np.ndarray, kind: int) -> None:
    """A pixel away from the rectangle's edge says the same in both."""
    shows, said = (image[..., 0] > 127).astype(np.uint8), (mask == kind).astype(np.uint8)
    around = np.ones((3, 3), np.uint8)
    assert (shows >= cv2.erode(said, around)).all()
    assert (shows <= cv2.dilate(said, around)).all()
    assert set(np.unique(mask)) <= {kind, BEHIND, UNKNOWN}


@pytest.mark.parametrize("ops", [*lists(False, 8), *lists(True, 8)], ids=repr)
def test_boxes_are_where_the_pixels_are(ops: list[Any]):
    crops = any(op in STRAIGHT[True] for op in ops)
    with feed(located(N), ops, batch=N, shuffle="none") as made:
        (batch,) = made
    assert batch.objects is not None and batch.masks is not None
    assert batch.objects.boxes.shape == (N, 1, 4) and batch.objects.boxes.dtype == np.float32
    assert batch.masks.shape == batch.images.shape[:3] and batch.masks.dtype == np.uint8
    for row, image in enumerate(batch.images):
        place, count = seen(image), int(batch.objects.counts[row])
        if count:
            assert batch.objects.labels[row].tolist() == [row % KINDS] and place is not None
            assert (
                np.abs(batch.objects.boxes[row, 0] - place).max() <= 1.01
            )  # a border begins at a whole pixel
        else:
            assert crops, "nothing was cut off"
            assert batch.objects.labels[row].tolist() == [-1] and not batch.objects.boxes[row].any()
        agrees(image, batch.masks[row], row % KINDS)
    assert batch.objects.counts.sum() >= (N // 2 if crops else N)


@pytest.mark.parametrize(
    "ops",
    [
        [ff.Rotate(30)],
        [ff.Rotate((100, 150), expand=True), ff.RandomFlip()],
        [ff.RandomFlip(), ff.Rotate((90, 180)), ff.RandomResizedCrop(64, scale=(0.5, 1))],
        [ff.Affine(20, (0.1, 0.1), (0.7, 1.2), 10), ff.RandomFlip()],
        [ff.Resize((64, 64), fit="pad"), ff.Perspective(0.4, 1.0)],
        [
            ff.RandomResizedCrop(60, scale=(0.4, 1)),
            ff.Maybe(ff.Rotate(45), 0.5),
            ff.Perspective(0.3),
        ],
    ],
    ids=repr,
)
def test_boxes_hold_what_is_turned(ops: list[Any]):
    with feed(located(N), ops, batch=N, shuffle="none") as made:
        (batch,) = made
    assert (
        batch.objects is not None and batch.masks is not None and batch.objects.counts.sum() > N / 2
    )
    for row, image in enumerate(batch.images):
        place = seen(image)
        if batch.objects.counts[row] and place is not None:
            box = batch.objects.boxes[row, 0]
            assert (box[:2] <= place[:2] + 1).all() and (box[2:] >= place[2:] - 1).all()
        shows, said = image[..., 0] > 127, batch.masks[row] == row % KINDS
        assert (shows != said).mean() < 0.02


@pytest.mark.parametrize(
    "ops",
    [
        [ff.RandomFlip(0.5, "both")],
        [ff.RandomCrop((50, 70), padding=12, fill=WHITE), ff.RandomFlip()],
        [ff.Pad((9, 4), fill=WHITE), ff.Crop(3, 5, (60, 80))],
        [ff.Rotate(40, "nearest", WHITE)],
        [ff.Rotate((30, 60), "nearest", WHITE, expand=True), ff.RandomFlip()],
        [
            ff.RandomFlip(),
            ff.Rotate(40, "nearest", WHITE),
            ff.Affine(9, scale=(0.8, 1.3), filter="nearest", fill=WHITE),
        ],
    ],
    ids=repr,
)
def test_masks_are_their_images_pixel_for_pixel(ops: list[Any]):
    """The image is its mask; where the one shows its border, the other says 255."""
    masks = np.random.default_rng(1).integers(0, 9, (N, 60, 90), dtype=np.uint8)
    masks = masks.repeat(2, axis=1)[:, :60]
    source = ff.Objects(ff.Arrays(masks), masks=masks)
    with feed(source, ops, batch=8) as made:
        for batch in made:
            assert batch.objects is None
            np.testing.assert_array_equal(batch.images[..., 0], batch.masks)


def test_a_box_has_many_sides_of_one_story(tmp_path):
    """Order, room, what is too small, and what lies outside."""
    # whose sizes are not known beforehand
    images = ff.ImageFolder(folder(tmp_path / "photos", {"a": 3}, (40, 40)))
    boxes = [
        [[0, 0, 8, 8], [-5, -5, 20, 20], [30, 30, 60, 90], [39, 0, 60, 0.5], [3, 3, 3, 30]],
        [],
        [[5, 5, 6.5, 6.5]],
    ]
    labels = [[4, 3, 2, 1, 0], [], [7]]
    with feed(
        ff.Objects(images, boxes, labels), [ff.CenterCrop(40)], batch=3, shuffle="none"
    ) as made:
        (batch,) = made
    found = batch.objects
    assert found is not None and found.labels.tolist() == [
        [4, 3, 2, -1, -1],
        [-1] * 5,
        [7, -1, -1, -1, -1],
    ]
    assert found.boxes[0].tolist() == [
        [0, 0, 8, 8],
        [0, 0, 20, 20],
        [30, 30, 40, 40],
        [0] * 4,
        [0] * 4,
    ]
    assert (
        found.counts.tolist() == [3, 0, 1] and found.counts.dtype == found.labels.dtype == np.int64
    )
    with feed(
        ff.Objects(images, boxes, labels, most=2), [ff.CenterCrop(40)], batch=3, shuffle="none"
    ) as made:
        (batch,) = made
    assert batch.objects is not None and batch.objects.labels.tolist() == [
        [3, 2],
        [-1, -1],
        [7, -1],
    ]
    with feed(
        ff.Objects(images, boxes, labels), [ff.Resize((20, 20))], batch=3, shuffle="none"
    ) as made:
        (batch,) = made
    assert batch.objects is not None and batch.objects.counts.tolist() == [
        3,
        0,
        0,
    ]  # less than a pixel is left


def test_conversion_leaves_boxes_in_pixels():
    plain, converted = (
        [ff.Resize((32, 32)), *more] for more in ([], [ff.Normalize.imagenet(), ff.ToLayout("CHW")])
    )
    with feed(located(N), plain, batch=N) as one, feed(located(N), converted, batch=N) as two:
        (a,), (b,) = one, two
    assert a.objects is not None and b.objects is not None and b.images.shape == (N, 3, 32, 32)
    np.testing.assert_array_equal(a.objects.boxes, b.objects.boxes)
    np.testing.assert_array_equal(a.masks, b.masks)


def test_exif_orientation_is_that_of_the_boxes(tmp_path):
    images, boxes = rectangles(1, (48, 64))
    (tmp_path / "a").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned clockwise
    Image.fromarray(np.rot90(images[0]).copy()).save(tmp_path / "a" / "1.png", exif=exif)
    file = io.BytesIO()
    Image.fromarray((images[0, ..., 0] > 0).astype(np.uint8)).save(file, "PNG")
    source = ff.ImageFolder(tmp_path, min_per_class=1)
    with feed(
        ff.Objects(source, [boxes], masks=[file.getvalue()]), [ff.Resize((48, 64))], batch=1
    ) as made:
        (batch,) = made
    np.testing.assert_array_equal(seen(batch.images[0]), boxes[0])
    np.testing.assert_array_equal(batch.objects.boxes[0, 0], boxes[0])
    np.testing.assert_array_equal(batch.masks[0], batch.images[0, ..., 0] > 127)


class Framed(ff.Arrays):
    """Only a part of every image counts: without the first 10 rows and 20 columns."""

    def weights(self, ids: np.ndarray) -> None:
        return None

    def boxes(self, ids: np.ndarray) -> np.ndarray:
        return np.tile([10.0, 20.0, 50.0, 70.0], (len(ids), 1))

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        return {}


def test_boxes_are_those_of_the_whole_image_where_a_part_of_it_counts():
    images, boxes = rectangles(N)
    source = ff.Objects(
        Framed(images), boxes[:, None], masks=list((images[..., 0] > 0).astype(np.uint8))
    )
    with feed(source, [ff.Resize((50, 70)), ff.RandomFlip()], batch=N) as made:
        (batch,) = made
    assert batch.objects is not None and batch.objects.counts.sum() > N / 2
    for row, image in enumerate(batch.images):
        np.testing.assert_array_equal(image[..., 0] > 127, batch.masks[row] == 1)
        if batch.objects.counts[row]:
            np.testing.assert_array_equal(seen(image), batch.objects.boxes[row, 0])


def test_explain_says_what_a_batch_holds():
    with feed(located(N), [ff.Resize((32, 32)), ff.Mosaic()], batch=8) as made:
        assert (
            "id int64[8], boxes float32[8, 4, 4],\n    box_labels int64[8, 4], box_counts int64[8],"
            " masks uint8[8, 32, 32]" in str(made)
        )
    with feed(located(N).source, [], batch=8) as made:
        assert "boxes" not in str(made)


def test_a_saved_position_is_not_restored_over_other_boxes():
    source = located(N, masks=False)
    found = source.objects(np.arange(N))
    assert found is not None
    with feed(source, [], batch=8) as made:
        state = made.state()
    moved = ff.Objects(
        source.source,
        found.boxes[:, None] * 0.5,
        found.labels[:, None],
        classes=source.object_classes,
    )
    with feed(moved, [], batch=8) as made:
        with pytest.raises(StateError, match=r"of objects changed: content of samples in 0\.\.23"):
            made.restore(state)


PURE = [ff.RandomResizedCrop(24), ff.RandomFlip(), ff.Maybe(ff.Rotate(30), 0.5)]


@pytest.mark.parametrize("ops", [PURE, [*PURE, ff.Mosaic(0.7)]], ids=["geometry", "mosaic"])
def test_the_same_for_any_ranks_batches_threads_and_after_resume(ops: list[Any]):
    source = located(168, (24, 36))

    def walked(size: int, batch: int, threads: int = 2, start: int = 0) -> dict[int, Any]:
        ranks = [
            feed(source, ops, batch=batch, threads=threads, world=ff.World(r, size))
            for r in range(size)
        ]
        found = [one for made in ranks for one in samples(made, 1, start)]
        assert len(found) == 168 - start * size * batch
        return {id: content for _, id, content in found}

    alone = walked(1, 8)
    assert len({content[2:] for content in alone.values()}) > 100
    assert walked(2, 4) == walked(4, 2) == walked(1, 8, threads=1) == alone
    if ops is PURE:  # partners are of the global batch
        assert walked(3, 7) == walked(1, 24, threads=1) == alone
    after = walked(2, 4, start=11)
    assert len(after) == 80 and after.items() <= alone.items()
    other = {id: content for _, id, content in samples(feed(source, ops, batch=8), 2)}
    assert sum(other[id] == alone[id] for id in alone) < 20
