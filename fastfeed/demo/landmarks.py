"""Landmarks for the demo's images, and light and land around them, painted with polygons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

Color = Sequence[float] | Sequence[Sequence[float]] | np.ndarray
# RGB in [0, 1] of the sky at the top, at the horizon, sunlight, light from the sky; share of lit
# windows, haze
HOURS = (
    # noon
    ((0.16, 0.38, 0.72), (0.72, 0.84, 0.92), (0.62, 0.58, 0.50), (0.44, 0.48, 0.54), 0.0, 0.08),
    # golden hour
    ((0.36, 0.47, 0.66), (0.98, 0.80, 0.55), (0.72, 0.50, 0.28), (0.38, 0.37, 0.40), 0.1, 0.14),
    # dusk
    ((0.24, 0.22, 0.40), (0.93, 0.58, 0.46), (0.46, 0.26, 0.22), (0.29, 0.27, 0.35), 0.5, 0.14),
    # mist
    ((0.64, 0.70, 0.74), (0.90, 0.89, 0.86), (0.26, 0.24, 0.20), (0.52, 0.54, 0.56), 0.0, 0.38),
    # blue hour
    ((0.07, 0.12, 0.27), (0.42, 0.49, 0.65), (0.14, 0.15, 0.19), (0.27, 0.31, 0.42), 0.6, 0.12),
)
LANDS = (
    (0.30, 0.39, 0.17),
    (0.44, 0.44, 0.24),
    (0.78, 0.67, 0.49),
    (0.45, 0.42, 0.38),
    (0.84, 0.87, 0.91),
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A canvas and its light: all that is needed to draw into it."""

    pixels: np.ndarray  # float32 (height, width, 3), painted in place
    grain: np.ndarray  # float32 (height, width), about 1: a fine surface texture for all materials
    rng: np.random.Generator
    side: float  # where the sun is: -1 left, 1 right
    hour: int  # row of HOURS

    def lighted(self, color: Color, facing: float | np.ndarray) -> np.ndarray:
        """Surface color in this light; `facing` is 1 towards the sun, color above 1 is a lamp."""
        haze, sun, sky = np.asarray(HOURS[self.hour][1:4], np.float32)
        paint, thin = np.asarray(color, np.float32), np.float32(1 - HOURS[self.hour][5])
        light = sky + sun * np.asarray(facing, np.float32)[..., None]
        return (np.minimum(paint, 1) * light + np.maximum(paint - 1, 0)) * thin + haze * (1 - thin)

    def polygon(
        self, points: Sequence[Sequence[float]] | np.ndarray, color: Color, facing: float
    ) -> None:
        """Fill a polygon of (x, y) pixels with a color, or a wall texture (h, w, 3)."""
        corners, (h, w) = np.asarray(points, np.float64), self.grain.shape
        left, top = np.floor(corners.min(0)).astype(int).clip(0, (w, h))
        right, low = np.ceil(corners.max(0) + 1).astype(int).clip((left, top), (w, h))
        if left < right and top < low:
            cover = _polygon_cover(corners - (left, top), right - left, low - top)
            paint = np.asarray(color, np.float32)
            shown = paint if paint.ndim == 1 else enlarge(paint, cover.shape)
            self.blend(left, top, cover, self.lighted(shown, facing))

    def blend(self, x: int, y: int, cover: np.ndarray, color: np.ndarray) -> None:
        """Blend color over a rectangle by `cover` (0 to 1), roughened by the grain."""
        area = (slice(y, y + cover.shape[0]), slice(x, x + cover.shape[1]))
        painted = color * gray_to_rgb(self.grain[area])
        self.pixels[area] += (painted - self.pixels[area]) * gray_to_rgb(cover)

    def box(self, x: float, y: float, w: float, h: float, color: Color, *, facing: float) -> None:
        """Fill a rectangle; (x, y) is the middle of its lower edge."""
        self.polygon(
            [(x - w / 2, y - h), (x + w / 2, y - h), (x + w / 2, y), (x - w / 2, y)], color, facing
        )

    def line(self, x: np.ndarray, y: np.ndarray, width: float, color: Color) -> None:
        """Draw a curve y(x) as a band of this height."""
        self.polygon(
            np.stack([np.r_[x, x[::-1]], np.r_[y, y[::-1] + max(width, 1.2)]], 1), color, 0.4
        )

    def lathe(
        self, x: float, profile: Sequence[tuple[float, float]] | np.ndarray, color: Color
    ) -> None:
        """Turn (radius, y) points, top first, around an upright axis; colors make bands."""
        radius, ys = np.asarray(profile, np.float32).T
        (h, w), reach = self.grain.shape, radius.max() + 1
        rows = np.arange(max(int(ys[0]), 0), min(int(ys[-1]) + 1, h), dtype=np.float32)
        columns = np.arange(max(int(x - reach), 0), min(int(x + reach) + 1, w), dtype=np.float32)
        if len(rows) and len(columns):
            wide = np.interp(rows, ys, radius).astype(np.float32)[:, None].clip(0.5)
            u = (columns - x)[None] / wide
            facing = (u * self.side * 0.8 + np.sqrt((1 - u * u).clip(0)) * 0.5).clip(0, 1)
            bands, cover = np.atleast_2d(color), ((1 - np.abs(u)) * wide + 0.5).clip(0, 1)
            band = ((rows - ys[0]) / (ys[-1] - ys[0] + 1) * len(bands)).astype(int).clip(0)
            self.blend(
                int(columns[0]), int(rows[0]), cover, self.lighted(bands[band][:, None], facing)
            )


