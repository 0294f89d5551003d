"""Writes one scenario in every dialect, to try things by hand.

python tests/helpers/profiler/simulator/write.py late_peer late_peer
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from helpers.profiler.simulator.cases import ALL
from helpers.profiler.simulator.events import Run
from helpers.profiler.simulator.to_chrome import write_chrome
from helpers.profiler.simulator.to_nsys import write_nsys
from helpers.profiler.simulator.to_nvprof import write_nvprof, write_nvprof_csv
from helpers.profiler.simulator.to_timeline import write_timeline
from helpers.profiler.simulator.to_xplane import write_xplane


def _whole_graphs(run: Run, path: Path) -> Path:
    return write_nsys(run, path, granularity="graph")


WRITERS: Mapping[str, tuple[str, Callable[[Run, Path], Path]]] = {
    "nsys": (".sqlite", write_nsys),
    "nsys_graph": (".sqlite", _whole_graphs),
    "chrome": (".pt.trace.json.gz", write_chrome),
    "xplane": (".xplane.pb", write_xplane),
    "nvprof": (".nvvp", write_nvprof),
    "nvprof_csv": (".csv", write_nvprof_csv),
    "timeline": (".jsonl", write_timeline),
}


def write(run: Run, dialect: str, folder: Path, *, together: bool = False) -> list[Path]:
    """One file per process; with `together` one file of all, as nsys makes of processes with one
    parent.
    """
    suffix, writer = WRITERS[dialect]
    if together:
        return [writer(run, folder / f"{dialect}{suffix}")]
    return [
        writer(run.of(at), folder / f"{dialect}_rank{host.rank}{suffix}")
        for at, host in enumerate(run.hosts)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", choices=sorted(ALL))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    scenario = ALL[args.scenario]
    run = scenario.make(args.seed)
    args.folder.mkdir(parents=True, exist_ok=True)
    for dialect in WRITERS:
        if dialect not in ("nsys", "nsys_graph") and args.scenario == "two_processes":
            continue  # these record one process each
        for path in write(run, dialect, args.folder, together=args.scenario == "two_processes"):
            print(path)
    for gpu in sorted({one.gpu for one in run.idle}):
        causes: Counter[str] = Counter()
        for one in run.idle:
            if one.gpu == gpu:
                causes[one.cause.name.lower()] += one.end - one.start
        print(
            f"GPU {gpu} idle:",
            ", ".join(f"{cause} {ns / 1e6:.3f} ms" for cause, ns in causes.most_common()),
        )
    print("expected:", " or ".join(sorted(scenario.words)))


if __name__ == "__main__":
    main()
