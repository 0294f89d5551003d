"""Samples to pack, and shards packed of them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.preprocess.model.recipe import Packing
from fastfeed.preprocess.model.record import Entry
from fastfeed.preprocess.writers import writer_for

HEIGHT, WIDTH = 8, 10
NAMES = [
    "a.b.jpg",
    "with space.jpg",
    "new\nline.jpg",
    "latin\udce9.jpg",
    "n" * 300 + ".jpg",
    "日本 é.jpg",
]


def pixels(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)


def encoded(i: int, extension: str) -> bytes:
    file = io.BytesIO()
    if extension == "npy":
        np.save(file, pixels(i))
    else:
        Image.fromarray(pixels(i)).save(file, {"jpg": "JPEG"}.get(extension, extension))
    return file.getvalue()


def entry(i: int, extension: str = "jpg") -> Entry:
    """Every third has no label, and no class; every second a caption."""
    meta: dict[str, Any] = {
        "uri": f"photos/{i}/{NAMES[i % len(NAMES)]}",
        "orientation": 6,
        "box": [0, 0, 8, 10],
    }
    if i % 3:
        meta |= {"class": f"classé {i % 3}", "label": i % 3}
    text = None if i % 2 else f"caption \udcff {i}\nof two lines"
    return Entry(
        f"{i:09d}", encoded(i, extension), extension, HEIGHT, WIDTH, i % 3 or None, text, meta
    )


def entries(count: int, packing: str = "webdataset") -> list[Entry]:
    return [entry(i, "npy" if packing == "raw" else "jpg") for i in range(count)]


def write(
    folder: Path, packing: Packing, samples: Iterable[Entry], stem: str = "shard-000000"
) -> list[int]:
    """A shard, with files as the operating system has them."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:  # a writer that fails leaves its files to who made them
        writer = writer_for(packing)(
            lambda name: opened.enter_context(open(folder / name, "wb", buffering=0)), stem, packing
        )
        for one in samples:
            writer.add(one)
        return writer.close()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class NullFile:
    """A file that forgets; it fails once it has `room` bytes."""

    def __init__(self, room: int | None = None, error: OSError | None = None) -> None:
        self.bytes = 0
        self.room = room
        self.error = error
        self.largest = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.bytes += size
        self.largest = max(self.largest, size)
        if self.room is not None and self.bytes > self.room:
            assert self.error is not None
            raise self.error
        return size

    def close(self) -> None: ...


def large_entries(count: int, size: int, extension: str = "jpg") -> Iterator[Entry]:
    """Large samples, one at a time."""
    for i in range(count):
        if extension == "npy":
            file = io.BytesIO()
            np.save(file, np.full((size // 300, 100, 3), i % 256, np.uint8))
            image = file.getvalue()
        else:
            image = bytes([i % 256]) * size
        yield Entry(f"{i:09d}", image, extension, size // 300, 100, i, None, {"uri": f"{i}.jpg"})
