"""Stock-like images of landmarks, the same every time; classes differ only in the landmark."""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

VERSION = 3
SEED = 20240607
NOTE = "PHOTOS.json"
# (width, height), all over 1.5 MP
SIZES = ((1536, 1024), (1024, 1536), (1600, 1067), (1080, 1440), (2048, 1365))
Color = Sequence[float] | np.ndarray  # RGB in [0, 1]
# colors of the sky at the top, at the horizon, and of the light
HOURS = (
    ((0.16, 0.38, 0.72), (0.72, 0.84, 0.92), (1.00, 1.00, 1.00)),  # noon
    ((0.36, 0.47, 0.66), (0.98, 0.80, 0.55), (1.08, 0.86, 0.68)),  # golden hour
    ((0.24, 0.22, 0.40), (0.93, 0.58, 0.46), (0.74, 0.54, 0.50)),  # dusk
    ((0.64, 0.70, 0.74), (0.90, 0.89, 0.86), (0.84, 0.84, 0.84)),  # mist
    ((0.07, 0.12, 0.27), (0.42, 0.49, 0.65), (0.42, 0.45, 0.58)),  # blue hour
)
LANDS = (
    (0.30, 0.39, 0.17),
    (0.44, 0.44, 0.24),
    (0.78, 0.67, 0.49),
    (0.45, 0.42, 0.38),
    (0.84, 0.87, 0.91),
)


@dataclass(frozen=True, slots=True)
class DemoPhotos:
    """The generated photographs, and the files that were broken on purpose."""

    root: Path
    classes: tuple[str, ...]
    images: int  # photographs that decode; the broken files come on top
    broken: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """A canvas and its light: all that is needed to draw a landmark into it."""

    draw: ImageDraw.ImageDraw
    rng: np.random.Generator
    light: np.ndarray  # RGB factors
    is_sun_left: bool

    def polygon(self, points: Sequence[tuple[float, float]], color: Color, shade: float) -> None:
        """Fill a polygon of (x, y) pixels; `shade` is the share of light that it reflects."""
        rgb = (np.asarray(color) * self.light * shade * 255).clip(0, 255)
        self.draw.polygon(points, fill=tuple(map(int, rgb)))

    def trapezoid(
        self, x: float, top: float, low: float, widths: tuple[float, float], color: Color
    ) -> None:
        """Fill an upright shape around x, as wide as `widths` at its top and its foot.

        A third of it is in the shade.
        """
        a = widths[0] / 2
        b = widths[1] / 2
        self.polygon([(x - a, top), (x + a, top), (x + b, low), (x - b, low)], color, 1.0)
        a = a / 3
        b = b / 3
        side = 1 if self.is_sun_left else -1
        shade = [(x + side * a, top), (x + side * 3 * a, top)]
        self.polygon([*shade, (x + side * 3 * b, low), (x + side * b, low)], color, 0.6)

    def windows(self, x: float, top: float, low: float, width: float, columns: int) -> None:
        """Draw a grid of windows on a wall around x, some of them lit."""
        step = width / columns
        for y in np.arange(top + step * 0.6, low - step * 0.8, step * 1.4):
            for left in np.arange(x - width / 2 + step / 4, x + width / 2 - step * 0.6, step):
                pane = (0.24, 0.28, 0.33) if self.rng.random() < 0.8 else (1.3, 1.15, 0.85)
                right = left + step * 0.55
                bottom = y + step * 0.8
                corners = [(left, y), (right, y), (right, bottom), (left, bottom)]
                self.polygon(corners, pane, 1.0)


