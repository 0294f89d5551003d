"""How fast do photographs become shards, end to end, and what does committing cost?

A job of ours reads files, hashes, shrinks, encodes, packs into a tar, calls fsync and writes its
records; rivals only compute, on bytes in memory. img2dataset runs in the Python of --rivals, an
environment of its own, for it needs an older OpenCV: python -m venv rivals && rivals/bin/pip
install img2dataset==1.47.0 "opencv-python-headless<5"
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench_recode import reference, scaled, ssim, vips
from rounds import DATA, finish, interleaved, parser, ratio

from fastfeed.decode import NativeEngine, Recoder
from fastfeed.ops import Decode, Resize
from fastfeed.preprocess import Packing, Recipe, Report, Scaling, run

QUALITY = 90


def main() -> None:
    options = parser(__doc__, rounds=5)
    options.add_argument("--rivals", type=Path, help="the Python that has img2dataset")
    options.add_argument(
        "--large", type=int, default=40, help="times each of the large photographs is there"
    )
    options.add_argument("--small", type=int, default=12, help="times each of ImageNet's")
    given = options.parse_args()
    report: dict[str, Any] = {}
    for name, side, times in (
        ("photos-large", 512, given.large),
        ("imagenet-sample", 256, given.small),
    ):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as held:
            report[f"{name} -> {side}"] = compare(name, side, times, Path(folder), given, held)
    finish("How fast do photographs become shards?", report, given.out)


def compare(
    name: str, side: int, times: int, folder: Path, given: Any, held: contextlib.ExitStack
) -> dict[str, Any]:
    paths = [path for path in sorted((DATA / name).rglob("*")) if path.is_file()]
    source = copied(paths, folder / "source", times)
    blobs = [path.read_bytes() for path in paths]
    threads, reports = given.threads, []
    # ten shards: workers should not wait for the last
    packing = Packing(samples=max(20, len(paths) * times // 10))

    def job() -> int:
        target = folder / f"shards-{len(reports)}"
        reports.append(
            run(str(source), target, Recipe(Scaling(side), packing=packing), workers=threads)
        )
        shutil.rmtree(target)
        return reports[-1].tally.samples

    recoder = Recoder(
        [Resize(side, filter="lanczos")], quality=QUALITY, threads=threads, decode="native"
    )
    thumbnail, _ = vips(side)
    runs: dict[str, Callable[[], int]] = {
        "fastfeed preprocess, end to end": job,
        "fastfeed, compute only": lambda: times_over(times // 4 or 1, lambda: len(recoder(blobs))),
        "pyvips thumbnail, compute only": in_threads(thumbnail, blobs, threads, times // 4 or 1),
    }
    if given.rivals:
        runs["img2dataset Resizer, compute only"] = held.enter_context(
            resizers(given, side, paths, times // 4 or 1)
        )
    result = interleaved(given.rounds, runs)
    ours = "fastfeed preprocess, end to end"
    engine = scaled(NativeEngine(Decode()), side)
    values = [ssim(engine(blob), reference(blob, side)) for blob in blobs if decodes(engine, blob)]
    return {
        "result": result,
        "ratios": {
            f"{ours} / {other}": ratio(result, ours, other) for other in runs if other != ours
        },
        "shares_of_the_workers_time": shares(reports),
        "ssim": {
            "mean": round(statistics.mean(values), 4),
            "least": round(min(values), 4),
            "images": len(values),
        },
    }


def copied(paths: list[Path], folder: Path, times: int) -> Path:
    """Every file so many times, as hard links where that is possible."""
    folder.mkdir(parents=True)
    for k in range(times):
        for path in paths:
            link = folder / f"{k:03d}-{path.name}"
            try:
                os.link(path, link)
            except OSError:
                shutil.copyfile(path, link)
    return folder


def times_over(times: int, once: Callable[[], int]) -> int:
    return sum(once() for _ in range(times))


def in_threads(
    one: Callable[[bytes], Any], blobs: list[bytes], threads: int, times: int
) -> Callable[[], int]:
    def once() -> int:
        with ThreadPoolExecutor(threads) as pool:
            return sum(1 for _ in pool.map(one, blobs * times))

    return once


def decodes(engine: Callable[[bytes], Any], blob: bytes) -> bool:
    """Whether the native extension takes it: CMYK, for one, goes another way."""
    try:
        engine(blob)
    except AssertionError:
        return False
    return True


def shares(reports: list[Report]) -> dict[str, float]:
    """Median over jobs of each stage's share of all stages' seconds."""
    stages = sorted({stage for report in reports for stage in report.stages})
    return {
        stage: round(
            statistics.median(r.stages.get(stage, 0.0) / sum(r.stages.values()) for r in reports), 4
        )
        for stage in stages
    }


@contextlib.contextmanager
def resizers(given: Any, side: int, paths: list[Path], times: int) -> Iterator[Callable[[], int]]:
    """One process per thread of the others; each has its part of the files."""
    script = Path(__file__).with_name("rival_resizer.py")
    parts = [
        [str(path) for path in paths * times][k :: given.threads] for k in range(given.threads)
    ]
    processes = [
        subprocess.Popen(
            [str(given.rivals), str(script), str(side), *part],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part in parts
    ]
    for process in processes:
        assert process.stdout is not None
        while "ready" not in (line := process.stdout.readline()):
            assert line, "img2dataset did not start"

    def once() -> int:
        done = 0
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            assert process.stdout is not None
            done += int(process.stdout.readline().split()[0])
        return done

    try:
        yield once
    finally:
        for process in processes:
            process.communicate()


if __name__ == "__main__":
    main()
