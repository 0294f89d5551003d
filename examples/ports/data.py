"""Small made data in the forms that the ports read. No part of fastfeed's API."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ("arch", "bridge", "tower")


def options(parser: argparse.ArgumentParser | None = None) -> argparse.Namespace:
    """--data, your own data in the same form, or made data; --steps, of each epoch at most."""
    parser = parser or argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()


def temporary(make, given: Path | None) -> Path:
    """The folder that was given, or a new one that `make` has filled."""
    if given is not None:
        return given
    folder = Path(tempfile.mkdtemp())
    make(folder)
    return folder


def image(seed: int, size: tuple[int, int] = (72, 96)) -> tuple[Image.Image, list[int], int]:
    """A picture (height, width) with one shape on it; its box x, y, width, height; its class."""
    rng = np.random.default_rng(seed)
    height, width = size
    slope = np.linspace(0, 1, width)[None, :, None] * np.linspace(0.3, 1, height)[:, None, None]
    picture = Image.fromarray((slope * rng.uniform(60, 200, 3)).astype(np.uint8))
    kind = seed % len(CLASSES)
    x, y = rng.integers(4, width // 3), rng.integers(4, height // 3)
    box = [int(x), int(y), width // 2, height // 2]
    corners = (x, y, x + box[2] - 1, y + box[3] - 1)
    draw = ImageDraw.Draw(picture)
    shape = (draw.rectangle, draw.ellipse, lambda at, fill: draw.line(at, fill, 5))[kind]
    shape(corners, fill=tuple(map(int, rng.integers(180, 256, 3))))
    return picture, box, kind


def class_folders(root: Path, train: int = 48, val: int = 20) -> None:
    """root/train/CLASS/*.jpg and root/val/CLASS/*.jpg."""
    for part, count in (("train", train), ("val", val)):
        for i in range(count):
            picture, _, kind = image(i if part == "train" else 10_000 + i)
            folder = root / part / CLASSES[kind]
            folder.mkdir(parents=True, exist_ok=True)
            picture.save(folder / f"{i:04}.jpg", quality=92)
