"""The native extension's arithmetic of windows is what NumPy code defines."""

import numpy as np
import pytest

from fastfeed.ops import RandomCrop, RandomFlip, RandomResizedCrop
from fastfeed.ops.program import window
from fastfeed.ops.program.window import Step, fold
from fastfeed.runtime.extension import is_built

pytestmark = pytest.mark.skipif(not is_built(), reason="the native extension is not built")

CROPS = [
    RandomResizedCrop(224),
    RandomResizedCrop((96, 7), scale=(0.9, 1), ratio=(3, 4)),
    RandomResizedCrop(8, scale=(0.0001, 0.001), ratio=(0.001, 1000)),
    RandomResizedCrop(5, ratio=(0.2, 0.2)),
]


def sizes_of(rng, n):
    sizes = rng.integers(1, 900, (n, 2))
    sizes[: n // 4] = rng.integers(1, 4, (n // 4, 2))
    sizes[n // 4 : n // 2, 0] *= 20  # no trial fits
    return sizes


def crops(op, u, ratios, sizes):
    """Boxes of RandomResizedCrop, float64 (n, 4), as native code must compute them."""
    height, width = sizes[:, 0].astype(np.float64), sizes[:, 1].astype(np.float64)
    area = (height * width)[:, None] * (op.scale[0] + u[:, :10] * (op.scale[1] - op.scale[0]))
    w, h = np.rint(np.sqrt(area * ratios)), np.rint(np.sqrt(area / ratios))
    fits = (w >= 1) & (h >= 1) & (w <= width[:, None]) & (h <= height[:, None])
    rows, first = np.arange(len(sizes)), fits.argmax(axis=1)
    box_h, box_w = h[rows, first], w[rows, first]
    none = ~fits.any(axis=1)
    box_h[none], box_w[none] = largest(op, height[none], width[none])
    top = np.where(none, np.floor((height - box_h) / 2), np.floor(u[:, 20] * (height - box_h + 1)))
    left = np.where(none, np.floor((width - box_w) / 2), np.floor(u[:, 21] * (width - box_w + 1)))
    return np.stack([top, left, box_h, box_w], axis=1)


def largest(op, height, width):
    low, high = op.ratio
    ratio = width / height
    h = np.where(ratio < low, np.maximum(np.rint(width / low), 1), height)
    w = np.where(ratio > high, np.maximum(np.rint(height * high), 1), width)
    return np.minimum(h, height), np.minimum(w, width)


@pytest.mark.parametrize("op", CROPS, ids=repr)
@pytest.mark.parametrize("n", [0, 1, 4000])
def test_random_resized_crop(op, n):
    rng = np.random.default_rng(n)
    u, sizes = rng.random((n, 22)), sizes_of(rng, n)
    ratios = np.exp(np.log(op.ratio[0]) + u[:, 10:20] * (np.log(op.ratio[1]) - np.log(op.ratio[0])))
    boxes = op.params(u, sizes)["box"]
    assert boxes.dtype == np.float64 and boxes.shape == (n, 4)
    assert np.array_equal(boxes, crops(op, u, ratios, sizes))
    assert n < 4000 or len(np.unique((boxes[:, 2:] == sizes).all(axis=1))) == 2, (
        "some trials fit, and some do not"
    )


def test_fold(monkeypatch):
    rng = np.random.default_rng(5)
    sizes = sizes_of(rng, 500)
    ops = [
        RandomFlip(0.5, "both"),
        RandomResizedCrop(99),
        RandomFlip(),
        RandomCrop((97, 64), padding=(3, 4)),
        RandomFlip(),
    ]
    steps = [Step(op, None, k) for k, op in enumerate(ops)]
    draws = [rng.random((500, op.draws)) for op in ops]
    before = sizes.copy()
    native = fold(steps, draws, sizes)
    assert np.array_equal(sizes, before), "what is given stays as it is"
    monkeypatch.setattr(window, "extension", lambda: None)
    python = fold(steps, draws, sizes)
    for name in ("boxes", "flips", "sizes", "limits"):
        assert np.array_equal(getattr(native, name), getattr(python, name)), name
    assert (native.limits != native.boxes).any()
