"""JPEGs of every layout, native calls by hand, and what their pixels should be, in float64."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from fastfeed.runtime.extension import is_built

FILTERS = ("bilinear", "bicubic", "lanczos", "box")
NO_KERNEL = (
    "fastfeed._native is not built: it needs a C++ compiler and libjpeg-turbo's headers: make test"
)
STATUS = (
    None,
    "truncated",
    "corrupt",
    "unsupported_format",
    "bomb",
    "not_image",
    "cancelled",
    "oom",
)
# enlarge: no window is that much larger than its target, so nothing is shrunk in the DCT domain
NEVER = 1e9
native: Any = importlib.import_module("fastfeed._native") if is_built() else None


def textured(height: int, width: int, seed: int = 0) -> np.ndarray:
    """uint8 (height, width, 3): waves in color under noise, so that a pixel or a block out of place
    shows.
    """
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 90 * np.sin(x / (5 + 2 * c) + c) * np.cos(y / (7 - c)) for c in range(3)]
    return (
        (np.stack(planes, axis=2) + rng.normal(0, 12, (height, width, 3)))
        .clip(0, 255)
        .astype(np.uint8)
    )


def encoded(picture: np.ndarray | Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    image.save(file, "JPEG", **({"quality": 90} | options))
    return file.getvalue()


def relaid(height: int, width: int, sampling: int, seed: int) -> bytes:
    """A layout that Pillow does not write, from one with as many blocks per unit: valid, if
    scrambled.

    sampling: the frame's byte for luma, columns * 16 + rows.
    """
    across, down = sampling >> 4, sampling & 15
    units = -(-height // (8 * down)), -(-width // (8 * across))
    # rows, columns of luma blocks per unit, as Pillow writes
    blocks = {2: (1, 2), 4: (2, 2)}[across * down]
    pixels = textured(units[0] * 8 * blocks[0], units[1] * 8 * blocks[1], seed)
    blob = bytearray(encoded(pixels, subsampling={2: 1, 4: 2}[across * down]))
    frame = blob.index(b"\xff\xc0")
    blob[frame + 5 : frame + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    assert blob[frame + 11] == blocks[1] << 4 | blocks[0]
    blob[frame + 11] = sampling
    return bytes(blob)


def four_by_two(seed: int) -> bytes:
    """320 x 160 with eight blocks of luma to one of each chroma, from a gray file's blocks in
    another order.
    """
    gray = encoded(textured(200, 320, seed)[:, :, 0], quality=60)
    frame, scan = gray.index(b"\xff\xc0"), gray.index(b"\xff\xda")
    parts = b"".join(bytes((i + 1, sampling, 0)) for i, sampling in enumerate((0x42, 0x11, 0x11)))
    head = (
        b"\xff\xc0\x00\x11\x08"
        + (160).to_bytes(2, "big")
        + (320).to_bytes(2, "big")
        + b"\x03"
        + parts
    )
    begin = b"\xff\xda\x00\x0c\x03\x01\x00\x02\x00\x03\x00\x00\x3f\x00"
    return gray[:frame] + head + gray[frame + 13 : scan] + begin + gray[scan + 10 :]


def _options(**options: Any) -> Callable[[int, int, int], bytes]:
    return lambda height, width, seed: encoded(textured(height, width, seed), **options)


LAYOUTS: dict[str, Callable[[int, int, int], bytes]] = {  # of (height, width, seed)
    "4:4:4": _options(subsampling=0),
    "4:2:2": _options(subsampling=1),
    "4:2:0": _options(subsampling=2),
    "4:4:0": lambda height, width, seed: relaid(height, width, 0x12, seed),
    "4:1:1": lambda height, width, seed: relaid(height, width, 0x41, seed),
    "gray": lambda height, width, seed: encoded(textured(height, width, seed)[:, :, 0]),
    "progressive": _options(progressive=True),
    "restarts": _options(restart_marker_blocks=3),
    "optimized": _options(optimize=True, quality=75),
}


def with_orientation(pixels: np.ndarray, orientation: int, big: bool, **options: Any) -> bytes:
    order: Any = "big" if big else "little"
    entry = [(0x0112, 2), (3, 2), (1, 4), (orientation, 2), (0, 2), (0, 4)]
    tiff = (b"MM" if big else b"II") + b"".join(
        v.to_bytes(n, order) for v, n in [(42, 2), (8, 4), (1, 2), *entry]
    )
    return encoded(pixels, exif=b"Exif\0\0" + tiff, **options)


def shown(blob: bytes) -> np.ndarray:
    """All pixels, decoded by Pillow, the right way up: uint8 (height, width, 3)."""
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(blob))).convert("RGB"))


def _bilinear(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _bicubic(x: np.ndarray) -> np.ndarray:
    """Keys 1981, a = -0.5."""
    t = np.abs(x)
    near, far = 1.5 * t**3 - 2.5 * t**2 + 1, -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2
    return np.where(t < 1, near, np.where(t < 2, far, 0))


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


def _box(x: np.ndarray) -> np.ndarray:
    return ((x > -0.5) & (x <= 0.5)).astype(float)


_KERNELS = {"bilinear": _bilinear, "bicubic": _bicubic, "lanczos": _lanczos, "box": _box}
_SUPPORT = {"bilinear": 1, "bicubic": 2, "lanczos": 3, "box": 0.5}


def _weights(filter: str, start: float, length: float, inputs: int, outputs: int) -> np.ndarray:
    """Each output's weights of all inputs: (outputs, inputs)."""
    scale = length / outputs
    stretch = max(scale, 1)
    centers, at = start + (np.arange(outputs) + 0.5)[:, None] * scale, np.arange(inputs)
    # Pillow's order of operations and its range: at the edge of a box the last bit decides
    weights = _KERNELS[filter]((at - centers + 0.5) * (1 / stretch))
    reach = _SUPPORT[filter] * stretch
    weights *= (at >= np.trunc(centers - reach + 0.5)) & (at < np.trunc(centers + reach + 0.5))
    return weights / weights.sum(axis=1, keepdims=True)


