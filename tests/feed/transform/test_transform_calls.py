"""A transform: items of every kind, one bad among many, ids and generators, pickles and closing."""

from __future__ import annotations

import io
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import BROKEN, broken, jpeg, picture
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, FeedClosed, SampleError, SpecError
from fastfeed.feed.transform.items import kind

OPS = [ff.Resize((16, 20)), ff.ToFloat()]
RANDOM = [ff.RandomResizedCrop(16), ff.RandomFlip()]
PICTURE = picture(1)


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def transform() -> Any:
    with ff.Transform(OPS, threads=2) as made:
        yield made


def test_items_of_every_kind_mixed_in_one_call(transform: ff.Transform, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(PICTURE))
    gray, clear = PICTURE[..., 0], np.dstack([PICTURE, np.full(PICTURE.shape[:2], 255, np.uint8)])
    file = png(PICTURE)
    items = [
        file,
        PICTURE,
        bytearray(file),
        path,
        memoryview(file),
        Image.fromarray(PICTURE),
        np.frombuffer(file, np.uint8),
        str(path),
        clear,
        Image.fromarray(clear),
        PICTURE[:, ::-1][:, ::-1],
    ]
    batch = transform(items)
    assert not batch.bad and (batch.weights == 1).all() and (batch.labels == -1).all()
    assert batch.ids.tolist() == list(range(len(items)))
    of_pixels = [row for row, item in enumerate(items) if kind(item) == "pixels"]
    of_files = [row for row in range(len(items)) if row not in of_pixels]
    for rows in (of_files, of_pixels):
        assert (batch.images[rows] == batch.images[rows[0]]).all()
    # files are resized while they are decoded, which rounds elsewhere
    assert np.abs(batch.images[0] - batch.images[1]).max() < 1.5 / 255
    grays = transform([gray, gray[..., None], Image.fromarray(gray), png(gray)]).images
    assert (grays[:3] == grays[0]).all() and np.abs(grays[3] - grays[0]).max() < 1.5 / 255
    assert np.array_equal(transform.one(PICTURE), batch.images[1])


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_pil_image_is_displayed_as_its_file_is(turn: int, transform: ff.Transform) -> None:
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = turn
    Image.fromarray(PICTURE).save(file, "PNG", exif=exif)
    image = Image.open(io.BytesIO(file.getvalue()))
    # a file is resized before it is turned, which rounds elsewhere
    off = np.abs(transform.one(image) - transform.one(file.getvalue()))
    assert off.max() < 1.5 / 255


def test_a_bad_item_costs_its_row_alone(transform: ff.Transform) -> None:
    good = jpeg(1)
    items: list[Any] = [good, *(broken(reason) for reason in BROKEN), good, 3.5, None]
    items += [PICTURE.astype(np.float32), PICTURE[:0], PICTURE[None], "no.jpg", "s3://a/b.jpg"]
    batch = transform(items, ids=np.arange(len(items)) + 100)
    want = [*BROKEN, "not_image", "not_image", "not_image", "empty", "not_image"]
    want += ["not_found", "not_found"]
    assert [failure.reason for failure in batch.bad.values()] == want
    assert list(batch.bad) == np.flatnonzero(batch.weights == 0).tolist()
    assert [failure.id for failure in batch.bad.values()] == [row + 100 for row in batch.bad]
    assert batch.bad[1].uri == "items[1]" and batch.bad[len(items) - 2].uri == "no.jpg"
    assert not batch.images[list(batch.bad)].any()
    alone = transform([good]).images[0]
    assert all(np.array_equal(batch.images[row], alone) for row in (0, 5))
    with pytest.raises(SampleError, match=r"items\[0\]: truncated") as raised:
        transform.one(broken("truncated"))
    assert raised.value.failure.reason == "truncated"


