"""Ports of programs in JAX give the data that the originals give."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from helpers.ports import MEAN, STD, assert_close, center, load, output_of, parsed, short_side
from PIL import Image

import fastfeed as ff

pytestmark = pytest.mark.slow


def test_flax_imagenet(tmp_path: Path) -> None:
    port = load("flax_imagenet")
    port.data.records(tmp_path, ("image", "label"), 0)
    records = {part: parsed(tmp_path, part, "image", "label") for part in ("train", "validation")}
    train, val = port.loaders(*port.feeds(tmp_path))
    batches = list(train)
    assert len(batches) == 48 // 8
    labels = [int(label) for batch in batches for label in batch["label"]]
    assert sorted(labels) == sorted(label for _, label in records["train"])
    assert batches[0]["image"].shape == (8, 64, 64, 3)
    found = [[np.asarray(batch[name]) for name in ("image", "label", "weight")] for batch in val]
    images, labels, weights = map(np.concatenate, zip(*found, strict=True))
    assert images.dtype == np.float32 and len(weights) == 24 and weights.sum() == 20
    assert labels[weights > 0].tolist() == [label for _, label in records["validation"]]
    whole = [
        short_side(io.BytesIO(jpeg), 73, Image.Resampling.BICUBIC)
        for jpeg, _ in records["validation"]
    ]
    pixels = 255 * (images[weights > 0] * STD + MEAN)
    assert_close(pixels, np.stack([center(image, 64) for image in whole]))


def test_flax_imagenet_on_two_ranks(tmp_path: Path) -> None:
    port = load("flax_imagenet")
    port.data.records(tmp_path, ("image", "label"), 0)
    ranks = [port.feeds(tmp_path, batch=4, world=ff.World(rank, 2)) for rank in range(2)]
    assert {len(train) for train, _ in ranks} == {48 // 8}
    assert sum((batch.weights > 0).sum() for _, val in ranks for batch in val) == 20


def test_it_trains_on_data_of_its_own_making(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "loss" in output_of("flax_imagenet", monkeypatch, capsys)
