"""How much memory does a job take, of 100-megapixel photographs, and is --memory kept?

Peaks of one worker process, each photograph in a job of its own (VmHWM: with Python and libraries);
then a job of all of them and small ones, several workers, `memory="2GB"`: the sum over all
processes of what each has for itself or its share of (PSS), read every 20 ms.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rounds import DATA, finish, parser

from fastfeed.preprocess import Packing, Recipe, Report, Scaling, run

HEIGHT, WIDTH = 8192, 12288  # 100.7 megapixels
WORKERS, MEMORY = 4, "2GB"


def main() -> None:
    given = parser(__doc__, rounds=1).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = made(Path(folder, "made"))
        alone = {name: peak_alone(path, Path(folder)) for name, path in files.items()}
        together = peak_together(files, Path(folder))
    report = {"one_worker": alone, f"all_together, {WORKERS} workers, memory {MEMORY}": together}
    finish("How much memory does a job of 100-megapixel photographs take?", report, given.out)


def made(folder: Path) -> dict[str, Path]:
    """A real photograph, enlarged, with a little noise: as a file of each kind."""
    folder.mkdir()
    photo = (
        Image.open(min((DATA / "photos-large").iterdir())).convert("RGB").resize((WIDTH, HEIGHT), 3)
    )
    rng = np.random.default_rng(0)
    pixels = np.asarray(photo)
    for top in range(0, HEIGHT, 512):  # of all of it at once the noise alone would take gigabytes
        part = pixels[top : top + 512].astype(np.int16) + rng.integers(
            -2, 3, (512, WIDTH, 1), np.int16
        )
        photo.paste(Image.fromarray(part.clip(0, 255).astype(np.uint8)), (0, top))
    wide = Image.fromarray(np.asarray(photo.convert("L")).astype(np.uint16) * 257)
    ways: dict[str, tuple[Image.Image, str, dict[str, Any]]] = {
        "JPEG": (photo, "jpg", {"quality": 92}),
        "progressive JPEG, 4:2:0": (photo, "progressive.jpg", {"quality": 92, "progressive": True}),
        "progressive JPEG, 4:4:4": (
            photo,
            "444.jpg",
            {"quality": 92, "progressive": True, "subsampling": 0},
        ),
        "PNG": (photo, "png", {"compress_level": 1}),
        "PNG, 16-bit gray": (wide, "16.png", {"compress_level": 1}),
        "TIFF, deflate": (photo, "tiff", {"compression": "tiff_deflate"}),
        "WebP": (photo, "webp", {"quality": 80, "method": 0}),
    }
    files = {}
    for name, (image, suffix, how) in ways.items():
        files[name] = folder / f"large.{suffix}"
        image.save(files[name], **how)
    return files


def peak_alone(path: Path, folder: Path) -> dict[str, Any]:
    """Megabytes of the worker process at its peak, and what became of the photograph."""
    source = folder / f"alone-{path.name}"
    source.mkdir()
    os.link(path, source / path.name)
    with Watched() as watched:
        report = run(str(source), folder / f"shards-{path.name}", workers=1)
    return {"file_mb": round(path.stat().st_size / 1e6), "worker_mb": watched.worker_mb} | outcome(
        report
    )


def peak_together(files: dict[str, Path], folder: Path) -> dict[str, Any]:
    source = folder / "together"
    source.mkdir()
    small = [path for path in sorted((DATA / "imagenet-sample").iterdir()) if path.is_file()]
    for k in range(3):
        for name, path in files.items():
            os.link(path, source / f"{k}-{name.replace(' ', '')}-{path.name}")
        for path in small:
            (source / f"{k}-{path.name}").write_bytes(path.read_bytes())
    recipe = Recipe(Scaling(512), packing=Packing(samples=24))
    with Watched() as watched:
        report = run(
            str(source), folder / "shards-together", recipe, workers=WORKERS, memory=MEMORY
        )
    # of single ones nothing: a process that has not begun its own program yet counts all that this
    # one has
    return {"all_processes_mb": watched.total_mb} | outcome(report)


def outcome(report: Report) -> dict[str, Any]:
    return {
        "made": report.tally.samples,
        "bad": dict(report.reasons),
        "seconds": round(report.seconds, 1),
    }


class Watched:
    """What this process and all that it has started take at their peak."""

    def __enter__(self) -> Watched:
        self.total_mb = self.worker_mb = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        ours = os.getpid()
        while not self._end.is_set():
            workers = [
                int(pid) for t in os.listdir(f"/proc/{ours}/task") for pid in _children(ours, t)
            ]
            total = sum(_kilobytes(pid, "smaps_rollup", "Pss:") for pid in (ours, *workers))
            self.total_mb = max(self.total_mb, total * 1024 // 10**6)
            for pid in workers:
                self.worker_mb = max(
                    self.worker_mb, _kilobytes(pid, "status", "VmHWM:") * 1024 // 10**6
                )
            time.sleep(0.02)


def _children(pid: int, task: str) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/task/{task}/children").read_text().split()
    return []


def _kilobytes(pid: int, file: str, line: str) -> int:
    with suppress(OSError):  # it has ended
        for found in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if found.startswith(line):
                return int(found.split()[1])
    return 0


if __name__ == "__main__":
    main()
