"""What fastfeed's own timeline file holds of the run: the feed's waits and stages, in
CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
from pathlib import Path

from helpers.profiler.simulator.events import STARTED_NS, Run

_MONOTONIC_NS = 86_400_000_000_000  # at time 0


def write_timeline(run: Run, path: Path) -> Path:
    """One process's feed, `decode` on its loader threads and `wait` on the trainer's."""
    host = run.hosts[0]
    feed = f"f{host.pid}"
    lines: list[object] = [
        {
            "fastfeed_timeline": 1,
            "feed": feed,
            "pid": host.pid,
            "rank": host.rank,
            "host": "node7",
            "name": "train",
        }
    ]
    last = max(stage.end for stage in run.stages)
    for at in (*range(0, last, 1_000_000_000), last):
        lines.append([feed, "anchor", at + _MONOTONIC_NS, at + STARTED_NS + host.skew_ns])
    for one in run.stages:
        span = [
            one.stage,
            one.batch,
            one.start + _MONOTONIC_NS,
            one.end + _MONOTONIC_NS,
            one.thread,
        ]
        lines.append([feed, "span", *span])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
