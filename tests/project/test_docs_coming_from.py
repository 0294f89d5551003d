"""The page for those who come from another library: what it equates is the same, by numbers."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.needs import needs

import fastfeed as ff
from fastfeed.ops import OPS

PAGE = (Path(__file__).parents[2] / "docs" / "coming_from.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "you write" not in line]
WRITTEN = sorted(
    {
        code
        for row in ROWS
        for code in re.findall(
            r"ff\.\w+(?:\.imagenet)?\([^()]*(?:\([^()]*\)[^()]*)*\)", row.split(" | ")[1]
        )
        if code[3:].partition("(")[0].partition(".")[0]
        in {kind.__name__ for kind in OPS} - {"Function", "Map"}
    }
)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = {"size": 224, "scale": (0.08, 1.0), "ratio": (3 / 4, 4 / 3)}
# the defaults of the peer in that row, from its reference: torchvision 0.27, Keras 3.15, DALI 2.1
SAME: dict[str, dict[str, Any]] = {
    "ff.RandomResizedCrop(224)": CROP,  # also DALI's random_area and random_aspect_ratio
    "ff.RandomFlip()": {"p": 0.5, "direction": "horizontal"},
    'ff.RandomFlip(direction="both")': {
        "p": 0.5,
        "direction": "both",
    },  # Keras: "horizontal_and_vertical"
    "ff.Normalize.imagenet()": {"mean": MEAN, "std": STD},
    "ff.Normalize((0.5,) * 3, (0.5,) * 3)": {"mean": (0.5,) * 3, "std": (0.5,) * 3},
    "ff.Normalize((103.939 / 255, 116.779 / 255, 123.68 / 255), (1 / 255,) * 3)": {
        "mean": tuple(x / 255 for x in (103.939, 116.779, 123.68)),
        "std": (1 / 255,) * 3,
    },
    'ff.ToLayout("CHW")': {"layout": "CHW"},
    "ff.RandAugment()": {
        "num_ops": 2,
        "magnitude": 9,
        "bins": 31,
        "filter": "nearest",
        "fill": (0, 0, 0),
    },
    'ff.RandomResizedCrop(224, filter="bicubic")': CROP | {"filter": "bicubic"},
    'ff.RandomResizedCrop(224, filter=("bilinear", "bicubic"))': CROP  # _RANDOM_INTERPOLATION
    | {"filter": ("bilinear", "bicubic")},
    "ff.ColorJitter(0.4, 0.4, 0.4)": {"brightness": 0.4, "hue": 0.0},
    'ff.RandomErasing(0.25, (0.02, 1 / 3), (0.3, 1 / 0.3), "noise")': {
        "p": 0.25,
        "scale": (0.02, 1 / 3),
        "ratio": (0.3, 1 / 0.3),
    },
    'ff.Resize(256, filter="bicubic")': {"size": int(224 / 0.875), "filter": "bicubic"},
    "ff.CenterCrop(224)": {"size": 224},
    'ff.RandomChoice([ff.MixUp(0.8), ff.CutMix(1.0)], per="batch")': {
        "per": "batch",
        "weights": None,
    },
    "ff.LabelSmoothing(0.1)": {"smoothing": 0.1},
    "ff.RandomErasing(0.1, fill=(124, 116, 104))": {
        "p": 0.1,
        "scale": (0.02, 0.33),
        "ratio": (0.3, 3.3),
    },
    'ff.Resize((224, 224), fit="crop")': {"size": (224, 224), "fit": "crop"},
    "ff.Resize((224, 224))": {"size": (224, 224), "filter": "bilinear"},
    'ff.Rotate(36, border="symmetric")': {
        "degrees": 0.1 * 360,
        "filter": "bilinear",
        "border": "symmetric",  # Keras: "reflect", with the edge twice
    },
    "ff.Grayscale()": {},
    "ff.ToBGR()": {},
}


def pixels(images: np.ndarray, *ops: Any) -> np.ndarray:
    with ff.Feed(ff.Arrays(images), list(ops), batch=len(images), shuffle=False, threads=1) as feed:
        return next(iter(feed)).images


def test_every_op_of_the_page_is_compared():
    assert sorted(SAME) == WRITTEN


@pytest.mark.parametrize("code", SAME)
def test_its_fields_are_the_peers_defaults(code):
    op = eval(code, {"ff": ff})
    fields = {field.name: getattr(op, field.name) for field in dataclasses.fields(op)}
    for name, value in SAME[code].items():
        assert fields[name] == (pytest.approx(value) if not isinstance(value, str) else value), name


def test_to_tensor_and_normalize():
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    want = (images.transpose(0, 3, 1, 2) / 255 - np.reshape(MEAN, (3, 1, 1))) / np.reshape(
        STD, (3, 1, 1)
    )
    np.testing.assert_allclose(
        pixels(images, ff.Normalize.imagenet(), ff.ToLayout("CHW")), want, atol=1e-5
    )


def test_what_is_erased_is_the_mean_of_normalize():
    """torchvision sets it to 0 after Normalize."""
    (row,) = [row for row in ROWS if "RandomErasing(0.1)" in row]
    (code,) = re.findall(r"ff\.RandomErasing\(.*?\)\)", row)
    white = np.full((8, 32, 32, 3), 255, np.uint8)
    erased = pixels(
        white, dataclasses.replace(eval(code, {"ff": ff}), p=1.0), ff.Normalize.imagenet()
    )
    kept = pixels(white, ff.Normalize.imagenet())
    hidden = erased != kept
    assert 0.02 < hidden.mean() < 0.4
    assert np.abs(erased[hidden]).max() < 0.5 / 255 / min(STD) + 1e-6, (
        "0, but for the rounding of a byte"
    )


def test_flips_of_half_of_the_images():
    ramp = np.broadcast_to(np.arange(8, dtype=np.uint8)[:, None] * 8, (400, 8, 8, 3)).copy()
    flipped = pixels(ramp, ff.RandomFlip())
    sides = flipped[:, 0, 0, 0] > flipped[:, 0, -1, 0]
    assert 150 < np.count_nonzero(sides) < 250


KERAS = """
import json, os, sys
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy as np
image = np.load(sys.argv[1])
layers = keras.layers
turn = layers.RandomRotation((0.1, 0.1), fill_mode="constant", interpolation="bilinear")
print(json.dumps({
    "flip": layers.RandomFlip().mode, "fill": layers.RandomRotation(0.1).fill_mode,
    "turned": np.asarray(turn(image[None].astype("float32"), training=True))[0].tolist(),
}))
"""


@pytest.mark.slow
@needs("keras", "jax")
def test_keras_layers(tmp_path):
    y, x = np.mgrid[:48, :48]
    image = np.stack([x * 5, y * 5, (x + y) * 2], 2).astype(np.uint8)
    np.save(tmp_path / "image.npy", image)
    command = [sys.executable, "-W", "ignore", "-c", KERAS, str(tmp_path / "image.npy")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    keras = json.loads(done.stdout.splitlines()[-1])
    assert keras["flip"] == "horizontal_and_vertical"
    assert keras["fill"] == "reflect", "as the page says"
    turned = np.array(keras["turned"])
    ours = [
        pixels(image[None], ff.Rotate((angle, angle)))[0].astype(float) for angle in (36.0, -36.0)
    ]
    middle = slice(16, 32)
    assert min(np.abs(one - turned)[middle, middle].max() for one in ours) <= 2
    assert turned[0, 0].max() == 0 == ours[0][0, 0].max() == ours[1][0, 0].max()
