"""Feeds whose batches differ in size: fields, files, refusals, memory."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, SpecError

PIXELS = np.arange(8 * 12 * 12 * 3, dtype=np.uint8).reshape(8, 12, 12, 3)
SOURCE = ff.Arrays(PIXELS, np.arange(8))
SIZES = ff.RandomSizes([4, (6, 8)])


def folder(path, sizes):
    """Files of these (height, width); None is a damaged one."""
    (path / "a").mkdir()
    for k, size in enumerate(sizes):
        data = io.BytesIO()
        if size is not None:
            Image.new("RGB", size[::-1], (k, 0, 0)).save(data, "PNG")
        (path / "a" / f"{k:02}.png").write_bytes(data.getvalue() or b"damaged")
    return ff.ImageFolder(path)


def test_fields_and_the_text_of_a_feed_have_open_lengths():
    feed = ff.Feed(SOURCE, [ff.RandomResizedCrop(SIZES), ff.ToLayout("CHW")], batch=2)
    field = feed.fields["image"]
    assert (field.shape, field.largest, field.nbytes) == ((3, None, None), (3, 6, 8), 144)
    assert field.is_array and field.fits((3, 9, 9)) and not field.fits((1, 9, 9))
    assert "RandomResizedCrop(RandomSizes(sizes=(4, (6, 8))))" in str(feed)
    assert "for the largest size that batches have" in str(feed)
    assert "a batch is uint8[2, 3, ?, ?], 328 bytes" in str(feed)


def test_outputs_of_maps_have_open_lengths():
    maps = [
        ff.Map(lambda images: images[..., :1], "image", out="red"),
        ff.Map(lambda images: images.max(axis=(1, 2, 3)), "image", out="most"),
        ff.Map(lambda images: images[:, :4, :4], "image", out="corner"),
    ]
    feed = ff.Feed(SOURCE, [ff.RandomResizedCrop(SIZES), *maps], batch=2)
    red = feed.fields["red"]
    assert (red.shape, red.largest, red.dtype) == ((None, None, 1), (6, 8, 1), "uint8")
    assert feed.fields["most"].shape == () and feed.fields["corner"].shape == (4, 4, 3)
    for batch in feed.batches(epochs=2):
        assert batch["red"].shape == (*batch.images.shape[:3], 1)
    flat = ff.Map(lambda images: images[:, 0] if images.shape[1] > 4 else images, "image", out="x")
    uneven = ff.Feed(SOURCE, [ff.RandomResizedCrop(SIZES), flat], batch=2)
    with pytest.raises(ConfigError, match="'x' must have one dtype and number of dimensions"):
        dict(uneven.fields)


def test_batches_of_all_sizes_share_memory():
    feed = ff.Feed(SOURCE, [ff.CenterCrop(SIZES)], batch=2, prefetch=1)
    seen = set()
    for batch in feed.batches(epochs=12):
        root = batch.images
        while isinstance(root.base, np.ndarray):
            root = root.base
        seen.add(root.ctypes.data)
        del batch, root
    assert len(seen) <= 3


BUDGET = ff.Buckets([0, 1] * 4, 4, sizes={0: 4, 1: 8}, max_pixels=64)


def budgeted(ops=(), **options):
    ops = [ff.RandomResizedCrop(ff.BucketSize()), *ops]
    return ff.Feed(SOURCE, ops, batch=4, shuffle=BUDGET, **options)


def test_a_budget_is_in_the_text_of_a_feed_and_bounds_its_memory():
    feed = budgeted([ff.ToFloat()])
    assert "  images of a batch, by its size: 4 of 4x4, 1 of 8x8\n" in str(feed)
    assert "a batch is float32[?, ?, ?, 3], 848 bytes; at most 4 in memory (3.4 kB)" in str(feed)
    taken = {batch.images.nbytes for batch in feed}
    assert taken == {64 * 3 * 4} and len(feed) == 5
    assert feed.stats().images == feed.plan.length == 8
    assert "over all ranks, by its size: 8 of" in str(
        ff.Feed(
            SOURCE,
            [ff.RandomResizedCrop(ff.BucketSize())],
            global_batch=8,
            world=ff.World(1, 2),
            shuffle=ff.Buckets([0, 1] * 4, 8, "fill", {0: 4, 1: 8}, max_pixels=128),
        )
    )


def test_a_budget_leaves_nothing_to_pad():
    for batch, padded in zip(budgeted(), budgeted(tail="pad"), strict=True):
        assert np.array_equal(batch.ids, padded.ids)
        assert padded.weights.tolist() == [1] * len(batch.ids)


def test_feeds_of_two_budgets_are_iterated_together():
    plain = ff.Buckets([0, 1] * 4, 4, sizes={0: 4, 1: 8})
    other = ff.Feed(SOURCE, [ff.Resize(ff.BucketSize())], batch=4, shuffle=plain)
    lengths = [(len(a.ids), len(b.ids)) for a, b in zip(budgeted(), other, strict=False)]
    assert len(lengths) == 2 and {n for n, _ in lengths} <= {1, 4}


@pytest.mark.slow  # test_fields.py sends all fields
def test_a_helper_process_and_maps_take_batches_of_a_budget():
    ops = [ff.Map(lambda images: images.mean(axis=(1, 2, 3)), "image", out="mean")]
    plain = [(batch.ids, batch.images, batch["mean"]) for batch in budgeted(ops)]
    assert sorted(len(mean) for _, _, mean in plain) == [1, 1, 1, 1, 4]
    with budgeted(side_process=True) as feed:
        for batch, (ids, images, _) in zip(feed, plain, strict=True):
            assert np.array_equal(batch.ids, ids) and np.array_equal(batch.images, images)


def test_a_bad_image_of_a_budget_is_replaced_by_one_of_its_bucket(tmp_path):
    source = folder(tmp_path, [(8, 8), (8, 8), None, (8, 8), (8, 8), (8, 8), (8, 8), (8, 8)])
    ops = [ff.Resize(ff.BucketSize())]
    for on_bad in ("substitute", "mask"):
        feed = ff.Feed(source, ops, batch=4, shuffle=BUDGET, on_bad=on_bad)
        batch = next(batch for batch in feed if len(batch.ids) == 4)
        assert set(batch.ids.tolist()) <= {0, 2, 4, 6} and batch.images.shape == (4, 4, 4, 3)
        assert batch.weights.sum() == (4 if on_bad == "substitute" else 3)


def test_sizes_of_files_are_read_from_their_headers(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "cache"))
    (tmp_path / "images").mkdir()
    shapes = [(30, 40), (40, 30), (33, 40), None, (64, 48), (21, 20)]
    source = folder(tmp_path / "images", shapes)
    order = ff.Buckets.by_aspect([(9, 12), (12, 9), 12], batch=1)
    ops = [ff.Resize(ff.BucketSize(), fit="cover"), ff.CenterCrop(ff.BucketSize())]
    feed = ff.Feed(source, ops, batch=1, shuffle=order, quarantine=tmp_path / "bad.jsonl")
    found = {int(batch.ids[0]): batch.images.shape[1:3] for batch in feed}
    assert {id: found[id] for id in (0, 1, 2, 4, 5)} == {
        0: (9, 12),
        1: (12, 9),
        2: (9, 12),
        4: (12, 9),
        5: (12, 12),
    }


def test_columns_hold_the_sizes_of_images():
    high, wide = np.array([4, 8] * 4), np.array([8, 4] * 4)
    source = ff.Files([f"{k}.jpg" for k in range(8)], columns={"h": high, "w": wide})
    sizes = [(3, 6), (6, 3)]
    order = ff.Buckets.by_aspect(sizes, batch=2, images=["h", "w"]).bind(source)
    assert order == ff.Buckets.by_aspect(sizes, batch=2, images=np.stack([high, wide], axis=1))
    plan = ff.Plan(8, 2, shuffle=order)
    for step in range(plan.steps):
        ids = plan.ids(0, step)
        assert order.size_at(2 * step, 0, 0) == ((3, 6) if high[ids[0]] == 4 else (6, 3))


def test_sizes_of_several_images_follow_each_other():
    together = ff.Together({"a": SOURCE, "b": SOURCE})
    small = ff.RandomSizes([2, 3])
    ops = {"a": [ff.RandomResizedCrop(SIZES)], "b": [ff.RandomResizedCrop(small)]}
    shapes = set()
    for batch in ff.Feed(together, ops, batch=2).batches(epochs=3):
        shapes.add((batch["a"].shape[1:3], batch["b"].shape[1:3]))
    assert shapes == {((4, 4), (2, 2)), ((6, 8), (3, 3))}


def test_annotations_follow(tmp_path):
    masks = [np.arange(144, dtype=np.uint8).reshape(12, 12) % 7] * 8
    boxes = [np.array([[0, 0, 12, 6]])] * 8
    source = ff.Objects(SOURCE, boxes=boxes, labels=[[0]] * 8, masks=masks)
    feed = ff.Feed(source, [ff.Resize(ff.RandomSizes([(6, 6), (24, 12)]))], batch=2)
    assert feed.fields["masks"].largest == (24, 12)
    heights = set()
    for batch in feed:
        height, width = batch.images.shape[1:3]
        heights.add(height)
        assert batch["masks"].shape == (2, height, width)
        assert batch["boxes"][0, 0].tolist() == [0, 0, width, height / 2]
    assert heights == {6, 24}


def test_a_state_has_the_sizes(recwarn):
    feed = ff.Feed(SOURCE, [ff.RandomResizedCrop(ff.BySchedule({0: 4, 2: 6}))], batch=2)
    state = feed.state()
    assert state["ops"] == ["RandomResizedCrop(BySchedule({0: 4, 2: 6}))"]
    other = ff.Feed(SOURCE, [ff.RandomResizedCrop(ff.BySchedule({0: 4, 3: 6}))], batch=2)
    other.restore(state)
    assert "BySchedule({0: 4, 2: 6})" in str(recwarn.pop().message)
    order = ff.Buckets([0, 1] * 4, 2, sizes={0: 4, 1: 6})
    feed = ff.Feed(SOURCE, [ff.RandomResizedCrop(ff.BucketSize())], batch=2, shuffle=order)
    assert "sizes={0: (4, 4), 1: (6, 6)}" in feed.state()["shuffle"]


@pytest.mark.slow  # test_fields.py sends all fields
def test_a_helper_process_hands_over_every_size():
    options = {"batch": 2, "seed": 1}
    ops = [ff.RandomResizedCrop(SIZES)]
    with_helper = ff.Feed(SOURCE, ops, side_process=True, **options)
    plain = ff.Feed(SOURCE, ops, **options)
    pairs = zip(with_helper.batches(epochs=3), plain.batches(epochs=3), strict=True)
    assert all(np.array_equal(a.images, b.images) for a, b in pairs)
    with_helper.close()


def test_sizes_are_saved_with_ops(tmp_path):
    ops = [
        ff.RandomResizedCrop(ff.BySchedule({0: 4, 2: (6, 8)})),
        ff.CenterCrop(SIZES),
        ff.Resize(ff.BucketSize()),
    ]
    ff.save_ops(tmp_path / "ops.json", ops)
    assert ff.load_ops(tmp_path / "ops.json") == ops


def made(*ops, source=SOURCE, batch=2, **options):
    return ff.Feed(source, list(ops), batch=batch, **options)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: made(ff.Resize(ff.BucketSize())), "the order of this feed has no sizes"),
        (
            lambda: made(
                ff.Resize(ff.BucketSize()),
                shuffle=ff.Buckets([0, 1] * 4, 1, sizes={0: 4, 1: 6}),
            ),
            "got 2 samples per step and Buckets(batch=1); pass global_batch=1",
        ),
        (
            lambda: made(ff.Resize(16), ff.CenterCrop(ff.BySchedule({0: 12, 4: 20}))),
            "CenterCrop of 20x20 does not fit",
        ),
        (
            lambda: made(
                ff.Resize(SIZES, fit="cover"), ff.CenterCrop(20), source=ff.Files(["a.jpg"] * 4)
            ),
            "after Resize(size=RandomSizes(sizes=(4, (6, 8))), filter='bilinear', fit='cover'),",
        ),
        (
            lambda: made(ff.Resize(8), batch=4, shuffle=BUDGET),
            "no op takes the size; write BucketSize() in place of an op's size, or leave",
        ),
        (
            lambda: budgeted([ff.MixUp(), ff.OneHot(8)]),
            "got 1, 4 samples per step; make Buckets.batch and multiple multiples of 2 and",
        ),
        (lambda: made(ff.Resize(ff.RandomSizes([*range(1, 300)]))), "at most 256 sizes, got 299"),
        (lambda: ff.BySchedule({1: 4}), "from epoch 0, such as {0: 160, 10: 224}, got {1: 4}"),
        (lambda: ff.BySchedule({0: 4, -1: 5}), "from epoch 0"),
        (lambda: ff.RandomSizes([]), "a list of sizes"),
        (lambda: ff.RandomSizes([4, 0]), "in [1, 65535] pixels, got 0"),
        (lambda: ff.Transform([ff.Resize(SIZES)]), "is the size of each batch of a Feed"),
        (lambda: ff.Transform.of(made(ff.RandomResizedCrop(SIZES))), "is the size of each batch"),
        (
            lambda: made(ff.RandomResizedCrop(SIZES), decode="gpu", source=ff.Files(["a.jpg"] * 4)),
            "needs the cpu backend, got 'dali'",
        ),
    ],
)
def test_refusals_at_construction(make, text):
    with pytest.raises((ConfigError, SpecError)) as error:
        make()
    assert text in str(error.value)


def test_cover_is_as_small_as_covers_the_size():
    """As Pillow's ImageOps.fit, which crops the center of such an image."""
    for size, expected in (((6, 8), (8, 8)), ((8, 4), (8, 8)), (5, (5, 5)), ((3, 7), (7, 7))):
        spec = ff.Resize(size, fit="cover").out(SOURCE.spec)
        assert spec.size == expected
    sizes = np.array([[100, 37], [37, 100], [7, 1000]])
    found = ff.Resize((30, 20), fit="cover").params(np.empty((3, 0)), sizes)["size"]
    assert found.tolist() == [[54, 20], [30, 81], [30, 4286]]
