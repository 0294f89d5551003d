"""Batches padded to their largest image, and images at their own size."""

from __future__ import annotations

import io

import numpy as np
import pytest
from helpers.needs import needs
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, SpecError

SHAPES = [(30, 40), (21, 50), (64, 33), (9, 9), (30, 40), (47, 12), (8, 64), (33, 33)]
GRAY = (114, 114, 114)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path):
    place = tmp_path / "images" / "a"
    place.mkdir(parents=True)
    for k, size in enumerate(SHAPES):
        pixels = np.random.default_rng(k).integers(0, 256, (*size, 3), np.uint8)
        Image.fromarray(pixels).save(place / f"{k:02}.png")
    return ff.ImageFolder(place.parent)


def opened(source, id):
    return np.asarray(Image.open(io.BytesIO(source.read([id])[0])))


def corner(multiple=1, **options):
    return ff.Resize(ff.LargestSize(multiple), fit="corner", **options)


def test_images_are_in_the_corner_and_valid_says_where(source):
    feed = ff.Feed(source, [corner(8, fill=GRAY)], batch=3, tail="pad", seed=2)
    for batch in feed.batches(epochs=2):
        own = batch.ids[batch.weights > 0]
        sides = np.array(SHAPES)[own].max(axis=0)
        assert batch.images.shape[1:3] == tuple(sides + -sides % 8)
        for id, image, valid in zip(own, batch.images, batch["valid"], strict=False):
            height, width = SHAPES[id]
            assert valid[:height, :width].all() and valid.sum() == height * width
            assert np.array_equal(image[:height, :width], opened(source, int(id)))
            assert (image[~valid] == GRAY).all()


def test_a_batch_of_one_image_has_its_size(source):
    feed = ff.Feed(source, [corner(), ff.ToFloat()], batch=1, shuffle="none")
    assert [batch.images.shape[1:3] for batch in feed] == SHAPES
    assert all(batch["valid"].all() for batch in feed)


def test_ops_before_and_after_are_those_of_a_feed_of_that_size(source):
    def ops(size):
        moves = [ff.Resize(16), ff.RandomFlip(1.0), ff.Resize(size, fit="corner")]
        return [*moves, ff.Brightness(0.3), ff.Normalize.imagenet()]

    feed = ff.Feed(source, ops(ff.LargestSize(4)), batch=4, to_original=True)
    for batch in feed.batches(epochs=2):
        plain = ff.Feed(source, ops(batch.images.shape[1:3]), batch=4, to_original=True)
        expected = next(plain.batches(batch.epoch, batch.step))
        assert np.array_equal(batch.images, expected.images)
        assert np.array_equal(batch["transform"], expected["transform"])
        places = ff.to_original(
            np.argwhere(batch["valid"][0])[None, :, ::-1] + 0.5, batch["transform"][:1]
        )
        assert (places >= 0).all() and (places <= batch["original_size"][0, ::-1]).all()


def test_all_ranks_have_the_size_of_the_global_batch(source):
    one = ff.Feed(source, [corner(4)], global_batch=4)
    ranks = [ff.Feed(source, [corner(4)], global_batch=4, world=ff.World(k, 2)) for k in (0, 1)]
    for expected, *parts in zip(one, *ranks, strict=True):
        assert np.array_equal(expected.images, np.concatenate([part.images for part in parts]))
        assert np.array_equal(expected["valid"], np.concatenate([part["valid"] for part in parts]))


@pytest.mark.parametrize(
    ("op", "size"), [(ff.JPEGCompression(50), (64, 33)), (ff.Rotate(30, expand=True), (64, 33))]
)
def test_ops_after_see_sizes_of_the_images_alone(source, op, size):
    """As of a feed of the size of the largest image, which every op can take."""
    feed = ff.Feed(source, [corner(), op], batch=1, shuffle="none")
    plain = ff.Feed(source, [ff.Resize(size, fit="corner"), op], batch=1, shuffle="none")
    np.testing.assert_array_equal(list(feed)[2].images, list(plain)[2].images)


