"""How long until the first batch? Import in a fresh interpreter; list 10,000 files and make the first batch."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rounds import DATA, arguments, finish

FILES, CLASSES = 10_000, 10
IMPORT = "import time; t = time.perf_counter(); import fastfeed; print(time.perf_counter() - t)"
HEAVY = """
import sys, fastfeed
print([m for m in ("tensorflow", "keras", "torch", "jax", "nvidia", "ray", "cv2") if m in sys.modules])
"""
FIRST = """
import sys, time
import fastfeed as ff
begin = time.perf_counter()
source = ff.ImageFolder(sys.argv[1])
listed = time.perf_counter()
ops = [ff.RandomResizedCrop(224), ff.RandomFlip(), ff.Normalize.imagenet()]
feed = ff.Feed(source, ops, batch=64, threads=int(sys.argv[2]))
made = time.perf_counter()
next(iter(feed))
print(listed - begin, made - listed, time.perf_counter() - made)
"""


def main() -> None:
    options = arguments(__doc__, rounds=9)
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder))
        imports, starts = [], []
        for i in range(options.rounds + 1):
            imported = float(run(IMPORT))
            started = [float(v) for v in run(FIRST, folder, str(options.threads)).split()]
            if i:  # the first round warms the caches
                imports.append(imported)
                starts.append(started)
    columns = list(zip(*starts, strict=True))
    names = ("list 10,000 files", "construct the feed", "first batch of 64")
    result = {
        "import_seconds": {"median": round(statistics.median(imports), 4), "max": round(max(imports), 4)},
        "heavy_modules_loaded": run(HEAVY).strip(),
        "seconds": {n: round(statistics.median(c), 4) for n, c in zip(names, columns, strict=True)},
        "construction_to_first_batch_seconds": {
            "median": round(statistics.median(sum(s[1:]) for s in starts), 4),
            "max": round(max(sum(s[1:]) for s in starts), 4),
        },
    }
    finish("How long until the first batch?", result, options.out)


def fill(folder: Path) -> None:
    """10,000 names for the sample images: hard links where the file system allows, else copies."""
    images = sorted((DATA / "imagenet-sample").iterdir())
    for i in range(FILES):
        at = folder / f"class{i % CLASSES}" / f"{i:05}.jpg"
        at.parent.mkdir(exist_ok=True)
        image = images[i % len(images)]
        if i < len(images):
            at.write_bytes(image.read_bytes())
        else:
            j = i % len(images)
            os.link(folder / f"class{j % CLASSES}" / f"{j:05}.jpg", at)


def run(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    main()
