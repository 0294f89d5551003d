"""Small pictures for tests: smooth enough to compare after scaling, each unlike the others."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

BROKEN = {  # what a file may hold instead of a photograph -> the reason it is refused for
    "empty": b"",
    "not_image": b"<html>404</html>",
    "unsupported_format": b"8BPS" + bytes(64),
    "truncated": None,  # half of a JPEG
}


def picture(seed: int, size: tuple[int, int] = (40, 56), detail: float = 1) -> np.ndarray:
    """uint8 (height, width, 3): a few waves whose direction, length and colors come from the
    seed.
    """
    return _picture(seed, tuple(size), detail).copy()


@functools.lru_cache(512)  # laws draw the same ones for every op
def _picture(seed: int, size: tuple[int, int], detail: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    y, x = (np.linspace(0, 1, n) for n in size)
    waves = [
        np.sin(6.28 * detail * (a * y[:, None] + b * x[None, :] + phase))
        for a, b, phase in rng.uniform(0.2, 1.5, (3, 3))
    ]
    return np.rint(127.5 + 120 * np.stack(waves, axis=2)).astype(np.uint8)


@functools.lru_cache(512)
def jpeg(seed: int, size: tuple[int, int] = (40, 56), quality: int = 90) -> bytes:
    """A picture as a file's bytes."""
    file = io.BytesIO()
    Image.fromarray(picture(seed, size)).save(file, "JPEG", quality=quality)
    return file.getvalue()


def broken(reason: str) -> bytes:
    """A file that is refused for this reason."""
    content = BROKEN[reason]
    return jpeg(0)[: len(jpeg(0)) // 2] if content is None else content


def folder(root: Path, counts: Mapping[str, int], size: tuple[int, int] = (40, 56)) -> Path:
    """root/class/0000.jpg ...: `counts` pictures of each class."""
    seed = 0
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            (root / name / f"{i:04}.jpg").write_bytes(jpeg(seed, size))
            seed += 1
    return root
