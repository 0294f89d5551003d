"""What the examples of loaders read where they are given no folder. No part of fastfeed's API."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("arch", "bridge", "tower")


def files():
    """Paths and labels of --data FOLDER, which holds a folder per class, or of made images."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    root = parser.parse_args().data or make(Path(tempfile.mkdtemp()))
    classes = sorted(path.name for path in root.iterdir())
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return list(map(str, paths)), [classes.index(path.parent.name) for path in paths]


def make(root, count=20):
    """JPEGs of several sizes in a folder per class; the sixth ends too early."""
    rng = np.random.default_rng(0)
    for i in range(count):
        colors = Image.fromarray(rng.integers(0, 256, (3, 4, 3), np.uint8))
        path = root / CLASSES[i % 3] / f"{i:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        colors.resize((96 + 8 * (i % 4), 72), Image.Resampling.BICUBIC).save(path, quality=92)
        if i == 5:
            path.write_bytes(path.read_bytes()[:400])
    return root
