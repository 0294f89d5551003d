"""What the benchmarks share: interleaved rounds, medians, and a JSON with the machine it ran on."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.real_data import real_data

DATA = real_data()


def parser(doc: str | None, rounds: int) -> argparse.ArgumentParser:
    """For the options that every benchmark has."""
    made = argparse.ArgumentParser(description=doc)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--out", type=Path, help="also write the JSON here")
    return made


def arguments(doc: str | None, rounds: int) -> argparse.Namespace:
    """Those options alone."""
    return parser(doc, rounds).parse_args()


def interleaved(
    rounds: int, contestants: dict[str, Callable[[], int]]
) -> dict[str, dict[str, Any]]:
    """Run all in turn, `rounds` times; each returns its number of images.

    A round to warm up comes first.
    """
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    for i in range(rounds + 1):
        order = list(contestants) if i % 2 else list(contestants)[::-1]
        for name in order:
            wall, busy = time.perf_counter(), _cpu_seconds()
            images = contestants[name]()
            wall, busy = time.perf_counter() - wall, _cpu_seconds() - busy
            if i:
                rates[name].append(images / wall)
                cpu[name].append(1e3 * busy / images)
    return {
        name: {
            "images_per_second": round(statistics.median(rates[name]), 1),
            "spread": [round(min(rates[name]), 1), round(max(rates[name]), 1)],
            "cpu_ms_per_image": round(statistics.median(cpu[name]), 3),
            "rounds": [round(r, 1) for r in rates[name]],
        }
        for name in contestants
    }


def ratio(result: dict[str, dict[str, Any]], of: str, to: str) -> float:
    """Median over rounds of one contestant's rate by another's in the same round."""
    pairs = zip(result[of]["rounds"], result[to]["rounds"], strict=True)
    return round(statistics.median(a / b for a, b in pairs), 3)


def cpu_rounds(rounds: int, contestants: dict[str, Callable[[], int]]) -> dict[str, list[float]]:
    """Microseconds of processor time per image of each contestant in each round."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for i in range(rounds + 1):
        for name in list(contestants) if i % 2 else list(contestants)[::-1]:
            busy = time.process_time()
            images = contestants[name]()
            if i:
                found[name].append(1e6 * (time.process_time() - busy) / images)
    return found


def finish(question: str, result: dict[str, Any], out: Path | None) -> None:
    """Print the result, and keep it."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    report = {
        "question": question,
        "command": (
            "python "
            + " ".join(["benchmarks/" + Path(sys.argv[0]).name, *map(_plain, sys.argv[1:])])
        ),
        "commit": commit.stdout.strip(),
        "machine": {
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
        },
        "versions": {
            name: metadata.version(name) for name in ("numpy", "pillow", "opencv-python-headless")
        },
        **result,
    }
    text = json.dumps(report, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")


def rss_mb(pid: int | str = "self") -> float:
    """Resident memory of a process now, MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def cpu_seconds(pid: int) -> float:
    """Processor time of a running process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _plain(argument: str) -> str:
    """The last folders of a path: reports do not need the rest."""
    return "/".join(Path(argument).parts[-3:]) if argument.startswith("/") else argument


def _cpu_seconds() -> float:
    """Of this process, of those it started that have ended, and of workers of multiprocessing."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    workers = [child.pid for child in multiprocessing.active_children() if child.pid]
    return sum(each.ru_utime + each.ru_stime for each in used) + sum(map(cpu_seconds, workers))


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
