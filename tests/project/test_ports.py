"""Ports of public training programs give the data that the originals give.

The original's data path is built with the original's library where it is installed, else from what
its documentation says, on the same files. Pixels of resized images may differ: see
docs/coming_from.md.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from conftest import ROOT, environment
from helpers.needs import require
from PIL import Image

import fastfeed as ff
from fastfeed.feed.session import FeedSession

pytestmark = pytest.mark.slow

PORTS = ROOT / "examples" / "ports"
NEEDS = {"pytorch_imagenet": ("torch",)}  # packages of each port
MEAN = np.array([0.485, 0.456, 0.406])
STD = np.array([0.229, 0.224, 0.225])


def load(name: str) -> ModuleType:
    """A port as a module; skipped without its packages."""
    require(*NEEDS.get(name, ()))
    for module in ("data", name):
        spec = importlib.util.spec_from_file_location(module, PORTS / f"{module}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    del sys.modules["data"]
    return sys.modules.pop(name)


def made(port: ModuleType, form: str, folder: Path) -> Path:
    """Data of one form, as the port makes it."""
    getattr(port.data, form)(folder)
    return folder


def samples(feed: ff.Feed, root: Path) -> list[tuple[str, int]]:
    """Paths below a folder, and labels, of an epoch in its order; padding is left out."""
    found = []
    source = FeedSession.of(feed).source
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


def center_crop(path: Path, short: int, side: int) -> np.ndarray:
    """Resize the short side, then crop, as torchvision does with Pillow: uint8 HWC."""
    image = Image.open(path).convert("RGB")
    scale = short / min(image.size)
    width, height = (max(short, int(s * scale)) for s in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - side) / 2), round((height - side) / 2)
    return np.asarray(image.crop((left, top, left + side, top + side)))


def assert_close(images: np.ndarray, wanted: np.ndarray, unit: float = 1.0) -> None:
    """Pixels of another library's resizing, on a scale where `unit` is one step of a byte."""
    assert images.shape == wanted.shape
    assert np.abs(images - wanted).mean() < 2 * unit


def test_pytorch_imagenet(tmp_path: Path) -> None:
    port = load("pytorch_imagenet")
    root = made(port, "class_folders", tmp_path)
    train, val = port.feeds(root, batch=8)
    wanted = folder_samples(root / "train")
    assert sorted(samples(train, root / "train")) == wanted[: len(wanted) // 8 * 8]
    images, labels = next(iter(train.to_torch()))
    assert images.shape == (8, 3, 224, 224) and labels.dtype.is_signed

    wanted = folder_samples(root / "val")
    assert samples(val, root / "val") == wanted
    batches = [tuple(map(np.asarray, batch)) for batch in val.to_torch()]
    assert [len(labels) for _, labels in batches] == [8, 8, 4]
    pixels = np.concatenate([images for images, _ in batches]).transpose(0, 2, 3, 1)
    original = [center_crop(root / "val" / name, 256, 224) for name, _ in wanted]
    assert_close(pixels, (np.stack(original) / 255 - MEAN) / STD, 1 / 255 / STD.mean())

    ranks = [port.feeds(root, batch=4, world=ff.World(rank, 2))[0] for rank in range(2)]
    seen = [sample for feed in ranks for sample in samples(feed, root / "train")]
    assert sorted(seen) == folder_samples(root / "train")
    assert len(ranks[0]) == 48 // 8


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_ports_train_on_data_of_their_own_making(name: str, tmp_path: Path) -> None:
    require(*NEEDS[name])
    command = [sys.executable, str(PORTS / f"{name}.py"), "--steps", "2"]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=180, cwd=tmp_path, env=environment()
    )
    assert ended.returncode == 0, ended.stderr
