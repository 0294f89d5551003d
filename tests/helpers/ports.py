"""Ports of public training programs, and how their data is compared with the original's.

The original's data path is built with the original's library where it is installed, else with
Pillow from what its documentation says, on the same files. Pixels of resized images may differ by
little: see docs/coming_from.md.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from PIL import Image

import fastfeed as ff
from fastfeed.feed.session import FeedSession
from helpers.needs import require

PORTS = ROOT / "examples" / "ports"
HELPERS = {"data", "torch_steps", "transformers_steps"}
NEEDS = {  # packages of each port
    "diffusers_text_to_image": ("torch",),
    "diffusers_unconditional": ("torch",),
    "diffusers_sdxl": ("torch",),
    "ffcv_cifar": ("torch",),
    "flax_imagenet": ("jax", "tensorflow"),
    "horovod_keras_resnet50": ("keras", "tensorflow"),
    "kaggle_cassava": ("torch",),
    "keras_age": ("keras", "tensorflow"),
    "keras_age_gender": ("keras", "tensorflow"),
    "keras_autoencoder": ("keras", "tensorflow"),
    "keras_captcha": ("keras", "tensorflow"),
    "keras_from_scratch": ("keras", "tensorflow"),
    "keras_pets": ("keras", "tensorflow"),
    "mosaic_cifar": ("torch",),
    "open_clip_train": ("torch",),
    "pml_triplet": ("torch",),
    "pytorch_imagenet": ("torch",),
    "pytorch_siamese": ("torch",),
    "tensorflow_resnet": ("keras", "tensorflow"),
    "timm_train": ("torch",),
    "torchvision_classification": ("torch",),
    "torchvision_detection": ("torch",),
    "torchvision_keypoints": ("torch",),
    "torchvision_masks": ("torch",),
    "torchvision_segmentation": ("torch",),
    "transformers_classification": ("torch", "transformers"),
    "transformers_segmentation": ("torch", "transformers"),
}
MEAN = np.array([0.485, 0.456, 0.406])
STD = np.array([0.229, 0.224, 0.225])


def load(name: str) -> ModuleType:
    """A port as a module; skipped without its packages."""
    require(*NEEDS[name])
    sys.path.insert(0, str(PORTS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(PORTS))
        for each in (*HELPERS, *NEEDS):
            sys.modules.pop(each, None)


def output_of(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """The output of two steps of a port's `main` on data of its own making."""
    port = load(name)
    monkeypatch.setattr(sys, "argv", [name, "--steps", "2"])
    port.main()
    return capsys.readouterr().out


def made(port: ModuleType, form: str, folder: Path) -> Path:
    """Data of one form, as the port makes it."""
    getattr(port.data, form)(folder)
    return folder


def samples(feed: ff.Feed, root: Path) -> list[tuple[str, Any]]:
    """Paths below a folder, and labels, of an epoch in its order; padding is left out."""
    found: list[tuple[str, Any]] = []
    source: Any = FeedSession.of(feed).source
    for batch in feed:
        own = batch.weights > 0
        paths = [Path(uri).relative_to(root) for uri in source.uris(batch.ids[own])]
        found += zip(map(str, paths), batch.labels[own].tolist(), strict=True)
    return found


def folder_samples(root: Path) -> list[tuple[str, int]]:
    """Files below folders of classes and their labels, sorted, as torchvision's ImageFolder."""
    classes = sorted(path.name for path in root.iterdir())
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return [(str(path.relative_to(root)), classes.index(path.parent.name)) for path in files]


def parsed(root: Path, part: str, image: str, label: str) -> list[tuple[bytes, int]]:
    """Bytes and labels of TFRecords, file by file, as tf.data reads them."""
    import tensorflow as tf

    features = {
        image: tf.io.FixedLenFeature([], tf.string),
        label: tf.io.FixedLenFeature([], tf.int64),
    }
    files = [str(path) for path in sorted(root.glob(f"{part}-*"))]
    rows = tf.data.TFRecordDataset(files).map(lambda x: tf.io.parse_single_example(x, features))
    return [(row[image].numpy(), int(row[label])) for row in rows]


def short_side(path: Any, side: int, filter: Any = Image.Resampling.BILINEAR) -> Image.Image:
    """An image whose short side is scaled to `side`, as torchvision's Resize does with Pillow."""
    image = Image.open(path).convert("RGB")
    width, height = (max(side, int(side * s / min(image.size))) for s in image.size)
    return image.resize((width, height), filter)


def resized(path: Path, size: tuple[int, int]) -> np.ndarray:
    """An image of exactly (height, width), antialiased: uint8 (height, width, 3)."""
    image = Image.open(path).convert("RGB")
    return np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR))


def center(image: Image.Image, side: int) -> np.ndarray:
    """The middle of an image: uint8 (side, side, 3)."""
    left, top = (round((length - side) / 2) for length in image.size)
    return np.asarray(image.crop((left, top, left + side, top + side)))


def assert_close(images: np.ndarray, wanted: np.ndarray) -> None:
    """Pixels of another library's resizing, on the scale of bytes."""
    assert images.shape == wanted.shape
    assert np.abs(images.astype(float) - wanted).mean() < 2


def as_bytes(images: Any, mean: Any = MEAN, std: Any = STD) -> np.ndarray:
    """Normalized CHW images on the scale of bytes, HWC."""
    return 255 * (np.asarray(images).transpose(0, 2, 3, 1) * std + mean)


def assert_validates(val: ff.Feed, root: Path, wanted: np.ndarray) -> None:
    """All files in order, with the last batch cut, and these pixels."""
    files = folder_samples(root)
    assert samples(val, root) == files
    batches = [tuple(map(np.asarray, batch)) for batch in val.to_torch()]
    assert sum(len(labels) for _, labels in batches) == len(files)
    assert len(batches) == len(val) == -(-len(files) // val.plan.batch)
    assert_close(np.concatenate([as_bytes(images) for images, _ in batches]), wanted)