def photograph(split: str, name: str, index: int, shrink: int = 1) -> bytes:
    """One JPEG; the same arguments always give the same bytes."""
    seed = [SEED, split == "val", list(LANDMARKS).index(name), index]
    rng = np.random.Generator(np.random.PCG64(seed))
    w, h = (side // shrink for side in SIZES[rng.integers(len(SIZES))])
    sky, haze, light = np.asarray(HOURS[rng.integers(len(HOURS))], np.float32)
    horizon = int(h * rng.uniform(0.55, 0.74))
    land = np.asarray(LANDS[rng.integers(len(LANDS))], np.float32)
    down = np.linspace(0, 1, horizon, dtype=np.float32)[:, None, None] ** rng.uniform(0.8, 1.8)
    clouds = (noise(rng, (horizon, w), 6, 6) - rng.uniform(-0.3, 1.6)).clip(0, 1)[..., None]
    air = sky + (haze - sky) * down
    air = air + (np.float32(0.95) * light - air) * clouds * np.float32(0.7)
    near = np.linspace(0.35, 1, h - horizon, dtype=np.float32)[:, None, None]
    soil = 1 + 0.16 * noise(rng, (h - horizon, w), 60, 5)[..., None]
    ground = haze + (land * light * soil - haze) * near
    pixels = np.concatenate([air, ground]) * 255
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    scene = Scene(ImageDraw.Draw(image), rng, light, bool(rng.random() < 0.5))
    foot = horizon + h * rng.uniform(0.01, 0.09)
    size = min(h * 0.62, w * 0.8) * rng.uniform(0.6, 1.0)
    LANDMARKS[name](scene, w * rng.uniform(0.3, 0.7), foot, size)
    return develop(image, rng)


def noise(
    rng: np.random.Generator, shape: tuple[int, int], cells: float, octaves: int
) -> np.ndarray:
    """Fractal noise, float32 (h, w), mean 0, deviation about 1; `cells` along the longer side."""
    total = np.zeros(shape, np.float32)
    for octave in range(octaves):
        grid = [max(2, round(n * cells * 2**octave / max(shape))) for n in shape]
        coarse = Image.fromarray(rng.standard_normal(grid, np.float32))
        fine = coarse.resize(shape[::-1], Image.Resampling.BICUBIC)
        total += np.asarray(fine) * np.float32(0.55**octave)
    return total


def bridge(s: Scene, x: float, y: float, size: float) -> None:
    """A suspension bridge right across the picture."""
    half = size * s.rng.uniform(0.5, 0.75)
    tint = ((0.70, 0.25, 0.17), (0.42, 0.47, 0.50), (0.66, 0.68, 0.66))[s.rng.integers(3)]
    road = y - size * s.rng.uniform(0.22, 0.34)
    high = size * s.rng.uniform(0.5, 0.66)
    thick = size * 0.02
    along = x + np.linspace(-4 * half, 4 * half, 320)
    # hangs from tower to tower
    cable = road - high * (0.06 + 0.92 * (((along - x) / half + 1) % 2 - 1) ** 2)
    for at, top in zip(along, cable, strict=True):
        s.trapezoid(at, top, road, (thick * 0.2, thick * 0.2), tint)
        s.trapezoid(at, top, top + thick, (half / 38, half / 38), tint)
    for foot in x + half * np.array([-3, -1, 1, 3]):
        for leg in (-1.6, 1.6):
            s.trapezoid(foot + leg * thick, road - high, y, (thick * 1.4, thick * 1.4), tint)
        for up in (0.94, 0.6, 0.27, -0.15):
            at = road - high * up
            s.trapezoid(foot, at, at + thick * 1.3, (thick * 4, thick * 4), tint)
    s.trapezoid(x, road, road + thick * 2, (half * 8, half * 8), tint)


def dome(s: Scene, x: float, y: float, size: float) -> None:
    """A hall with one or three domes, round or pointed."""
    wall = np.array((0.86, 0.80, 0.72)) * s.rng.uniform(0.8, 1.08)
    roofs = ((0.35, 0.55, 0.48), (0.80, 0.62, 0.25), (0.52, 0.56, 0.62), (0.62, 0.36, 0.26))
    roof = roofs[s.rng.integers(4)]
    half = size * s.rng.uniform(0.38, 0.7)
    eaves = y - size * s.rng.uniform(0.24, 0.34)
    onion = s.rng.choice((0.0, 0.14))
    turn = np.linspace(0, math.pi / 2, 24)
    for out, share in ((0.0, 1.0), (-0.72, 0.42), (0.72, 0.42))[: s.rng.choice((1, 3))]:
        at = x + out * half
        r = share * size * 0.21
        across = r * (np.sin(turn) + onion * np.sin(2 * turn))
        up = eaves - r * (0.1 + 1.2 * np.cos(turn))
        for k in range(len(turn) - 1):
            s.trapezoid(at, up[k], up[k + 1] + 1, (2 * across[k], 2 * across[k + 1]), roof)
        s.trapezoid(at, eaves - r * 1.9, eaves - r * 1.25, (0, r * 0.24), wall)
    s.trapezoid(x, eaves, y, (half * 2, half * 2), wall)
    s.windows(x, eaves, y, half * 2, int(s.rng.integers(9, 16)))


def lighthouse(s: Scene, x: float, y: float, size: float) -> None:
    """A tapered tower, plain or banded, with a gallery, a lantern and a cap."""
    tints = ((0.72, 0.16, 0.13), (0.15, 0.16, 0.18), (0.20, 0.33, 0.55), (0.90, 0.88, 0.84))
    tint = tints[s.rng.integers(4)]
    wide = size * s.rng.uniform(0.18, 0.26)
    deck = y - size * 0.79
    edges = np.linspace(deck, y, s.rng.integers(4, 9))
    widths = np.linspace(wide * 0.6, wide, len(edges))
    for k in range(len(edges) - 1):
        color = (0.92, 0.91, 0.88) if k % 2 else tint
        s.trapezoid(x, edges[k], edges[k + 1], (widths[k], widths[k + 1]), color)
    s.trapezoid(x, y - size * 0.9, deck, (wide * 0.42, wide * 0.42), (1.3, 1.2, 0.8))
    s.trapezoid(x, deck - size * 0.015, deck + size * 0.015, (wide, wide * 0.7), (0.2, 0.2, 0.22))
    s.trapezoid(x, y - size, y - size * 0.89, (0, wide * 0.52), tint)


def pyramid(s: Scene, x: float, y: float, size: float) -> None:
    """One to three pyramids, smooth or in steps, with a sunny and a shaded face."""
    steps = int(s.rng.choice((1, 7, 30)))
    for out, share in ((-0.8, 0.4), (0.7, 0.3), (0.0, 0.75))[s.rng.integers(3) :]:
        high = share * size * s.rng.uniform(0.85, 1.1)
        wide = high * s.rng.uniform(1.4, 1.9)
        for k in range(steps):
            below = 1 - k / steps
            above = 1 - (k + (0.5 if steps == 7 else 1)) / steps
            top = y - high * (k + 1) / steps
            stone = np.array((0.74, 0.62, 0.44)) * s.rng.uniform(0.85, 1.05)
            widths = (wide * above, wide * below)
            s.trapezoid(x + out * size, top, y - high * k / steps, widths, stone)


def skyline(s: Scene, x: float, y: float, size: float) -> None:
    """A cluster of towers, the tall ones at the back."""
    for near in np.linspace(0, 1, int(s.rng.integers(6, 14))):
        high = size * s.rng.uniform(0.4, 1.0) * (1 - 0.45 * near)
        wide = size * s.rng.uniform(0.10, 0.18)
        at = x + size * s.rng.normal(0, 0.38)
        wall = np.array((0.55, 0.56, 0.58)) * s.rng.uniform(0.5, 1.3)
        s.trapezoid(at, y - high, y, (wide, wide), wall)
        s.windows(at, y - high, y, wide, 6)


LANDMARKS = {draw.__name__: draw for draw in (bridge, dome, lighthouse, pyramid, skyline)}


def develop(scene: Image.Image, rng: np.random.Generator) -> bytes:
    """Apply tilt, vignette, exposure, noise, and an EXIF orientation, as a camera does."""
    w, h = scene.size
    frame = np.asarray(_tilted(scene, rng.normal(0, 0.9)), np.float32)
    y = np.linspace(-1, 1, h, dtype=np.float32)[:, None]
    x = np.linspace(-1, 1, w, dtype=np.float32)
    gain = (1 - rng.uniform(0.02, 0.2) * (x * x + y * y)) * rng.uniform(0.8, 1.0)
    grit = rng.standard_normal((256, w), np.float32) * rng.uniform(3, 6.5)
    grit = np.tile(grit, (h // 256 + 1, 1))[:h]
    frame = frame * gain[..., None].astype(np.float32) + grit[..., None] + np.float32(0.5)
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


def _tilted(scene: Image.Image, degrees: float) -> Image.Image:
    """The scene turned about its middle and enlarged until no corner is empty."""
    longer = max(scene.size) / min(scene.size)
    angle = math.radians(degrees)
    zoom = max(1.06, math.cos(angle) + longer * abs(math.sin(angle)))
    width, height = scene.size
    a = math.cos(angle) / zoom
    b = math.sin(angle) / zoom
    across = (width - a * width + b * height) / 2
    down = (height - b * width - a * height) / 2
    matrix = (a, -b, across, b, a, down)
    return scene.transform(scene.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def spoiled(good: bytes) -> tuple[bytes, ...]:
    """Six bad files: half, empty, a web page, only a header, noise, and 65500 x 65500."""
    frame = good.index(b"\xff\xc0")
    junk = np.random.Generator(np.random.PCG64(SEED)).bytes(60_000)
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
) -> DemoPhotos:
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
    photos = DemoPhotos(
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
