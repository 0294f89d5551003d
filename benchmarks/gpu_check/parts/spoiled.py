"""A source of small files in memory, a known share of them bad, and what kinds of bad there are."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.spec import ENCODED, Spec


class Blobs:
    """Files in memory; sample i is file `which[i]`."""

    spec: Spec = ENCODED
    classes: tuple[str, ...] = ()

    def __init__(self, files: Sequence[bytes], which: np.ndarray, names: Sequence[str]) -> None:
        self._files, self._which, self._names = list(files), which, list(names)

    def __len__(self) -> int:
        return len(self._which)

    def uri(self, i: int) -> str:
        return f"{self._names[self._which[i]]}/{i}.jpg"

    def read(self, ids: Sequence[int]) -> list[Any]:
        return [self._files[self._which[i]] for i in ids]

    def label(self, ids: np.ndarray) -> np.ndarray:
        return np.full(len(ids), -1, np.int64)

    @property
    def fingerprint(self) -> str:
        return f"blobs {len(self)}"


def spoiled(
    photos: Path, samples: int, kinds: int = 16
) -> tuple[Blobs, dict[str, np.ndarray], np.ndarray]:
    """(source, ids by kind for the doubtful ones, ids that are bad): one sample in a hundred of
    every kind.

    Decoders differ in whether they see the doubtful ones: a claim of twice the height, and damaged
    codes.
    """
    files = sorted(p for p in photos.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))[:kinds]
    pictures = [_small(path) for path in files]
    good = [encoded(picture, quality=90) for picture in pictures]
    first = good[0]
    frame = first.index(b"\xff\xc0")
    height, width = pictures[0].height, pictures[0].width
    bad = {
        "truncated": first[: len(first) // 2],
        "garbage": np.random.default_rng(7).bytes(5000),
        "empty": b"",
        "header only": first[: frame + 4],
        "claims 65500 x 65500": _claiming(first, frame, 65500, 65500),
    }
    doubtful = {
        "twice its height": _claiming(first, frame, 2 * height, width),
        "bit rot": _rotten(first),
    }
    odd = {
        "CMYK": encoded(pictures[1 % len(pictures)].convert("CMYK"), quality=90),
        "progressive": encoded(pictures[2 % len(pictures)], quality=90, progressive=True),
        "gray": encoded(pictures[3 % len(pictures)].convert("L"), quality=90),
        "PNG named .jpg": encoded(pictures[0], "PNG"),
    }
    assert first[frame + 5 : frame + 9] == height.to_bytes(2, "big") + width.to_bytes(2, "big")
    special = bad | doubtful | odd
    names = [*(f"good {k}" for k in range(len(good))), *special]
    which = np.arange(samples) % len(good)
    for k in range(len(special)):  # sample 100 * n + k is of special kind k
        which[k::100] = len(good) + k
    wrong = np.flatnonzero((which >= len(good)) & (which < len(good) + len(bad)))
    unsure = {
        name: np.flatnonzero(which == len(good) + len(bad) + k) for k, name in enumerate(doubtful)
    }
    return Blobs([*good, *special.values()], which, names), unsure, wrong


def _small(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB").resize((200, 150), Image.Resampling.BOX)


def encoded(image: Image.Image, format: str = "JPEG", **options: Any) -> bytes:
    """A file."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def _claiming(blob: bytes, frame: int, height: int, width: int) -> bytes:
    return (
        blob[: frame + 5] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + blob[frame + 9 :]
    )


def _rotten(blob: bytes) -> bytes:
    """Damaged codes in the middle, no marker among them."""
    found = bytearray(blob)
    for k in range(len(blob) // 2, len(blob) // 2 + 40):
        if blob[k] < 0xC0 and blob[k - 1] != 0xFF:
            found[k] ^= 0x15
    return bytes(found)
