"""Every simple op against the word of another library, or its formula: photographs, then what is
unusual.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.op_examples import MEANING, SIMPLE
from helpers.opencv_ops.chain import run
from helpers.photos import picture
from PIL import Image

from fastfeed.errors import SpecError
from fastfeed.ops.program.layers import choose, layers
from fastfeed.sampling.rng import uniform
from fastfeed.spec import Spec

PHOTOS = [picture(seed, (56, 72), detail=1 + seed % 4) for seed in range(16)]
NOISY = [
    np.random.default_rng(seed).integers(0, 256, (56, 72, 3), dtype=np.uint8) for seed in range(2)
]
PLAIN = [np.full((56, 72, 3), level, np.uint8) for level in (0, 255)]
# levels, over all images of a test: always a level too dark would be within one. Pillow's warps cut
# where ours round
ON_AVERAGE = {"Affine": 0.6, "Perspective": 0.6, "Rotate": 0.6, "Saturation": 0.3, "Sharpness": 0.3}
UNUSUAL = [(1, 1), (1, 40), (40, 1), (2, 3), (3, 500)]


def changed(op, images, seed=3):
    """By the cpu backend, and the values it was done with."""
    n, size = len(images), np.array(images[0].shape[:2])
    u = uniform(seed, 0, np.arange(n), 0, op.draws)
    what = choose(op, u, np.tile(size, (n, 1)))
    made = []
    for row, image in enumerate(images):
        made.append(run(layers(op), what, row, image.copy()))
    return made, what[0].values[0]


@pytest.mark.parametrize("op", SIMPLE, ids=repr)
def test_means_what_it_says(op):
    check(op, [*PHOTOS, *NOISY, *PLAIN])


@pytest.fixture(scope="module")
def photographs(data):
    """Real ones, ten of them, of one size."""
    files = sorted((data / "imagenet-sample").glob("*.*"))[::14][:10]
    return [np.asarray(Image.open(file).convert("RGB").resize((128, 96))) for file in files]


@pytest.mark.slow  # the test above has pictures
@pytest.mark.parametrize("op", SIMPLE, ids=repr)
def test_means_the_same_on_photographs(op, photographs):
    assert len(photographs) == 10
    check(op, photographs)


def check(op, images):
    meaning = MEANING[type(op)]
    made, values = changed(op, images)
    means = []
    for row, (image, got) in enumerate(zip(images, made, strict=True)):
        want = meaning.oracle(op, values, row, image.copy())
        assert got.shape == want.shape and got.dtype == np.uint8
        apart = np.abs(got.astype(int) - want)
        means.append(apart.mean())
        near = (apart <= meaning.within).mean()
        assert near >= meaning.share, (
            f"{op!r} on image {row}: {apart.max()} levels from {meaning.source}, {near:.2%} within"
            f" {meaning.within}"
        )
    allowed = ON_AVERAGE.get(type(op).__name__, 0.15)
    assert np.mean(means) <= allowed, (
        f"{op!r}: {np.mean(means):.3f} levels from {meaning.source} on average"
    )


@pytest.mark.parametrize("op", SIMPLE, ids=repr)
@pytest.mark.parametrize("channels", [1, 3])
def test_takes_images_of_unusual_shapes(op, channels):
    for size in UNUSUAL:
        images = [
            np.random.default_rng(seed).integers(0, 256, (*size, channels), dtype=np.uint8)
            for seed in range(4)
        ]
        try:
            want = op.out(Spec((*size, channels), "uint8", "HWC")).shape
        except SpecError:
            continue
        for got in changed(op, images)[0]:
            assert got.shape == want and got.dtype == np.uint8