@pytest.mark.parametrize(
    ("items", "text"),
    [
        (jpeg(1), r"items must be a list, got one bytes; call transform.one\(item\)"),
        (PICTURE, r"items must be a list, got one ndarray; call transform.one\(item\)"),
        ("a.jpg", "items must be a list, got one str"),
        (Path("a.jpg"), r"items must be a list, got one \w*Path"),
        (Image.new("RGB", (2, 2)), "items must be a list, got one Image"),
        ((x for x in [1]), r"items must be a list, got generator; pass list\(items\)"),
        ({"a": 1}, "items must be a list, got dict"),
        (3, "items must be a list, got int"),
    ],
)
def test_one_item_and_what_has_no_length_are_refused(
    transform: ff.Transform, items: Any, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        transform(items)


def test_no_items_are_a_batch_of_no_rows(transform: ff.Transform) -> None:
    batch = transform([])
    assert batch.images.shape == (0, 16, 20, 3) and batch.images.dtype == np.float32
    assert len(batch) == 0 and not batch.bad and transform(np.stack([PICTURE] * 2)).images.any()


def test_random_numbers_come_from_ids_or_a_generator() -> None:
    with ff.Transform(RANDOM, seed=3, threads=1) as transform:
        assert transform.random and not ff.Transform(OPS).random
        items = [jpeg(1), jpeg(1)]
        for options, text in (
            ({}, r"pass ids=, which give those of a feed, or rng=, or call transform.evaluation"),
            ({"ids": [1, 2], "rng": np.random.default_rng(0)}, "got both; leave one out"),
            ({"rng": 5}, "rng must be a Generator"),
            ({"ids": [1]}, "ids must be one per item, got 1 for 2 items"),
            ({"ids": [1, -2]}, r"ids must be in \[0, 2\*\*63\), got -2"),
            ({"ids": np.array([1, 2**63], np.uint64)}, r"got 9223372036854775808"),
            ({"ids": [1, 2**63]}, r"ids must be integers in \[0, 2\*\*63\)"),
            ({"ids": [1, 2**70]}, r"ids must be integers in \[0, 2\*\*63\)"),
            ({"ids": [0.5, 1]}, "ids must be integers"),
            ({"ids": [1, 2], "epoch": -1}, r"epoch must be an integer in \[0, 2\*\*32\), got -1"),
            ({"ids": [1, 2], "epoch": 2**32}, r"epoch must be an integer in \[0, 2\*\*32\)"),
            ({"ids": [1, 2], "seed": -1}, "seed must be an integer"),
        ):
            with pytest.raises(ConfigError, match=text):
                transform(items, **options)
        by_ids = transform(items, ids=[4, 9]).images
        assert np.array_equal(transform(items, ids=[9, 4]).images, by_ids[::-1])
        assert not np.array_equal(transform(items, ids=[4, 9], epoch=1).images, by_ids)
        assert not np.array_equal(transform(items, ids=[4, 9], seed=4).images, by_ids)
        drawn = transform(items, rng=np.random.default_rng(5)).images
        assert np.array_equal(transform(items, rng=np.random.default_rng(5)).images, drawn)
        assert not np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn, by_ids)


def test_construction_starts_nothing_and_checks_the_ops() -> None:
    threads = threading.active_count()
    transform = ff.Transform(OPS, threads=4)
    assert threading.active_count() == threads and transform.ops == OPS
    assert transform.spec == ff.Spec((16, 20, 3), "float32", "HWC")
    assert "Resize" in repr(transform) and "float32[16, 20, 3]" in repr(transform)
    with pytest.raises(SpecError, match="add Resize"):
        ff.Transform([ff.Resize(8)])
    with pytest.raises(ConfigError, match="decode must be one of auto, cpu, native, pillow"):
        ff.Transform(OPS, decode="gpu")


def test_evaluation_has_no_random_ops_and_the_same_options() -> None:
    ops = [ff.RandomResizedCrop(16), ff.RandomFlip(), ff.OneHot()]
    training = ff.Transform(ops, seed=3, threads=2, decode="pillow", classes=4)
    made = training.evaluation
    assert made.ops == ff.evaluation(ops) and not made.random and made.spec == training.spec
    assert made([jpeg(1)], fields={"label": [2]}).labels.tolist() == [[0, 0, 1, 0]]


def test_a_feed_of_gray_arrays_has_a_transform_of_gray_arrays() -> None:
    grays = np.stack([picture(i, (8, 8))[..., 0] for i in range(4)])
    ops = [ff.RandomFlip(), ff.Pad(1), ff.ToFloat()]
    with ff.Feed(ff.Arrays(grays), ops, batch=4, seed=2, threads=1) as feed:
        (batch,) = feed
        made = ff.Transform.of(feed)([Image.fromarray(grays[i]) for i in batch.ids], ids=batch.ids)
    assert np.array_equal(made.images, batch.images) and made.images.shape == (4, 10, 10, 1)


def test_a_feed_that_mixes_samples_has_a_transform_without() -> None:
    images = np.stack([PICTURE] * 4)
    source = ff.Arrays(images, [0, 1, 0, 1], classes=["a", "b"])
    with ff.Feed(source, [ff.Resize((16, 16)), ff.MixUp()], batch=4, threads=1) as feed:
        transform = ff.Transform.of(feed)
        assert transform.ops == [ff.Resize((16, 16))] and transform([PICTURE]).images.any()
    pairs = ff.Together({"one": ff.Arrays(images), "two": ff.Arrays(images)})
    with ff.Feed(pairs, [ff.Resize((16, 16))], batch=2, threads=1) as feed:
        with pytest.raises(ConfigError, match="a Transform takes items of one image, got"):
            ff.Transform.of(feed)


def test_entering_opens_the_threads() -> None:
    transform = ff.Transform(OPS, threads=2)
    with transform:
        pipeline = transform._pipeline.opened
        assert pipeline is not None
        transform.one(PICTURE)
        assert transform._pipeline.opened is pipeline


def test_a_closed_transform_says_so() -> None:
    transform = ff.Transform(OPS, threads=1)
    transform.one(PICTURE)
    transform.close()
    transform.close()
    with pytest.raises(FeedClosed, match="this transform is closed; create a new one"):
        transform.one(PICTURE)
    assert pickle.loads(pickle.dumps(transform)).one(PICTURE).any()
