"""Any list of ops is refused when a feed is made, with advice, or gives whole batches of any
images.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
from helpers.op_examples import ALL
from helpers.photos import picture
from PIL import Image

from fastfeed.errors import ConfigError
from fastfeed.feed.feed import Feed
from fastfeed.feed.session import FeedSession
from fastfeed.ops import Normalize, RandomResizedCrop, Resize
from fastfeed.sources import Arrays, ImageFolder

SIZES = [(40, 56), (1, 1), (20_000, 1), (2, 300), (57, 31), (128, 128)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Of mixed sizes and kinds, gray and flat ones among them."""
    root = tmp_path_factory.mktemp("mixed")
    for k, (height, width) in enumerate(SIZES):
        pixels = picture(k, (height, width))
        for mode, format in (("RGB", "jpeg"), ("L", "jpeg"), ("RGBA", "png")):
            file = io.BytesIO()
            Image.fromarray(pixels).convert(mode).save(file, format)
            folder = root / f"class{k % 3}"
            folder.mkdir(exist_ok=True)
            (folder / f"{k}{mode}.{format}").write_bytes(file.getvalue())
    return ImageFolder(root)


@pytest.fixture(scope="module")
def sources(files):
    rgb = np.stack([picture(seed, (40, 56)) for seed in range(6)])
    labels, classes = np.arange(6) % 3, ["a", "b", "c"]
    return [
        files,
        Arrays(rgb, labels, classes=classes),
        Arrays(rgb[:, :, :, :1].copy(), labels, classes=classes),
    ]


def chosen(rng: np.random.Generator) -> list:
    """Ops in any order; most lists begin by giving images one size, or none would get far."""
    ops = [ALL[k] for k in rng.integers(0, len(ALL), rng.integers(0, 6))]
    begin = [[Resize((48, 64))], [RandomResizedCrop(40)], []][rng.choice(3, p=[0.6, 0.3, 0.1])]
    end = [Normalize.imagenet()] if rng.random() < 0.4 else []
    return [*begin, *sorted(ops, key=lambda op: op.kind == "mix"), *end]


@pytest.mark.parametrize("seed", range(6))
def test_lists_are_refused_or_work(sources, seed):
    rng = np.random.default_rng(seed)
    worked = 0
    for _ in range(60):
        ops, source = chosen(rng), sources[rng.integers(0, len(sources))]
        try:
            feed = Feed(
                source, ops, batch=3, threads=2, shuffle=bool(rng.random() < 0.5), prefetch=0
            )
        except ConfigError as error:
            assert len(str(error)) > 30 and str(error).count("\n") == 0
            continue
        with feed:
            batch = next(iter(feed))
            assert batch.images.shape == (3, *FeedSession.of(feed).program.shape), ops
            for images in (batch.images, *batch.views):
                assert (
                    str(images.dtype) == FeedSession.of(feed).program.spec.dtype
                    and np.isfinite(images).all()
                ), ops
            assert batch.labels.shape == (
                (3,)
                if FeedSession.of(feed).program.targets is None
                else (3, FeedSession.of(feed).program.targets.classes)
            )
            assert not feed.stats().bad, (ops, feed.stats())
            assert str(feed)
        worked += 1
    assert worked >= 8
