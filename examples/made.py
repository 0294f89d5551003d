"""What the examples train on where they are given no folder. No part of fastfeed's API."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import numpy as np

import fastfeed as ff

ROOT = Path(".fastfeed-demo/example-photos")


def photographs(folder: str | None) -> Path:
    """Your folder with train/<class>/ and val/<class>/, or one of 160 made photographs of five
    landmarks.
    """
    if folder is not None:
        return Path(folder)
    ROOT.parent.mkdir(parents=True, exist_ok=True)
    with open(ROOT.with_name("lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of the processes makes them
        if not ROOT.is_dir():
            make(ROOT)
    return ROOT


def make(root: Path) -> None:
    """Photographs of the demo, six of them broken on purpose, in a size that suits small models."""
    from fastfeed.decode import Recoder
    from fastfeed.demo.photos import make_photos

    full, partial = root.with_name(root.name + ".full"), root.with_name(root.name + ".partial")
    made = make_photos(full, train_per_class=24, val_per_class=8, shrink=4)
    shutil.copytree(full, partial, dirs_exist_ok=True)
    photos = sorted(
        set(partial.rglob("*.jpg")) - {partial / path.relative_to(full) for path in made.broken}
    )
    smaller = Recoder([ff.Resize(192)], quality=90)([path.read_bytes() for path in photos])
    for path, data in zip(photos, smaller, strict=True):
        path.write_bytes(data)
    partial.rename(root)
    shutil.rmtree(full)


def pictures(count: int, seed: int) -> ff.Arrays:
    """Ten classes of the shape of CIFAR-10: waves of a class's own direction, in any color and
    phase, and noise.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    angle = (labels * np.pi / 10)[:, None, None, None]
    side = np.linspace(-6, 6, 32)
    along = np.cos(angle) * side[:, None] + np.sin(angle) * side[:, None, None]
    waves = np.sin(along + rng.uniform(0, 6.3, (count, 1, 1, 1))) * rng.uniform(
        20, 60, (count, 1, 1, 3)
    )
    pixels = 128 + waves + rng.normal(0, 30, (count, 32, 32, 3))
    return ff.Arrays(pixels.clip(0, 255).astype(np.uint8), labels)