def resized(
    pixels: np.ndarray, box: Sequence[float], size: tuple[int, int], filter: str
) -> np.ndarray:
    """Pillow's resize(box=...) without its rounding: float64 (*size, 3), in [0, 255]."""
    top, left, height, width = box
    down = _weights(filter, top, height, pixels.shape[0], size[0])
    across = _weights(filter, left, width, pixels.shape[1], size[1])
    rows, columns = (np.flatnonzero(w.any(axis=0)) for w in (down, across))
    part = pixels[np.ix_(rows, columns)].astype(float).transpose(2, 0, 1)
    return (down[:, rows] @ part @ across[:, columns].T).transpose(1, 2, 0).clip(0, 255)


def decode(
    blobs: Sequence[bytes],
    boxes: Any,
    size: tuple[int, int],
    filter: str = "bilinear",
    flips: Any = None,
    out: np.ndarray | None = None,
    pool: Any = None,
    max_pixels: int = 300_000_000,
    enlarge: float = 1.5,
) -> tuple[np.ndarray, list[str | None]]:
    """One call of the native extension: pixels and, per sample, why there are none."""
    n = len(blobs)
    out = np.full((n, *size, 3), 99, np.uint8) if out is None else out
    codes = np.full(n, 77, np.int8)
    flips = np.zeros((n, 2), bool) if flips is None else np.asarray(flips)
    (pool or native.Pool(1)).decode(
        list(blobs),
        np.array(boxes, float),
        flips,
        out,
        codes,
        FILTERS.index(filter),
        max_pixels,
        enlarge,
    )
    return out, [STATUS[code] for code in codes]


def decode_one(
    blob: bytes, box: Any, size: tuple[int, int], filter: str = "bilinear", **more: Any
) -> Any:
    """Pixels (*size, 3), or the reason; a bad sample's slot must be zero."""
    out, (why,) = decode([blob], [box], size, filter, **more)
    assert why is None or not out.any(), "the slot of a bad sample is zeroed"
    return why or out[0]


def ssim(one: np.ndarray, other: np.ndarray) -> float:
    """Wang et al. 2004 on luma: Gaussian window, sigma 1.5, K = 0.01, 0.03."""
    a, b = (pixels.astype(float) @ (0.299, 0.587, 0.114) for pixels in (one, other))
    taps = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
    taps /= taps.sum()

    def local(x: np.ndarray) -> np.ndarray:
        for _ in x.shape:
            x = np.sum([t * x[k : len(x) - 10 + k] for k, t in enumerate(taps)], axis=0).T
        return x

    ma, mb, c1, c2 = local(a), local(b), 2.55**2, 7.65**2
    va, vb, cov = local(a * a) - ma**2, local(b * b) - mb**2, local(a * b) - ma * mb
    return float(
        ((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))).mean()
    )
