"""How long does a photograph of each format take to 224 x 224 pixels, next to the tools people use
for it?

One thread, processor time. The photographs are those of `photos-large`, at most 1,600 pixels a
side, saved by Pillow with its defaults (WebP: quality 85; JPEG: 90; TIFF: LZW).
"""

from __future__ import annotations

import io
import os
import statistics
import sys
import threading
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from helpers.engines import Routed
from PIL import Image
from rounds import DATA, arguments, cpu_rounds, finish

from fastfeed.decode import PillowEngine, Request
from fastfeed.ops import Decode
from fastfeed.ops.program.compile import Windows

SIZE, SIDE = 224, 1600
FORMATS = {
    "PNG": {},
    "WEBP": {"quality": 85},
    "JPEG": {"quality": 90},
    "TIFF": {"compression": "tiff_lzw"},
}
PARTS = {"whole": 1.0, "upper half": 0.5}


def main() -> None:
    options = arguments(__doc__, rounds=7)
    os.environ["VIPS_CONCURRENCY"] = "1"
    cv2.setNumThreads(1)
    photos = photographs()
    result: dict[str, Any] = {}
    for name, how in FORMATS.items():
        blobs = [saved(photo, name, **how) for photo in photos]
        for part, share in PARTS.items():
            times = cpu_rounds(options.rounds, contestants(blobs, share))
            own = times["fastfeed"]
            result[f"{name}, {part}"] = {
                other: {
                    "cpu_ms": round(statistics.median(found) / 1e3, 2),
                    "it / fastfeed": round(
                        statistics.median(a / b for a, b in zip(found, own, strict=True)), 2
                    ),
                }
                for other, found in times.items()
            }
    finish("How long does a photograph of each format take?", {"result": result}, options.out)


def photographs() -> list[Image.Image]:
    photos = [Image.open(path).convert("RGB") for path in sorted((DATA / "photos-large").iterdir())]
    for photo in photos:
        photo.thumbnail((SIDE, SIDE))
    return photos


def saved(photo: Image.Image, name: str, **how: Any) -> bytes:
    file = io.BytesIO()
    photo.save(file, name, **how)
    return file.getvalue()


def contestants(blobs: list[bytes], share: float) -> dict[str, Callable[[], int]]:
    op = Decode()
    own = Routed(op)
    runs: dict[str, Callable[[bytes], Any]] = {
        "fastfeed": lambda blob: _engine(own, blob, share),
        "fastfeed with Pillow": lambda blob: _engine(PillowEngine(op), blob, share),
        "OpenCV": lambda blob: _opencv(blob, share),
    }
    try:
        import pyvips
    except ImportError as error:
        print(f"pyvips is left out: {error}", file=sys.stderr)
    else:
        runs["pyvips"] = lambda blob: _vips(pyvips, blob, share)

    def all_of(run: Callable[[bytes], Any]) -> Callable[[], int]:
        return lambda: len([run(blob) for blob in blobs])

    return {name: all_of(run) for name, run in runs.items()}


def _engine(engine: Any, blob: bytes, share: float) -> np.ndarray:
    (header,) = engine.probe([blob])
    windows = Windows(
        np.array([[0, 0, header.height * share, header.width]]),
        np.zeros((1, 2), bool),
        np.array([[SIZE, SIZE]]),
    )
    out = np.empty((1, SIZE, SIZE, 3), np.uint8)
    assert engine.decode(
        Request([blob], [header], windows, "bilinear"), out, threading.Event()
    ) == [None]
    return out


def _opencv(blob: bytes, share: float) -> np.ndarray:
    image = cv2.imdecode(np.frombuffer(blob, np.uint8), cv2.IMREAD_COLOR_RGB)
    return cv2.resize(
        image[: round(image.shape[0] * share)], (SIZE, SIZE), interpolation=cv2.INTER_AREA
    )


def _vips(pyvips: Any, blob: bytes, share: float) -> np.ndarray:
    if share == 1:
        return pyvips.Image.thumbnail_buffer(blob, SIZE, height=SIZE, size="force").numpy()
    image = pyvips.Image.new_from_buffer(blob, "", access="sequential")
    part = image.crop(0, 0, image.width, round(image.height * share))
    return part.thumbnail_image(SIZE, height=SIZE, size="force").numpy()


if __name__ == "__main__":
    main()
