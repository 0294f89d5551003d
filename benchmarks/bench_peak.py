"""How much memory does one very large JPEG need on its way to 224 x 224?

Each contestant decodes one file of 12,000 x 8,000 pixels (96 MP) in a fresh process; what counts is
how far the peak of its resident memory rises above what it was with the file read and everything
imported.
"""

from __future__ import annotations

import ctypes
import io
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rounds import DATA, arguments, finish, rss_mb

WIDTH, HEIGHT, SIZE = 12_000, 8_000, 224
KINDS = {"baseline": {}, "baseline 4:4:4": {"subsampling": 0}, "progressive": {"progressive": True}}


def main() -> None:
    options = arguments(__doc__, rounds=3)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, how in KINDS.items():
            path = Path(folder, "large.jpg")
            with get_context("spawn").Pool(
                1
            ) as pool:  # making it takes more memory than anything that is measured
                pool.apply(make, (path, how))
            result[kind] = {"file_mb": round(path.stat().st_size / 1e6, 1)}
            for name in (
                "fastfeed kernel",
                "fastfeed kernel, a strip of 12,000 x 600",
                "fastfeed pillow",
                "pyvips",
                "OpenCV",
            ):
                rises = []
                for _ in range(options.rounds):
                    with get_context("spawn").Pool(1) as pool:
                        rises.append(pool.apply(rise, (name, path)))
                result[kind][name] = {"peak_extra_mb": round(max(rises), 1)}
    finish("How much memory does a 96 MP JPEG need?", {"result": result}, options.out)


def make(path: Path, how: dict[str, Any]) -> None:
    """Photographs side by side."""
    Image.MAX_IMAGE_PIXELS = None
    sheet, x, y = Image.new("RGB", (WIDTH, HEIGHT)), 0, 0
    photos = [Image.open(p).convert("RGB") for p in sorted((DATA / "photos-large").iterdir())]
    while y < HEIGHT:
        for photo in photos:
            sheet.paste(photo.resize((3000, 2000)), (x, y))
            x += 3000
            if x >= WIDTH:
                x, y = 0, y + 2000
    sheet.save(path, "JPEG", quality=90, **how)


def rise(name: str, path: Path) -> float:
    """Peak of resident memory during the one call, above that before it, MB."""
    blob = path.read_bytes()
    run = prepared(name, blob)
    ctypes.CDLL(None).malloc_trim(0)  # or it would begin with memory that imports have left behind
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = rss_mb()
    pixels = run()
    peak = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    assert pixels.shape == (SIZE, SIZE, 3) and pixels.std() > 20
    return int(peak.split()[1]) * 1024 / 1e6 - before


def prepared(name: str, blob: bytes) -> Any:
    if name.startswith("fastfeed"):
        from threading import Event

        from fastfeed.decode import NativeEngine, PillowEngine, Request
        from fastfeed.ops import Decode
        from fastfeed.ops.program.compile import Windows

        box = (4000, 0, 600, WIDTH) if "strip" in name else (0, 0, HEIGHT, WIDTH)
        windows = Windows(np.array([box], float), np.zeros((1, 2), bool), np.array([(SIZE, SIZE)]))
        engine = (NativeEngine if "kernel" in name else PillowEngine)(Decode())
        small = io.BytesIO()
        Image.new("RGB", (300, 300)).save(small, "JPEG")
        out = np.empty((1, SIZE, SIZE, 3), np.uint8)

        def run(file: bytes = blob, windows: Windows = windows) -> np.ndarray:
            assert engine.decode(
                Request([file], engine.probe([file]), windows, "bilinear"), out, Event()
            ) == [None]
            return out[0]

        run(small.getvalue(), Windows(np.array([(0.0, 0, 300, 300)]), windows.flips, windows.sizes))
        return run
    if name == "pyvips":
        import pyvips

        pyvips.cache_set_max(0)

        def shrunk() -> np.ndarray:
            return pyvips.Image.thumbnail_buffer(blob, SIZE, height=SIZE, size="force").numpy()

        return shrunk
    import cv2

    data = np.frombuffer(blob, np.uint8)
    return lambda: cv2.resize(
        cv2.imdecode(data, cv2.IMREAD_COLOR), (SIZE, SIZE), interpolation=cv2.INTER_AREA
    )


if __name__ == "__main__":
    main()
