"""Ports of programs in Keras and TensorFlow give the data that the originals give."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.needs import LazyModule
from helpers.ports import (
    NEEDS,
    assert_close,
    center,
    folder_samples,
    load,
    made,
    output_of,
    parsed,
    resized,
    samples,
    short_side,
)
from PIL import Image

import fastfeed as ff
from fastfeed.feed.session import FeedSession

pytestmark = pytest.mark.slow
keras: Any = LazyModule("keras")
tf: Any = LazyModule("tensorflow")
PORTS_OF = sorted(name for name, packages in NEEDS.items() if "keras" in packages)


def test_keras_from_scratch(tmp_path: Path) -> None:
    port = load("keras_from_scratch")
    root = made(port, "class_folders", tmp_path) / "train"
    feeds = port.feeds(root)
    for feed, subset in zip(feeds, ("training", "validation"), strict=True):
        dataset = keras.utils.image_dataset_from_directory(
            root,
            validation_split=0.2,
            subset=subset,
            seed=1337,
            image_size=(64, 64),
            batch_size=8,
            verbose=False,
        )
        assert len(feed) == len(dataset)
        paths = [str(Path(path).relative_to(root)) for path in dataset.file_paths]
        labels = [sorted(port.data.CLASSES).index(path.split("/")[0]) for path in paths]
        assert sorted(samples(feed, root)) == sorted(zip(paths, labels, strict=True))
    found = list(feeds[1])
    wanted = [resized(root / name, (64, 64)) for name, _ in samples(feeds[1], root)]
    pixels = np.concatenate([batch.images[batch.weights > 0] for batch in found])
    assert pixels.dtype == np.float32
    assert_close(255 * pixels, np.stack(wanted))


def test_keras_autoencoder() -> None:
    port = load("keras_autoencoder")
    images = port.data.digits()
    feed = port.feeds(images, shuffle=False)
    assert len(feed) == len(images) // 16
    noisy, clean = (np.concatenate([batch[name] for batch in feed]) for name in ("noisy", "clean"))
    wanted = images.astype("float32")[..., None].repeat(3, axis=-1) / 255
    np.testing.assert_allclose(clean, wanted, atol=1e-6)
    rng = np.random.default_rng(0)
    noise = np.clip(wanted + 0.4 * rng.normal(size=wanted.shape), 0, 1) - wanted
    assert noisy.min() == 0 and noisy.max() == 1
    np.testing.assert_allclose((noisy - wanted).std(), noise.std(), rtol=0.03)
    np.testing.assert_allclose((noisy - wanted).mean(), noise.mean(), atol=0.01)


def test_keras_captcha(tmp_path: Path) -> None:
    port = load("keras_captcha")
    root = made(port, "captchas", tmp_path)
    train, val, letters = port.feeds(root)
    assert (train.plan.length, val.plan.length) == (36, 4)
    lookup = keras.layers.StringLookup(vocabulary=letters, mask_token=None)
    texts: list[str] = []
    for feed in train, val:
        for batch in feed:
            own = batch.weights > 0
            names = list(batch.labels[own])
            wanted = [np.asarray(lookup(list(text))) for text in names]
            np.testing.assert_array_equal(batch["letters"][own], wanted)
            gray = [Image.open(root / f"{name}.png").convert("L") for name in names]
            turned = np.stack([np.asarray(image).T[..., None] for image in gray])
            assert_close(255 * batch["turned"][own], turned)
            texts += names
    assert sorted(texts) == sorted(path.stem for path in root.glob("*.png"))


def test_keras_pets(tmp_path: Path) -> None:
    port = load("keras_pets")
    root = made(port, "trimaps", tmp_path)
    train, val = port.feeds(root)
    seen: list[str] = []
    for feed in train, val:
        source: Any = FeedSession.of(feed).source
        for batch in feed:
            for i, uri in enumerate(source.uris(batch.ids)):
                seen.append(Path(uri).stem)
                mask = Image.open(root / "masks" / f"{seen[-1]}.png")
                wanted = np.asarray(mask.resize((64, 64), Image.Resampling.NEAREST)) - 1
                np.testing.assert_array_equal(batch["masks"][i], wanted)
                assert_close(batch.images[i], resized(Path(uri), (64, 64)))
    assert (len(train), len(val)) == (4, 2)
    assert sorted(seen) == sorted(path.stem for path in (root / "images").iterdir())


def rows_of(root: Path) -> dict[str, dict[str, str]]:
    """Rows of train.csv by file name."""
    with open(root / "train.csv", newline="") as file:
        return {row["image_id"]: row for row in csv.DictReader(file)}


def test_keras_age_gender(tmp_path: Path) -> None:
    port = load("keras_age_gender")
    root = made(port, "table", tmp_path)
    rows, held_out = rows_of(root), []
    for fold in range(10):
        train, val = port.feeds(root / "train.csv", root / "photos", fold)
        assert train.plan.length + val.plan.length == len(rows)
        source: Any = FeedSession.of(val).source
        for batch in val:
            own = batch.weights > 0
            names = [Path(uri).name for uri in source.uris(batch.ids[own])]
            ages = [int(rows[name]["age"]) for name in names]
            np.testing.assert_array_equal(batch["ages"][own], keras.utils.to_categorical(ages, 101))
            genders = [int(rows[name]["gender"]) for name in names]
            np.testing.assert_array_equal(
                batch["genders"][own], keras.utils.to_categorical(genders, 2)
            )
            held_out += names
    assert sorted(held_out) == sorted(rows)


def test_keras_age(tmp_path: Path) -> None:
    port = load("keras_age")
    root = made(port, "table", tmp_path)
    rows = rows_of(root)
    feeds = port.feeds(root / "train.csv", root / "photos")
    seen = {name: age for feed in feeds for name, age in samples(feed, root / "photos")}
    assert seen == {name: float(row["age"]) for name, row in rows.items()}
    fields = feeds[0].fields
    assert (fields["image"].shape, fields["label"].dtype) == ((64, 64, 3), "float32")


def test_horovod_on_two_ranks(tmp_path: Path) -> None:
    port = load("horovod_keras_resnet50")
    root = made(port, "class_folders", tmp_path)
    generator = tf.keras.preprocessing.image.ImageDataGenerator()
    there = generator.flow_from_directory(root / "train", batch_size=4)
    wanted = list(zip(there.filenames, there.classes.tolist(), strict=True))
    ranks = [port.feeds(root, batch=4, world=ff.World(rank, 2)) for rank in range(2)]
    seen = []
    for train, val in ranks:
        assert len(train) == len(there) // 2
        for name, shares in samples(train, root / "train"):
            assert sorted(shares) == [0, 0, 1]
            seen.append((name, shares.index(1)))
        assert len(val) == 3  # 20 images: the last batch is padded
    assert sorted(seen) == sorted(wanted)
    files = [name for _, val in ranks for name, _ in samples(val, root / "val")]
    assert sorted(files) == [name for name, _ in folder_samples(root / "val")]
    batch = next(iter(ranks[0][1]))
    source: Any = FeedSession.of(ranks[0][1]).source
    images = [Image.fromarray(resized(Path(uri), (73, 73))) for uri in source.uris(batch.ids)]
    mean = np.array([103.939, 116.779, 123.68])
    wanted = np.stack([center(image, 64) for image in images])
    assert_close(batch.images + mean, wanted[..., ::-1])


def test_tensorflow_resnet(tmp_path: Path) -> None:
    port = load("tensorflow_resnet")
    root = made(port, "records", tmp_path)
    train, val = port.feeds(root)
    keys = ("image/encoded", "image/class/label")
    records = {part: parsed(root, part, *keys) for part in ("train", "validation")}
    labels = np.concatenate([batch.labels for batch in train])
    assert labels.dtype == np.float32 and len(train) == 48 // 8
    assert sorted(labels) == sorted(label - 1 for _, label in records["train"])
    found = [(batch.images[batch.weights > 0], batch.labels[batch.weights > 0]) for batch in val]
    images, labels = map(np.concatenate, zip(*found, strict=True))
    assert labels.tolist() == [label - 1 for _, label in records["validation"]]
    wanted = [center(short_side(io.BytesIO(jpeg), 73), 64) for jpeg, _ in records["validation"]]
    assert_close(images + np.array([123.68, 116.78, 103.94]), np.stack(wanted))


@pytest.mark.parametrize("name", PORTS_OF)
def test_they_train_on_data_of_their_own_making(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "loss" in output_of(name, monkeypatch, capsys)
