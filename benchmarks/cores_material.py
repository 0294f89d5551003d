"""The files and arrays that `bench_cores.py` feeds."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
from PIL import Image
from rounds import DATA

import fastfeed as ff


def photographs(root: Path) -> Path:
    """ImageNet-size files, linked until there are some thousand."""
    if not (root / "photos").exists():
        files = sorted((DATA / "imagenet-sample").glob("*.[jJ]*"))
        (root / "photos" / "a").mkdir(parents=True)
        for copy, file in itertools.product(range(20), files):
            (root / "photos" / "a" / f"{copy:02}{file.name}").symlink_to(file)
    return root / "photos"


def tiny(root: Path) -> Path:
    """12,000 files of 3 kB with the height and width of a photograph: reading them takes little of
    two cores.
    """
    if not (root / "tiny").exists():
        file = io.BytesIO()
        Image.new("RGB", (500, 375), (90, 120, 60)).save(file, "JPEG", quality=30)
        (root / "tiny" / "a").mkdir(parents=True)
        for i in range(12_000):
            (root / "tiny" / "a" / f"{i:05}.jpg").write_bytes(file.getvalue())
    return root / "tiny"


def small_files(root: Path) -> Path:
    """64 x 64 JPEGs cut from photographs."""
    if not (root / "small").exists():
        (root / "small" / "a").mkdir(parents=True)
        for i, path in enumerate(sorted((DATA / "imagenet-sample").glob("*.[jJ]*"))):
            photo = Image.open(path).convert("RGB").resize((64, 64))
            for copy in range(80):
                photo.save(root / "small" / "a" / f"{copy:02}{i:03}.jpg", quality=90)
    return root / "small"


def cifar() -> ff.Arrays:
    """50,000 images of noise, as large as CIFAR's."""
    rng = np.random.default_rng(0)
    return ff.Arrays(
        rng.integers(0, 256, (50_000, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, 50_000)
    )
