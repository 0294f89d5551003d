"""How long does a stock photograph of each format take to a JPEG with a short side of 512 pixels?

One thread, processor time: what `fastfeed preprocess` does with the bytes of one photograph
(header, sha256, color profile, Lanczos, JPEG), next to pyvips's `thumbnail_buffer` and
`jpegsave_buffer`, and to Pillow's full decoding and Lanczos. The photographs are those of
`photos-large`, at most 3,464 pixels a side, saved by Pillow. SSIM: of the new files, against pixels
that were decoded at full size and scaled by Pillow.
"""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from bench_recode import pillow_file, ssim, vips
from helpers.preprocess.transforming import CountingContext
from PIL import Image
from rounds import DATA, arguments, cpu_rounds, finish

from fastfeed.preprocess import Recipe, Scaling
from fastfeed.preprocess.model.record import ProcessedImage
from fastfeed.preprocess.pixels.transform import Transformer

SIDE, SHORT = 3464, 512
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "JPEG": ("JPEG", {"quality": 90}),
    "JPEG, progressive": ("JPEG", {"quality": 90, "progressive": True}),
    "PNG": ("PNG", {}),
    "PNG with alpha": ("PNG", {}),
    "WebP": ("WEBP", {"quality": 85}),
    "WebP, lossless": ("WEBP", {"lossless": True}),
    "TIFF, LZW": ("TIFF", {"compression": "tiff_lzw"}),
    "TIFF, deflate": ("TIFF", {"compression": "tiff_deflate"}),
}


def main() -> None:
    given, result = arguments(__doc__, rounds=5), {}
    photos = [Image.open(path).convert("RGB") for path in sorted((DATA / "photos-large").iterdir())]
    for photo in photos:
        photo.thumbnail((SIDE, SIDE))
    transform = Transformer(Recipe(Scaling(SHORT)))
    thumbnail, _ = vips(SHORT)

    def ours(blob: bytes) -> bytes:
        made = transform(blob, CountingContext())
        assert isinstance(made, ProcessedImage), made
        return made.image

    ways: dict[str, Callable[[bytes], bytes]] = {
        "fastfeed": ours,
        "pyvips": thumbnail,
        "Pillow": pillow_file,
    }
    for name, (format, how) in FORMATS.items():
        blobs = [saved(photo, format, "alpha" in name, **how) for photo in photos]
        times = cpu_rounds(given.rounds, {way: all_of(run, blobs) for way, run in ways.items()})
        result[name] = {
            way: {
                "cpu_ms": round(statistics.median(found) / 1e3, 1),
                "it / fastfeed": round(
                    statistics.median(a / b for a, b in zip(found, times["fastfeed"], strict=True)),
                    2,
                ),
            }
            for way, found in times.items()
        }
        if "alpha" not in name:
            for way, run in ways.items():
                values = [likeness(run(blob), blob) for blob in blobs]
                result[name][way]["ssim"] = [
                    round(statistics.mean(values), 4),
                    round(min(values), 4),
                ]
    finish(
        "How long does a stock photograph of each format take to 512 pixels?",
        {"result": result},
        given.out,
    )


def saved(photo: Image.Image, format: str, alpha: bool, **how: Any) -> bytes:
    if alpha:
        photo = photo.copy()
        photo.putalpha(photo.getchannel("G"))
    file = io.BytesIO()
    photo.save(file, format, **how)
    return file.getvalue()


def all_of(run: Callable[[bytes], bytes], blobs: list[bytes]) -> Callable[[], int]:
    return lambda: len([run(blob) for blob in blobs])


def likeness(file: bytes, original: bytes) -> float:
    made, whole = (Image.open(io.BytesIO(each)).convert("RGB") for each in (file, original))
    return ssim(np.asarray(made), np.asarray(whole.resize(made.size, Image.Resampling.LANCZOS)))


if __name__ == "__main__":
    main()
