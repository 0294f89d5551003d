"""Users' functions on single images that get more of their sample, or return other images."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.feeds import NUMBERS
from helpers.photos import folder, picture

import fastfeed as ff
from fastfeed.errors import ConfigError, SampleError, SpecError

N = 12
IMAGES = np.stack([picture(seed, (16, 20)) for seed in range(N)])
HALF = ff.Spec((8, 10, 3), "uint8", "HWC")
PLANES = ff.Spec((3, 16, 20), "float32", "CHW")


class Named(ff.Arrays):
    def columns(self, ids):
        return {"name": np.array([f"image {i}" for i in ids], object), "price": ids / 2}


SOURCE = Named(IMAGES, np.arange(N) % 5)
ALL = ("boxes", "box_labels", "masks")
OBJECTS = ff.Objects(
    SOURCE,
    boxes=[[[0, 0, 4, 2], [4, 4, 12, 8]][: 1 + i % 2] for i in range(N)],
    labels=[[i, i][: 1 + i % 2] for i in range(N)],
    masks=[np.full((16, 20), i, np.uint8) for i in range(N)],
)


def first(source, ops, **more):
    with ff.Feed(source, ops, **({"batch": 4, "shuffle": False, "threads": 2} | more)) as feed:
        return next(iter(feed))


def half(image, numbers, **fields):
    return image[::2, ::2]


def planes(image, numbers):
    return np.float32(image.transpose(2, 0, 1)) / 255


def moved(image, numbers, boxes, box_labels, masks):
    assert masks.shape == image.shape[:2] and len(boxes) == len(box_labels)
    masks[0] = 99
    return {
        "image": image[::2, ::2],
        "boxes": boxes / 2,
        "box_labels": box_labels + 1,
        "masks": masks[::2, ::2],
    }


MOVED = ff.Function(moved, fields=ALL, returns=HALF)


def test_label_and_columns_are_those_of_the_sample():
    def marked(image, numbers, label, name, price):
        image[0, 0] = label, int(name.split()[1]), int(price * 2)
        return image

    op = ff.Function(marked, fields=["label", "name", "price"])
    batch = first(SOURCE, [op, ff.RandomFlip(0)])
    np.testing.assert_array_equal(batch.images[:, 0, 0], [[i % 5, i, i] for i in range(4)])
    assert op.fields == ("label", "name", "price")
    crops = first(SOURCE, [ff.FiveCrop(8), ff.Maybe(op, 1.0)])
    np.testing.assert_array_equal(crops.images[:, 4, 0, 0], [[i % 5, i, i] for i in range(4)])


@pytest.mark.parametrize("decode", ["auto", "pillow"])
def test_another_size_may_be_followed_by_other_ops(decode, tmp_path):
    arrays = first(SOURCE, [ff.Function(half, returns=HALF), ff.Invert(), ff.ToFloat()])
    want = (255 - IMAGES[:4, ::2, ::2]).astype(np.float64) / 255
    np.testing.assert_allclose(arrays.images, want, rtol=1e-6)
    folder(tmp_path, {"a": 4}, (16, 20))
    files, ops = ff.ImageFolder(tmp_path), [ff.Resize((16, 20)), ff.Function(half, returns=HALF)]
    batch = first(files, [*ops, ff.Resize((4, 5)), ff.Invert()], decode=decode)
    whole = first(files, [ff.Resize((16, 20))], decode=decode).images
    small = first(ff.Arrays(whole[:, ::2, ::2].copy()), [ff.Resize((4, 5)), ff.Invert()])
    np.testing.assert_array_equal(batch.images, small.images)


@pytest.mark.parametrize("views", [0, 5])
def test_images_of_any_spec_are_the_last(views):
    spec = ff.Spec((3, 8, 8), "float32", "CHW") if views else PLANES
    ops = [ff.FiveCrop(8)] if views else []
    before = first(SOURCE, ops).images
    batch = first(SOURCE, [*ops, ff.Function(planes, returns=spec), ff.OneHot(5)])
    assert batch.images.dtype == np.float32 and batch.images.shape[-3:] == spec.shape
    np.testing.assert_allclose(batch.images, np.moveaxis(before, -1, -3) / 255, rtol=1e-6)


def test_bad_samples_are_black_in_any_layout():
    def fails(image, numbers):
        if image[0, 0, 0] == 2:
            raise ValueError("two")
        return np.full((2, 3, 4), image[0, 0, 0], np.float32)

    op = ff.Function(fails, returns=ff.Spec((2, 3, 4), "float32", "CHW"))
    policy = ff.FaultPolicy("mask", max_share=1, on_error="bad")
    batch = first(ff.Arrays(NUMBERS[:4]), [op], on_bad=policy)
    assert batch.images[:, 0, 0, 0].tolist() == [0, 1, 0, 3] and batch.weights[2] == 0


def test_raw_batches_are_the_same_where_nothing_is_left_to_convert():
    op = ff.Function(planes, returns=PLANES)
    with ff.Feed(SOURCE, [op], batch=4, shuffle=False) as feed:
        raw, batch = next(feed.batches(raw=True)), next(feed.batches())
    np.testing.assert_array_equal(raw.images, batch.images)


def test_boxes_and_masks_move_as_the_function_says():
    batch = first(OBJECTS, [MOVED, ff.ToFloat()])
    assert batch.objects.counts.tolist() == [1, 2, 1, 2]
    np.testing.assert_array_equal(batch.objects.boxes[1], [[0, 0, 2, 1], [2, 2, 6, 4]])
    np.testing.assert_array_equal(batch.objects.labels, [[1, -1], [2, 2], [3, -1], [4, 4]])
    assert (batch.masks[:, 0] == 99).all() and batch.masks.shape == (4, 8, 10)
    np.testing.assert_array_equal(batch.masks[:, 1, 0], range(4))
    flipped = first(OBJECTS, [ff.RandomFlip(1.0), MOVED])
    np.testing.assert_array_equal(flipped.objects.boxes[0, 0], [8, 0, 10, 1])


def test_the_largest_boxes_are_kept_and_none_may_be_left():
    def many(image, numbers, boxes, box_labels):
        found = {"boxes": [[0, 0, 1, 1], [0, 0, 5, 5], [0, 0, 9, 9]], "box_labels": [1, 5, 9]}
        if numbers[0] < 0.5:
            found = {"boxes": [], "box_labels": []}
        return {"image": image} | found

    batch = first(OBJECTS, [ff.Function(many, fields=ALL[:2])], batch=12)
    assert set(batch.objects.counts.tolist()) == {0, 2}
    full = batch.objects.counts == 2
    np.testing.assert_array_equal(batch.objects.labels[full], [[5, 9]] * full.sum())
    assert (batch.objects.labels[~full] == -1).all()


def test_mixing_takes_what_the_function_returns():
    batch = first(OBJECTS, [MOVED, ff.Mosaic()])
    assert batch.images.shape[1:] == (8, 10, 3) and batch.masks.shape == (4, 8, 10)
    assert (batch.objects.counts > 0).all()


def returns(**values):
    def function(image, numbers, boxes, box_labels, masks):
        whole = {"image": image, "boxes": boxes, "box_labels": box_labels, "masks": masks} | values
        return {name: value for name, value in whole.items() if value is not None}

    return function


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (
            returns(boxes=None),
            "a mapping of image, boxes, box_labels, masks, returned ['image', 'box_l",
        ),
        (lambda image, numbers, **fields: image, "box_labels, masks, returned ndarray"),
        (
            returns(boxes=np.ones((2, 3))),
            "boxes of shape (n, 4) and box_labels of shape (n,), returned (2, 3)",
        ),
        (returns(box_labels=[1, 2, 3]), "returned (1, 4) and (3,)"),
        (
            returns(boxes=[[4, 4, 2, 2]]),
            "left, top, right, bottom in pixels, returned [[4.0, 4.0, 2.0, 2.0]]",
        ),
        (returns(boxes=[[0, 0, np.nan, 2]]), "returned [[0.0, 0.0, nan, 2.0]]"),
        (returns(box_labels=[0.5]), "integers as box_labels, returned [0.5]"),
        (returns(boxes="none"), "must return could not convert"),
        (returns(masks=np.zeros((2, 2), np.uint8)), "masks uint8[16, 20], returned uint8[2, 2]"),
        (returns(masks=np.zeros((16, 20))), "masks uint8[16, 20], returned float64[16, 20]"),
        (
            returns(image=np.zeros((8, 10, 3), np.uint8)),
            "uint8[16, 20, 3], as it got, returned uint8[8, 10, 3]",
        ),
    ],
)
def test_wrong_results_are_failures_of_the_function(function, text):
    with pytest.raises(SampleError) as raised:
        first(OBJECTS, [ff.Function(function, fields=ALL)])
    assert text in str(raised.value)


def test_a_stated_spec_is_checked():
    with pytest.raises(
        SampleError, match=r"must return float32\[3, 16, 20\], as stated, returned uin"
    ):
        first(SOURCE, [ff.Function(half, returns=PLANES)])


@pytest.mark.parametrize(
    ("source", "ops", "text"),
    [
        (
            SOURCE,
            [ff.Function(half, fields=("boxes", "box_labels"))],
            "takes boxes, box_labels, the source has label, name, price",
        ),
        (
            SOURCE,
            [ff.Function(half, fields=("nmae",))],
            "takes nmae, the source has label, name, price",
        ),
        (
            OBJECTS,
            [ff.Function(half, returns=HALF)],
            "changes the size of images, and boxes would stay as they are",
        ),
        (OBJECTS, [MOVED, ff.RandomFlip()], "RandomFlip.* cannot follow Function"),
        (OBJECTS, [MOVED, ff.Invert()], "put it before, or do it in the function"),
        (
            SOURCE,
            [ff.Function(planes, returns=PLANES), ff.ToFloat()],
            "ToFloat.* cannot follow Function",
        ),
        (
            SOURCE,
            [ff.Function(planes, returns=PLANES), ff.OneHot(5), ff.MixUp()],
            "MixUp.* cannot follow",
        ),
        (SOURCE, [ff.Maybe(ff.Function(half, returns=HALF))], "Maybe needs ops that keep the size"),
    ],
)
def test_refusals_of_lists(source, ops, text):
    with pytest.raises(SpecError, match=text):
        ff.Feed(source, ops, batch=4)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"fields": "label"},
            r"Function fields must be names such as \(\"label\", \"masks\"\), got 'label'",
        ),
        ({"fields": ("boxes",)}, r"must have boxes together with box_labels.*got \('boxes',\)"),
        ({"returns": (3, 4, 5)}, "Function returns must be a Spec of one size"),
        ({"returns": ff.Spec((None, 4, 3), "uint8", "HWC")}, "of one size, such as"),
    ],
)
def test_refusals_of_arguments(options, text):
    with pytest.raises(ConfigError, match=text):
        ff.Function(half, **options)


def test_what_a_function_gets_is_the_same_at_any_number_of_ranks_and_threads():
    def random_crop(image, numbers, boxes, box_labels, masks):
        top, left = np.random.default_rng(int(numbers[0] * 2**32)).integers(0, 8, 2)
        part = np.s_[top : top + 8, left : left + 10]
        return {
            "image": image[part],
            "boxes": boxes,
            "box_labels": box_labels,
            "masks": masks[part],
        }

    op = ff.Function(random_crop, draws=1, fields=ALL, returns=HALF)

    def rows(ranks, threads):
        found = {}
        for rank in range(ranks):
            with ff.Feed(
                OBJECTS, [op], global_batch=4, world=ff.World(rank, ranks), threads=threads
            ) as feed:
                for batch in feed.batches(epochs=2):
                    for id, image in zip(batch.ids.tolist(), batch.images, strict=True):
                        found[batch.epoch, id] = image.tobytes()
        return found

    assert rows(1, 1) == rows(4, 3) and len(set(rows(1, 2).values())) > N
