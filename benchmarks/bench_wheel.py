"""Is a wheel, with its own libjpeg-turbo and Highway, as fast as a build from source on this
machine?

`--source` and `--wheel` are the Pythons of two virtual environments, in which fastfeed is
installed. Each measurement is a process of its own, which warms up with one pass over the files;
source and wheel take turns. Decoding alone as in bench_decode.py, and feeds whose ops run through
Highway.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rounds import DATA, finish, parser, ratio

AIM = 0.98  # of the rate of the source build
# name -> (folder, windows or list of ops, passes over the files)
CASES: dict[str, tuple[str, str, int]] = {
    "ImageNet-size, random crop": ("imagenet-sample", "random crop", 8),
    "photographs, random crop": ("photos-large", "random crop", 6),
    "photographs, whole": ("photos-large", "whole image", 6),
    "feed, crop and flip": ("imagenet-sample", "crop", 8),
    "feed, RandAugment and ColorJitter": ("imagenet-sample", "policies", 6),
}


def main() -> None:
    made = parser(__doc__, rounds=9)
    made.add_argument(
        "--source", type=Path, default=Path(sys.executable), help="Python of the source build"
    )
    made.add_argument("--wheel", type=Path, help="Python of the environment that has the wheel")
    made.add_argument(
        "--passes", type=int, help="passes over the files in each measurement; default: by case"
    )
    made.add_argument("--page", type=Path, help="also write the tables as a page")
    made.add_argument("--child", choices=CASES, help=argparse.SUPPRESS)
    options = made.parse_args()
    if options.child:
        json.dump(measured(options.child, options.threads, options.passes), sys.stdout)
        return
    if not options.wheel:
        print(
            "Not measured: --wheel PYTHON names the Python of a virtual environment that has the"
            " wheel."
        )
        return
    pythons = {"source": options.source, "wheel": options.wheel}
    result = {case: taken_in_turn(case, pythons, options) for case in CASES}
    report: dict[str, Any] = {
        "installations": {name: about(python) for name, python in pythons.items()},
        "result": result,
        "ratios": {case: ratio(of, "wheel", "source") for case, of in result.items()},
    }
    if options.page:
        options.page.write_text(page(report, options.rounds, options.threads))
    finish("Is a wheel as fast as a build from source?", report, options.out)


def taken_in_turn(
    case: str, pythons: dict[str, Path], options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """As `rounds.interleaved`, with a process for each measurement."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    for i in range(options.rounds):
        for name in list(pythons) if i % 2 else list(pythons)[::-1]:
            command = [
                str(Path(__file__).resolve()),
                "--child",
                case,
                "--threads",
                str(options.threads),
            ]
            command += ["--passes", str(options.passes or CASES[case][2])]
            taken[name].append(json.loads(run(pythons[name], *command)))
    return {
        name: {
            "images_per_second": round(
                statistics.median(rates := [one["rate"] for one in taken[name]]), 1
            ),
            "spread": [round(min(rates), 1), round(max(rates), 1)],
            "cpu_ms_per_image": round(statistics.median(one["cpu_ms"] for one in taken[name]), 3),
            "rounds": [round(rate, 1) for rate in rates],
        }
        for name in pythons
    }


def run(python: Path, *command: str) -> str:
    """What a program prints; it cannot see the tree, only what is installed."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ["FASTFEED_TEST_DATA"] = str(DATA.resolve())
    absolute = os.path.abspath(python)  # not resolved: a virtual environment's Python is a link
    return subprocess.check_output([absolute, *command], cwd="/", env=environ, text=True)


def about(python: Path) -> dict[str, str]:
    code = (
        "import fastfeed._native as n, json, numpy, platform; print(json.dumps({'libjpeg_turbo':"
        " n.LIBJPEG_TURBO, 'bundled': n.LIBJPEG_BUNDLED, 'simd': n.LIBJPEG_SIMD, 'instruction_set':"
        " n.instruction_sets()[0], 'python': platform.python_version(), 'numpy':"
        " numpy.__version__}))"
    )
    return json.loads(run(python, "-c", code))


def page(report: dict[str, Any], rounds: int, threads: int) -> str:
    """The tables for results/wheel.md; what they mean is for a person to write."""
    lines = [
        "# The wheel against a build from source",
        "",
        f"**Question:** does the wheel reach {AIM} of the rate of a source build on one machine?",
        (
            f"**Answer:** {min(report['ratios'].values()):.2f} to"
            f" {max(report['ratios'].values()):.2f} of it."
        ),
        "",
        (
            f"{threads} threads, {rounds} interleaved rounds, a process for each measurement;"
            " median images/s and CPU ms per image; the ratio is the median over rounds."
        ),
        "",
        "| | libjpeg-turbo | instruction set | Python |",
        "|---|---|---|---|",
    ]
    for name, its in report["installations"].items():
        place = "bundled" if its["bundled"] else "the system's"
        lines.append(
            f"| {name} | {its['libjpeg_turbo']}, {place} | {its['instruction_set']} |"
            f" {its['python']} |"
        )
    head = "| | source, images/s | CPU ms | wheel, images/s | CPU ms | wheel / source | target |"
    lines += ["", head, "|---" * 7 + "|"]
    for case, of in report["result"].items():
        cells = [
            f"{its['images_per_second']:.0f} | {its['cpu_ms_per_image']:.2f}" for its in of.values()
        ]
        lines.append(f"| {case} | {' | '.join(cells)} | {report['ratios'][case]:.3f} | {AIM} |")
    return "\n".join(lines) + "\n"


# -- in a process of its own


def measured(case: str, threads: int, passes: int) -> dict[str, float]:
    """Images per second, and milliseconds of processor time per image."""
    job(case, threads, 1)()
    timed = job(case, threads, passes)
    wall, busy = time.perf_counter(), cpu_seconds()
    images = timed()
    return {
        "rate": images / (time.perf_counter() - wall),
        "cpu_ms": 1e3 * (cpu_seconds() - busy) / images,
    }


def job(case: str, threads: int, passes: int) -> Callable[[], int]:
    from bench_decode import engine_run

    import fastfeed as ff
    from fastfeed.decode import NativeEngine

    name, kind, _ = CASES[case]
    folder = DATA / name
    lists: dict[str, list[Any]] = {
        "crop": [],
        "policies": [ff.RandAugment(), ff.ColorJitter(0.4, 0.4, 0.4)],
    }
    if kind not in lists:
        blobs = [path.read_bytes() for path in sorted(folder.iterdir())]
        return engine_run(
            NativeEngine, blobs, kind, threads, passes, 16 if name == "imagenet-sample" else 1
        )
    ops = [ff.RandomResizedCrop(224), ff.RandomFlip(), *lists[kind]]
    feed = ff.Feed(ff.ImageFolder(folder, labeled=False), ops, batch=50, seed=0, threads=threads)
    return lambda: sum(len(batch) for batch in feed.batches(0, epochs=passes))


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