def test_turned_images_have_a_turned_mask(source):
    feed = ff.Feed(source, [corner(), ff.Rotate((90, 90))], batch=1, shuffle="none")
    batch = next(iter(feed))  # of 30 x 40 pixels, turned around the center
    assert batch["valid"][0][:, 5:35].all() and not batch["valid"][0][:, :5].any()


def test_a_substitute_that_is_larger_is_scaled(source, tmp_path):
    (tmp_path / "images" / "a" / "03.png").write_bytes(b"damaged")
    source = ff.ImageFolder(tmp_path / "images")
    feed = ff.Feed(source, [corner()], batch=1, shuffle="none")
    batch = list(feed.batches())[3]
    assert batch.images.shape[1:3] == SHAPES[0] and batch.ids[0] != 3
    height, width = SHAPES[batch.ids[0]]
    scale = min(30 / height, 40 / width, 1)
    assert batch["valid"].sum() == round(height * scale) * round(width * scale)


@pytest.mark.slow  # test_fields.py sends all fields
def test_a_helper_process_makes_the_same(source):
    feeds = [ff.Feed(source, [corner(2)], batch=2, side_process=side) for side in (False, True)]
    for a, b in zip(*(feed.batches(epochs=2) for feed in feeds), strict=True):
        assert np.array_equal(a.images, b.images) and np.array_equal(a["valid"], b["valid"])
    feeds[1].close()


def test_maps_take_the_mask(source):
    count = ff.Map(lambda valid: valid.sum(axis=(1, 2)), "valid", out="pixels")
    feed = ff.Feed(source, [corner(), count], batch=2, to_original=True)
    assert feed.fields["pixels"].shape == ()
    for batch in feed:
        np.testing.assert_array_equal(batch["pixels"], batch["original_size"].prod(axis=1))


@needs("torch")
def test_frameworks_take_the_mask(source):
    feed = ff.Feed(source, [corner(), ff.ToFloat()], batch=2)
    assert feed.fields["valid"].shape == (None, None) and feed.fields["valid"].is_array
    for images, valid in feed.to_torch("cpu", yields=("image", "valid")):
        assert str(valid.dtype) == "torch.bool" and images.shape[1:3] == valid.shape[1:]


@pytest.mark.parametrize(
    ("ops", "text"),
    [
        ([ff.Resize(ff.LargestSize())], "write Resize(LargestSize(), fit='corner')"),
        ([ff.RandomCrop(8), ff.Invert(), corner()], "comes before ops which change pixels"),
        ([ff.RandomResize((8, 9)), corner()], "sizes that do not depend on random numbers"),
        ([ff.ToFloat(), corner(), ff.Invert()], "put it before ToFloat"),
        ([ff.Pad(2), corner()], "comes before ops which change pixels, got [Pad("),
        ([ff.IoUCrop(), corner()], "sizes that do not depend on random numbers"),
        (
            [ff.Resize(ff.RandomSizes([8, 16])), corner()],
            "random numbers or the batch, got [Resize(size=RandomSizes",
        ),
        ([corner(), ff.CenterCrop(32)], "CenterCrop of 32x32 does not fit into"),
        ([corner(), ff.MixUp(1.0), ff.OneHot(3)], "MixUp makes one image of several"),
        ([corner(), ff.MultiCrop((ff.View(8, 2),))], "there are several views of each image"),
    ],
)
def test_refusals_at_construction(source, ops, text):
    with pytest.raises((ConfigError, SpecError)) as error:
        ff.Feed(source, ops, batch=2)
    assert text in str(error.value)


@pytest.mark.parametrize("multiple", [0, 5000, True])
def test_multiples_out_of_range_are_refused(multiple):
    with pytest.raises(ConfigError, match="multiple"):
        ff.LargestSize(multiple)


def test_a_multiple_may_be_an_integer_of_numpy():
    assert ff.LargestSize(np.int64(32)) == ff.LargestSize(32)
