"""Ports of programs in Keras and TensorFlow give the data that the originals give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.ports import (
    NEEDS,
    assert_close,
    load,
    made,
    resized,
    samples,
    train,
)
from PIL import Image

from fastfeed.feed.session import FeedSession

pytestmark = pytest.mark.slow
PORTS_OF = sorted(name for name, packages in NEEDS.items() if "keras" in packages)


def test_keras_from_scratch(tmp_path: Path) -> None:
    port = load("keras_from_scratch")
    import keras

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
    import keras

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
    seen = []
    source: Any = FeedSession.of(train).source
    for feed in train, val:
        source = FeedSession.of(feed).source
        for batch in feed:
            for i, uri in enumerate(source.uris(batch.ids)):
                seen.append(Path(uri).stem)
                mask = Image.open(root / "masks" / f"{seen[-1]}.png")
                wanted = np.asarray(mask.resize((64, 64), Image.Resampling.NEAREST)) - 1
                np.testing.assert_array_equal(batch["masks"][i], wanted)
    assert (len(train), len(val)) == (4, 2)
    assert sorted(seen) == sorted(path.stem for path in (root / "images").iterdir())


@pytest.mark.parametrize("name", PORTS_OF)
def test_they_train_on_data_of_their_own_making(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "loss" in train(name, monkeypatch, capsys)
