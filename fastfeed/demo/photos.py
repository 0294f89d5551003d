"""Stock-like images of landmarks, the same every time; classes differ only in the landmark."""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fastfeed.demo.landmarks import (
    HOURS,
    LANDMARKS,
    LANDS,
    Scene,
    gray_to_rgb,
    noise,
    paint_land,
    paint_sky,
    paint_water,
)

VERSION = 2
SEED = 20240607
NOTE = "PHOTOS.json"
# (width, height), all over 1.5 MP
SIZES = ((1536, 1024), (1024, 1536), (1600, 1067), (1080, 1440), (2048, 1365))


@dataclass(frozen=True, slots=True)
class MadePhotos:
    """The generated photographs, and the files that were broken on purpose."""

    root: Path
    classes: tuple[str, ...]
    images: int  # photographs that decode; the broken files come on top
    broken: tuple[Path, ...]


def photograph(split: str, name: str, index: int, shrink: int = 1) -> bytes:
    """One JPEG; the same arguments always give the same bytes."""
    rng = np.random.Generator(
        np.random.PCG64([SEED, split == "val", list(LANDMARKS).index(name), index])
    )
    w, h = (side // shrink for side in SIZES[rng.integers(len(SIZES))])
    hour = int(rng.integers(len(HOURS)))
    sun = rng.uniform(-1, 1)
    horizon = int(h * rng.uniform(0.55, 0.74))
    wet = rng.random() < 0.4
    color = np.asarray(LANDS[rng.integers(5)])
    grain = np.tile(1 + 0.08 * noise(rng, (512, 512), 64, 4, 1.0), (h // 512 + 1, w // 512 + 1))[
        :h, :w
    ]
    s = Scene(
        paint_sky(rng, (h, w), horizon, hour, sun),
        grain,
        rng,
        float(np.copysign(0.5 + abs(sun) / 2, sun)),
        hour,
    )
    paint_land(s, horizon, color)
    foot = horizon + h * (0.01 if wet else rng.uniform(0.01, 0.09))
    LANDMARKS[name](
        s, w * rng.uniform(0.3, 0.7), foot, min(h * 0.62, w * 0.8) * rng.uniform(0.6, 1.0)
    )
    # grass
    s.line(
        np.arange(w),
        foot - h * 0.003 * (1 + noise(rng, (2, w), 150, 3, 0.7)[0]),
        h * 0.02,
        color * 0.85,
    )
    if wet:
        paint_water(s, int(foot + h * 0.015))
    return develop(s.pixels, rng)


def develop(pixels: np.ndarray, rng: np.random.Generator) -> bytes:
    """Apply tilt, vignette, exposure, noise, and an EXIF orientation, as a camera does."""
    h, w = pixels.shape[:2]
    frame = np.asarray(_tilted(pixels, rng.normal(0, 0.9)), np.float32)
    y = np.linspace(-1, 1, h, dtype=np.float32)[:, None]
    x = np.linspace(-1, 1, w, dtype=np.float32)
    gain = (1 - rng.uniform(0.02, 0.2) * (x * x + y * y)) * rng.uniform(0.8, 1.0)
    grit = rng.standard_normal((256, w), np.float32) * rng.uniform(3, 6.5)
    grit = np.tile(grit, (h // 256 + 1, 1))[:h]
    frame = frame * gray_to_rgb(gain.astype(np.float32))
    frame += gray_to_rgb(grit + np.float32(0.5))
    image = Image.fromarray(frame.clip(0, 255, out=frame).astype(np.uint8))
    kind = rng.random()
    turned = int(rng.choice((1, 6, 8, 3), p=(0.8, 0.08, 0.07, 0.05)))
    exif = Image.Exif()
    out = io.BytesIO()
    exif[0x0112] = turned  # how a viewer must turn it; the pixels are stored turned the other way
    image = image.rotate({1: 0, 6: 90, 8: 270, 3: 180}[turned], expand=True).convert(
        "L" if kind < 0.04 else "RGB"
    )
    image.save(
        out, "JPEG", quality=int(rng.integers(84, 93)), exif=exif, progressive=bool(kind > 0.93)
    )
    return out.getvalue()


def _tilted(pixels: np.ndarray, degrees: float) -> Image.Image:
    """The scene as bytes, turned about its middle and enlarged until no corner is empty."""
    height, width = pixels.shape[:2]
    angle = math.radians(degrees)
    longer = max(height, width) / min(height, width)
    zoom = max(1.06, math.cos(angle) + longer * abs(math.sin(angle)))
    a = math.cos(angle) / zoom
    b = math.sin(angle) / zoom
    matrix = (
        a,
        -b,
        (width - a * width + b * height) / 2,
        b,
        a,
        (height - b * width - a * height) / 2,
    )
    frame = Image.fromarray((pixels * 285).clip(0, 255).astype(np.uint8))
    size = (width, height)
    return frame.transform(size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def spoiled(good: bytes) -> tuple[bytes, ...]:
    """Six bad files: half, empty, a web page, only a header, noise, and 65500 x 65500."""
    frame, junk = good.index(b"\xff\xc0"), np.random.Generator(np.random.PCG64(SEED)).bytes(60_000)
    huge = good[: frame + 5] + (65500).to_bytes(2, "big") * 2 + good[frame + 9 :]
    return (
        good[: len(good) // 2],
        b"",
        b"<!DOCTYPE html>",
        good[: frame + 2],
        b"\xff\xd8" + junk,
        huge,
    )


def make_photos(
    root: Path,
    train_per_class: int = 40,
    val_per_class: int = 10,
    progress: Callable[[int, int], None] | None = None,
    shrink: int = 1,
) -> MadePhotos:
    """Generate `root`/train/<class>/NNN.jpg and `root`/val/<class>/NNN.jpg once.

    `shrink` divides their sides, and its square the time that they take.
    """
    root = Path(root)
    names = tuple(LANDMARKS)
    count = {"train": train_per_class, "val": val_per_class}
    partial = root.with_name(root.name + ".partial")
    bad = [f"train/{names[i % 5]}/{train_per_class + i // 5:03d}.jpg" for i in range(6)]
    about = {"version": VERSION, "seed": SEED, "per_class": count, "broken": bad}
    note = json.dumps(about | ({"shrink": shrink} if shrink > 1 else {}), indent=1)
    photos = MadePhotos(
        root, names, len(names) * sum(count.values()), tuple(root / path for path in bad)
    )
    if (root / NOTE).is_file() and (root / NOTE).read_text() == note:
        return photos
    for taken in (root, partial):
        if taken.exists() and not (taken is partial and (partial / NOTE).is_file()):
            raise FileExistsError(
                f"{taken} exists and holds something else; remove it or choose another folder"
            )
    shutil.rmtree(partial, ignore_errors=True)  # left by a run that was stopped
    for folder in [partial / split / name for split in count for name in names]:
        folder.mkdir(parents=True)
    (partial / NOTE).write_text(note)
    todo = [(split, name, i) for split in count for name in names for i in range(count[split])]
    with ThreadPoolExecutor() as pool:
        for done, (split, name, i, photo) in enumerate(
            pool.map(lambda job: (*job, photograph(*job, shrink=shrink)), todo), 1
        ):
            (partial / split / name / f"{i:03d}.jpg").write_bytes(photo)
            if progress:
                progress(done, len(todo))
    for path, data in zip(bad, spoiled(photograph("train", names[0], 0, shrink)), strict=True):
        (partial / path).write_bytes(data)
    partial.rename(root)  # only now are they complete
    return photos
