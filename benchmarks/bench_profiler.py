"""How long does `fastfeed analyze` take on large traces, how much memory, and how large is its
page?

Each round runs the command in a process of its own, twice: as it is typed, up to the verdict in the
terminal, and with the page and the JSON. The traces are made by the writers of the tests: a million
kernels with their launches as Nsight Systems exports them, the same as Chrome JSON in the layout of
PyTorch (gzipped too), and a Chrome JSON of two gigabytes. Real traces as well, if they are there.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rounds import DATA, finish, parser

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.profiler.kineto_files import large
from helpers.profiler.nsys_databases import million

EVENTS = 1_000_000
BARS = {  # seconds to the verdict, GB
    "nsys SQLite, 1 M kernels": (2.0, 0.5),
    "Chrome JSON, 1 M kernels": (20.0, 1.5),
    "Chrome JSON, 2 GB": (None, 1.5),
}


def main() -> None:
    made = parser(__doc__, rounds=3)
    made.add_argument("--events", type=int, default=EVENTS)
    made.add_argument("--without-2gb", action="store_true")
    options = made.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measured(Path(folder), options.events, options.rounds, not options.without_2gb)
    finish(
        __doc__.split("\n")[0],
        {"events": options.events, "rounds": options.rounds, "traces": result},
        options.out,
    )


def measured(folder: Path, events: int, rounds: int, two_gb: bool) -> dict[str, Any]:
    traces: dict[str, Path] = {
        "nsys SQLite, 1 M kernels": million(folder / "nsys.sqlite", events),
        "Chrome JSON, 1 M kernels": large(folder / "kineto.json", events),
    }
    packed = folder / "kineto.json.gz"
    with traces["Chrome JSON, 1 M kernels"].open("rb") as plain, gzip.open(packed, "wb", 1) as into:
        shutil.copyfileobj(plain, into, 1 << 20)
    traces["the same, gzipped"] = packed
    if two_gb:
        per_event = traces["Chrome JSON, 1 M kernels"].stat().st_size / events
        traces["Chrome JSON, 2 GB"] = large(folder / "huge.json", int(2e9 / per_event))
    for name in (
        "nsys_sqlite/nsysai_mfu_2gpu_before.sqlite",
        "kineto/lotus_v100_imagenet_b128_gpu4.json.xz",
    ):
        if (DATA / "traces" / name).is_file():
            traces[Path(name).name] = DATA / "traces" / name
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in traces}
    for number in range(rounds):
        order = list(traces) if number % 2 else list(traces)[::-1]
        for name in order:
            if name != "Chrome JSON, 2 GB" or not number:  # once: what counts is its memory
                seen[name].append(analyzed(traces[name], folder))
    return {name: summary(traces[name], rows, BARS.get(name)) for name, rows in seen.items()}


def analyzed(trace: Path, folder: Path) -> dict[str, float]:
    """Two runs of the command: wall and CPU seconds and peak memory in GB of each, and the size of
    the page in MB.
    """
    page = folder / "page.html"
    text, verdict = timed([str(trace)])
    if not text.strip():
        raise SystemExit(f"fastfeed analyze {trace} printed no report")
    text, whole = timed([str(trace), "--json", "--html", str(page)])
    json.loads(text)
    to_verdict = {f"verdict_{key}": value for key, value in verdict.items()}
    return to_verdict | whole | {"page_mb": page.stat().st_size / 1e6}


def timed(arguments: list[str]) -> tuple[bytes, dict[str, float]]:
    """What one run of `fastfeed analyze` printed, and what it took."""
    command = [str(Path(sys.executable).with_name("fastfeed")), "analyze", *arguments]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return text, {
        "wall_s": wall,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_gb": used.ru_maxrss / 1e6,
    }


def summary(
    trace: Path, rows: list[dict[str, float]], bar: tuple[float | None, float] | None
) -> dict[str, Any]:
    told: dict[str, Any] = {"file_mb": round(trace.stat().st_size / 1e6, 1)}
    told |= {key: round(statistics.median(row[key] for row in rows), 3) for key in rows[0]}
    told["rounds_s"] = [round(row["wall_s"], 2) for row in rows]
    if bar:
        told["bar_s"], told["bar_gb"] = bar
    return told


if __name__ == "__main__":
    main()
