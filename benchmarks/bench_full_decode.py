"""What does `preprocess --full-decode` change, and what does it cost?

One thread, a whole transformation (decode, scale with Lanczos3, encode as JPEG of quality 90) of
files in memory, with and without the option. And of files written at quality 100 and 4:4:4: how far
the mean of a channel is from that of full decoding, and SSIM on luma.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
from bench_recode import ssim
from PIL import Image
from rounds import DATA, arguments, finish, interleaved, ratio

from fastfeed.preprocess import Encoding, Recipe, Scaling
from fastfeed.preprocess.pixels.transform import Transformer

# files, and short sides that they become
SETS = {
    "photos-large": (512, 256),
    "flowers5/train": (64,),
}
BOUND = 0.1  # of a level: the shift of a channel's mean that is counted


class Unlimited:
    """Memory is not counted."""

    def begin(self, sample: int) -> None:
        pass

    def room(self, need: int) -> Any:
        return nullcontext()


def main() -> None:
    options = arguments(__doc__, rounds=7)
    report = {}
    for folder, sizes in SETS.items():
        blobs = [path.read_bytes() for path in sorted((DATA / folder).rglob("*.jp*g"))]
        for size in sizes:
            result = interleaved(
                options.rounds,
                {name: run(blobs, size, name == "full") for name in ("scaled", "full")},
            )
            report[f"{folder} to {size}"] = {
                "result": result,
                "scaled / full": ratio(result, "scaled", "full"),
                **closeness(blobs, size),
            }
    finish("What does --full-decode change, and what does it cost?", report, options.out)


def run(blobs: list[bytes], size: int, full: bool) -> Callable[[], int]:
    transform, context = (
        Transformer(Recipe(Scaling(size, full_decode=full), Encoding())),
        Unlimited(),
    )
    return lambda: sum(1 for blob in blobs if transform(blob, context))


def closeness(blobs: list[bytes], size: int) -> dict[str, Any]:
    """Of files scaled with and without the option."""
    best = Encoding("jpeg", 100, "4:4:4")
    ways = [Transformer(Recipe(Scaling(size, full_decode=full), best)) for full in (False, True)]
    shifts, likeness = [], []
    for blob in blobs:
        files: list[Any] = [transform(blob, Unlimited()) for transform in ways]
        scaled, full = (np.asarray(Image.open(io.BytesIO(file.image)), float) for file in files)
        shifts.append(float(np.abs((scaled - full).mean((0, 1))).max()))
        likeness.append(ssim(scaled, full))
    return {
        "files": len(blobs),
        "shift_of_a_mean": {
            "median": round(float(np.median(shifts)), 3),
            "largest": round(max(shifts), 3),
        },
        f"share_beyond_{BOUND}": round(float(np.mean(np.array(shifts) > BOUND)), 3),
        "ssim_mean": round(float(np.mean(likeness)), 4),
        "ssim_least": round(min(likeness), 4),
    }


if __name__ == "__main__":
    main()