def _polygon_cover(corners: np.ndarray, width: int, height: int) -> np.ndarray:
    """Share of each pixel inside a polygon: float32 (height, width), in steps of 1/16."""
    canvas = Image.new("L", (width * 4, height * 4))
    ImageDraw.Draw(canvas).polygon([tuple(corner) for corner in corners * 4], fill=255)
    return np.asarray(canvas.reduce(4), np.float32) * np.float32(1 / 255)


def gray_to_rgb(gray: np.ndarray) -> np.ndarray:
    """The plane three times, (h, w, 3): NumPy is slow at broadcasting a last axis of 1."""
    return np.repeat(gray, 3, axis=-1).reshape(*gray.shape, 3)


def enlarge(
    image: np.ndarray, shape: tuple[int, ...], filter: Image.Resampling = Image.Resampling.BILINEAR
) -> np.ndarray:
    """The image resized to `shape` (height, width): float32 (h, w) or (h, w, 3), as it came."""
    planes = np.moveaxis(np.atleast_3d(image).astype(np.float32), 2, 0)
    resized = [Image.fromarray(plane).resize(shape[::-1], filter) for plane in planes]
    return np.stack(list(map(np.asarray, resized)), axis=-1).reshape(*shape, *image.shape[2:])


def remap(image: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Bilinear samples of a plane at float32 (h, w) coordinates; its edge repeats outside."""
    height, width = image.shape
    x = x.clip(0, width - 1)
    y = y.clip(0, height - 1)
    left = x.astype(np.int32).clip(max=width - 2)
    top = y.astype(np.int32).clip(max=height - 2)
    across = x - left
    down = y - top
    corner = top * width + left
    a, b, c, d = (image.ravel().take(corner + step) for step in (0, 1, width, width + 1))
    b -= a
    b *= across
    b += a
    d -= c
    d *= across
    d += c
    d -= b
    d *= down
    return b + d


def noise(
    rng: np.random.Generator, shape: tuple[int, int], cells: float, octaves: int, keep: float
) -> np.ndarray:
    """Fractal noise, float32 (h, w), mean 0, deviation about 1; `cells` along the longer side."""
    total, weights = np.zeros(shape, np.float32), keep ** np.arange(octaves, dtype=np.float32)
    for octave in range(octaves):
        grid = rng.standard_normal(
            [max(2, round(n * cells * 2**octave / max(shape))) for n in shape], np.float32
        )
        total += weights[octave] * enlarge(grid, shape, Image.Resampling.BICUBIC)
    return total * (1.3 / np.hypot.reduce(weights))


def receding(texture: np.ndarray, h: int, w: int) -> np.ndarray:
    """Lay a square texture on flat ground: float32 (h, w), row 0 at the horizon."""
    near = np.linspace(0.06, 1.06, h, dtype=np.float32)[:, None]
    x = (np.arange(w, dtype=np.float32) / w - 0.5) * 120 / near + len(texture) / 2
    y = np.repeat(60 / near, w, 1)
    return remap(texture, x, y) * (0.3 + 0.7 * near)


def paint_sky(
    rng: np.random.Generator, shape: tuple[int, int], horizon: int, hour: int, sun_x: float
) -> np.ndarray:
    """Paint a gradient, the sun's glow, and flattened clouds: float32 (h, w, 3)."""
    (h, w), (top, low, sun) = shape, np.asarray(HOURS[hour][:3], np.float32)
    # soft things are painted small and enlarged
    y, x = np.mgrid[: h // 4, : w // 4].astype(np.float32) * 4 / w
    down = (y * (w / horizon)).clip(0, 1)
    glow = np.exp(
        -np.hypot(x - 0.5 - sun_x * 0.45, y - rng.uniform(0.1, 1) * horizon / w)
        * rng.uniform(2.5, 6)
    )
    sky = (
        top + (low - top) * (down ** rng.uniform(0.8, 1.8))[..., None] + glow[..., None] * sun * 0.5
    )
    field = noise(rng, (len(y) * 3, y.shape[1]), rng.uniform(4, 8), 6, 0.55)
    puffs = remap(field, x * (w / 4), (1 - down) ** 0.6 * len(y) * 2.6)
    thick = (puffs - rng.uniform(-0.3, 1.6)).clip(0, 1)[..., None] * np.float32(
        rng.uniform(0.5, 0.9)
    )
    lit = (0.98 - 0.13 * np.roll(puffs, 6, 0).clip(-1, 2))[..., None] * (
        low * 0.6 + np.minimum(low + sun, 1) * 0.4
    )
    return enlarge(sky + (lit - sky) * thick, (h, w))


def paint_land(s: Scene, horizon: int, color: Color) -> None:
    """Hills, the far ones paler, and flat land from the horizon to the camera."""
    h, w = s.grain.shape
    for layer in range(s.rng.integers(0, 4)):
        ridge = 1 + 0.6 * noise(s.rng, (2, w), s.rng.uniform(2, 6), 7, 0.5)[0]
        top = horizon - (ridge * h * s.rng.uniform(0.04, 0.1) * (1 - layer / 4)).clip(2)
        far = np.asarray(LANDS[layer % 2]) * (layer + 1) / 5 + np.asarray(HOURS[s.hour][1]) * (
            0.7 - layer / 5
        )
        s.line(np.arange(w), top, horizon - top.min(), far)
    soil = 1 + (0.11 * receding(noise(s.rng, (512, 512), 24, 5, 0.85), h - horizon, w)).clip(
        -0.5, 0.5
    )
    # the rest is lost in the haze
    solid = 1 - np.exp(-np.linspace(0.3, 9, h - horizon, dtype=np.float32)) * 0.8
    s.blend(0, horizon, np.repeat(solid[:, None], w, 1), s.lighted(color, 0.6) * gray_to_rgb(soil))


def paint_water(s: Scene, line: int) -> None:
    """A lake below the line that mirrors the scene above, broken by waves, and tinted."""
    (h, w), below = s.grain.shape, np.arange(s.grain.shape[0] - line, dtype=np.float32)[:, None]
    wave = receding(noise(s.rng, (512, 512), 60, 3, 0.7), h - line, w)
    x = np.arange(w, dtype=np.float32) + wave * 12
    y = (line - 1 - below * 1.1 - np.abs(wave) * h * 0.03).clip(0)
    rows = y.round().astype(np.int32)
    mirror = s.pixels.reshape(-1, 3).take(rows * w + x.clip(0, w - 1).astype(np.int32), axis=0)
    s.pixels[line:] = (
        mirror
        + (s.lighted((0.13, 0.26, 0.31), 0.3) - mirror) * (0.42 + 0.1 * wave).clip(0, 1)[..., None]
    )


def windows(s: Scene, rows: int, columns: int, wall: Color) -> np.ndarray:
    """Wall texture with a grid of windows, some lit: float32 (rows * 10, columns * 10, 3)."""
    glass = np.array((0.20, 0.24, 0.28)) * s.rng.uniform(0.6, 1.4, (rows, columns, 1))
    pane = np.where(
        s.rng.random((rows, columns, 1)) < HOURS[s.hour][4] * 0.6, (1.5, 1.35, 1.05), glass
    )
    tile = np.tile(np.asarray(wall, np.float32), (rows, 10, columns, 10, 1))
    tile[:, 2:8, :, 3:8] = pane[:, None, :, None]
    return tile.reshape(rows * 10, columns * 10, 3)


def bridge(s: Scene, x: float, y: float, size: float) -> None:
    """A suspension bridge right across the picture, often running a little downhill."""
    half = s.grain.shape[1] * s.rng.uniform(0.2, 0.3)
    high = size * s.rng.uniform(0.5, 0.66)
    thick = size * 0.02
    tint = np.array(((0.70, 0.25, 0.17), (0.42, 0.47, 0.50), (0.66, 0.68, 0.66))[s.rng.integers(3)])
    along = np.linspace(-0.05, 1.05, 160) * s.grain.shape[1]
    road = y - size * s.rng.uniform(0.22, 0.34) + (along - x) * s.rng.uniform(-0.1, 0.1)
    # hangs from tower to tower
    cable = road - high * (0.06 + 0.92 * (((along - x) / half + 1) % 2 - 1) ** 2)
    for at, top, low in zip(along, cable, road, strict=True):
        s.box(at, low, size * 0.004, low - top, tint, facing=0.3)
    s.line(along, cable, thick * 0.6, tint)
    for foot in (x - 3 * half, x - half, x + half, x + 3 * half):
        deck = float(np.interp(foot, along, road))
        for leg in (-1.6, 1.6):
            s.box(
                foot + leg * thick,
                y,
                thick * 1.4,
                y - deck + high,
                tint,
                facing=0.4 + 0.25 * leg * s.side,
            )
        for up in (0.94, 0.6, 0.27, -0.15):
            s.box(foot, deck - high * up, thick * 4, thick * 1.3, tint, facing=0.6)
    s.line(along, road, thick * 2, tint * 0.9)


def dome(s: Scene, x: float, y: float, size: float) -> None:
    """A hall with one or three domes, round or onion."""
    wall = np.array((0.86, 0.80, 0.72)) * s.rng.uniform(0.8, 1.08)
    half = size * s.rng.uniform(0.38, 0.7)
    roof = ((0.35, 0.55, 0.48), (0.80, 0.62, 0.25), (0.52, 0.56, 0.62), wall, (0.62, 0.36, 0.26))[
        s.rng.integers(5)
    ]
    eaves, onion = y - size * s.rng.uniform(0.24, 0.34), s.rng.choice((0.0, 0.14))
    for out, share in ((0.0, 1.0), (-0.72, 0.42), (0.72, 0.42))[: s.rng.choice((1, 3))]:
        at, r, turn = x + out * half, share * size * 0.21, np.linspace(0.04, 1.57, 40)
        shell = (
            r * (np.sin(turn) + onion * np.sin(2 * turn)),
            eaves - r * (0.1 + 1.2 * np.cos(turn)),
        )
        s.lathe(at, np.stack(shell, 1), roof)
        s.lathe(
            at,
            [
                (r * 0.02, eaves - r * 1.9),
                (r * 0.1, eaves - r * 1.45),
                (r * 0.12, eaves - r * 1.25),
            ],
            wall,
        )
    s.box(x, y, half * 2, y - eaves, windows(s, 2, int(s.rng.integers(7, 14)), wall), facing=0.5)


def lighthouse(s: Scene, x: float, y: float, size: float) -> None:
    """A tapered tower, plain or banded, with a gallery, a lantern and a cap."""
    wide, pale, deck = size * s.rng.uniform(0.09, 0.13), (0.92, 0.91, 0.88), y - size * 0.79
    tint = ((0.72, 0.16, 0.13), (0.15, 0.16, 0.18), (0.20, 0.33, 0.55), (0.90, 0.88, 0.84))[
        s.rng.integers(4)
    ]
    s.lathe(
        x,
        [(wide * 0.6, deck), (wide * 0.7, y - size * 0.4), (wide, y)],
        ((pale, tint) * 4)[: s.rng.integers(3, 8)],
    )
    s.lathe(
        x,
        [(wide * 0.95, deck - size * 0.015), (wide * 0.75, deck + size * 0.015)],
        (0.2, 0.2, 0.22),
    )
    s.lathe(
        x,
        [(wide * 0.42, deck - size * 0.11), (wide * 0.42, deck)],
        np.add((0.6, 0.6, 0.5), HOURS[s.hour][4]),
    )
    s.lathe(
        x,
        [(wide * 0.05, y - size), (wide * 0.08, y - size * 0.95), (wide * 0.52, y - size * 0.89)],
        tint,
    )


def pyramid(s: Scene, x: float, y: float, size: float) -> None:
    """One to three pyramids, smooth or in steps, with a sunny and a shaded face."""
    stone = np.array((0.74, 0.62, 0.44))
    steps = int(s.rng.choice((1, 7, 30)))
    corner = s.rng.uniform(-0.5, 0.5)
    for out, share in ((-0.8, 0.4), (0.7, 0.3), (0.0, 0.75))[s.rng.integers(3) :]:
        mid, high = x + out * size, share * size * s.rng.uniform(0.85, 1.1)
        # big steps have steep risers
        half = high * s.rng.uniform(0.7, 0.95)
        slant = 0.5 if steps == 7 else 1.0
        for k in range(steps):
            a, b = half * (1 - k / steps), half * (1 - (k + slant) / steps)
            low = y - high * k / steps
            top = y - high * (k + 1) / steps
            pale = stone * s.rng.uniform(0.85, 1.05)
            fore, back = (mid + a * corner, low + a * 0.07), (mid + b * corner, top + b * 0.07)
            s.polygon([(mid - a, low), fore, back, (mid - b, top)], pale, 0.5 - 0.45 * s.side)
            s.polygon([fore, (mid + a, low), (mid + b, top), back], pale, 0.5 + 0.45 * s.side)


def skyline(s: Scene, x: float, y: float, size: float) -> None:
    """A cluster of towers, the tall ones at the back, each with a side in the shade."""
    for near in np.linspace(0, 1, int(s.rng.integers(6, 14))):
        high = size * s.rng.uniform(0.4, 1.0) * (1 - 0.45 * near)
        wide = size * s.rng.uniform(0.10, 0.18)
        at, deep = x + size * s.rng.normal(0, 0.38), -s.side * wide * s.rng.uniform(0.2, 0.5)
        wall = np.array((0.55, 0.56, 0.58)) * s.rng.uniform(0.5, 1.3) + (
            s.rng.uniform(-0.05, 0.05),
            0,
            0,
        )
        edge = at + np.copysign(wide / 2, deep)
        tile = windows(s, max(4, int(high / size * 28)), 6, wall)
        s.polygon(
            [(edge, y - high), (edge + deep, y - high * 0.98), (edge + deep, y), (edge, y)],
            tile,
            0.1,
        )
        s.box(at, y, wide, high, tile, facing=0.7)


LANDMARKS = {draw.__name__: draw for draw in (bridge, dome, lighthouse, pyramid, skyline)}
