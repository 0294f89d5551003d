"""How long until the first batch?

Import in a fresh interpreter; list 10,000 files and make the first batch.

The first batch is made with and without OpenCV imported, in turn; and the size of an installation
is added up.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from rounds import DATA, arguments, finish

FILES, CLASSES = 10_000, 10
IMPORT = (
    "import sys, time; t = time.perf_counter(); __import__(sys.argv[1]); print(time.perf_counter()"
    " - t)"
)
FIRST = """
import sys, time
import fastfeed as ff
begin = time.perf_counter()
source = ff.ImageFolder(sys.argv[1])
listed, spent = time.perf_counter(), time.process_time()
for name in sys.argv[3:]:
    __import__(name)
ops = [ff.RandomResizedCrop(224), ff.RandomFlip(), ff.Normalize.imagenet()]
feed = ff.Feed(source, ops, batch=64, threads=int(sys.argv[2]))
made = time.perf_counter()
next(iter(feed))
print(listed - begin, made - listed, time.perf_counter() - made, time.process_time() - spent)
heavy = ("tensorflow", "keras", "torch", "jax", "nvidia", "ray", "cv2")
print([name for name in heavy if name in sys.modules], file=sys.stderr)
"""


NAMES = ("list 10,000 files", "construct the feed", "first batch of 64")


def main() -> None:
    options = arguments(__doc__, rounds=9)
    imports: dict[str, list[float]] = {"fastfeed": [], "numpy": [], "cv2": []}
    starts: dict[str, list[list[float]]] = {"without OpenCV": [], "with OpenCV": []}
    heavy = ""
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder))
        for i in range(options.rounds + 1):
            imported = {name: float(run(IMPORT, name)[0]) for name in imports}
            order = list(starts) if i % 2 else list(starts)[::-1]
            for name in order:
                modules = ["cv2"] if name == "with OpenCV" else []
                seconds, loaded = run(FIRST, folder, str(options.threads), *modules)
                if not modules:
                    heavy = loaded.strip()
                if i:  # the first round warms the caches
                    starts[name].append([float(v) for v in seconds.split()])
            if i:
                for name, seconds in imported.items():
                    imports[name].append(seconds)
    result = {
        "import_seconds": {name: middle(values) for name, values in imports.items()},
        "heavy_modules_loaded_after_a_batch": heavy,
        "first_batch": {
            name: {
                "seconds": {
                    stage: middle([row[k] for row in rows]) for k, stage in enumerate(NAMES)
                },
                "construction_to_first_batch_seconds": middle([sum(row[1:3]) for row in rows]),
                "the_same_in_cpu_seconds": middle([row[3] for row in rows]),
            }
            for name, rows in starts.items()
        },
        "opencv_adds_cpu_seconds": middle(
            [b[3] - a[3] for a, b in zip(*starts.values(), strict=True)]
        ),
        "installed_megabytes": installed(),
    }
    finish("How long until the first batch?", result, options.out)


def middle(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 4), "max": round(max(values), 4)}


def installed() -> dict[str, float]:
    """Megabytes on disk of the base dependencies and of what they need, by their lists of files;
    largest first.
    """
    sizes: dict[str, float] = {}
    names = ["fastfeed"]
    while names:
        name = names.pop()
        if name in sizes:
            continue
        package = metadata.distribution(name)
        if name == "fastfeed":  # installed for editing: the package and its kernel
            kernel = [file for file in package.files or [] if file.suffix == ".so"]
            files = [
                *Path(__file__).parents[1].glob("fastfeed/**/*.py*"),
                *map(package.locate_file, kernel),
            ]
        else:
            files = [package.locate_file(file) for file in package.files or []]
        paths = [Path(str(file)) for file in files if "__pycache__" not in str(file)]
        sizes[name] = round(sum(path.stat().st_size for path in paths if path.is_file()) / 1e6, 1)
        plain = [line for line in package.requires or [] if ";" not in line]
        names += [re.split(r"[^\w.-]", line)[0].lower() for line in plain]
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


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


def run(program: str, *arguments: str) -> tuple[str, str]:
    """What it prints to stdout and to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


if __name__ == "__main__":
    main()
