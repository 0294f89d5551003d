"""Pages whose counters are made up, and a queue that counts as a feed does."""

from __future__ import annotations

import time
from typing import Any

from fastfeed.live.folder import process_identity
from fastfeed.live.page import COUNTERS, TRAINING, Page, PageWriter
from fastfeed.live.rates import PageReading

IDENTITY = {
    "pid": 4711,
    "host": "node7",
    "feed": "f3a9",
    "name": "train",
    "source": "ImageFolder",
    "rank": 0,
    "world": 1,
}
IDENTITY |= {
    "world": 1,
    "samples": 1000,
    "batch": 8,
    "steps": 125,
    "threads": 4,
    "prefetch": 2,
    "local_rank": 0,
}


def reading(
    at_s: float,
    stages: dict[str, float] | None = None,
    identity: dict[str, Any] | None = None,
    **counts: Any,
):
    """Times of counters in seconds; `stages`: seconds of all threads."""
    counters = dict.fromkeys(COUNTERS, 0) | {"phase": TRAINING}
    for name, value in counts.items():
        counters[name] = int(value * 1e9) if name.endswith(("_ns", "_s")) else value
    counters["stages_images"] = counts.get("stages_images", counters["images"])
    spent = {stage: (1, int(seconds * 1e9)) for stage, seconds in (stages or {}).items()}
    return PageReading(Page(IDENTITY | (identity or {}), counters, spent), int(at_s * 1e9))


def queue(
    make_ms: float, use_ms: float, prefetch: int, steps: int, batch: int = 8
) -> list[PageReading]:
    """Readings after every step of one thread that makes batches ahead of a trainer; no real time
    passes.
    """
    finished: list[float] = []  # ms, when each batch was ready
    taken: list[float] = []
    now, wait, consumer, ready = 0.0, 0.0, 0.0, [0] * 8
    readings = []
    for step in range(steps):
        room = taken[step - prefetch - 1] if step > prefetch else 0.0  # when its slot was free
        finished.append(max(finished[-1] if finished else 0.0, room) + make_ms)
        ready[int(finished[step] <= now)] += 1
        wait += max(0.0, finished[step] - now)
        now = max(now, finished[step])
        taken.append(now)
        readings.append(
            reading(
                now / 1e3,
                batches=step + 1,
                images=batch * (step + 1),
                wait_ns=wait / 1e3,
                consumer_ns=consumer / 1e3,
                since_ns=now / 1e3,
                asked=step + 1,
                ready_0=ready[0],
                ready_1=ready[1],
                stages={"decode": make_ms * (step + 1) / 1e3},
            )
        )
        now, consumer = now + use_ms, consumer + use_ms
    return readings


class Trainer:
    """A page that is written as a feed would; time passes when it is told to."""

    def __init__(self, folder, rank=0, **identity):
        self.now = time.monotonic_ns()
        self._counters = dict.fromkeys(COUNTERS, 0) | {"phase": 2}
        more = {"rank": rank, "world": 2, "local_rank": rank} | identity
        self._page = PageWriter(str(folder / f"{rank}.live"), IDENTITY | process_identity() | more)
        self._decode_ns = 0

    def train(self, seconds, wait=0.0, ready=2):
        """Steps of 0.1 s, of which it waits for this share."""
        c = self._counters
        for _ in range(round(seconds * 10)):
            self.now += 100_000_000
            c["batches"] += 1
            c["asked"] += 1
            c["images"] += 8
            c["read_bytes"] += 8 * 110_000
            c["wait_ns"] += int(1e8 * wait)
            c["consumer_ns"] += int(1e8 * (1 - wait))
            c[f"ready_{ready}"] += 1
            c["step"] += 1
            self._decode_ns += 8 * 40_000_000
        c["stages_ns"], c["stages_images"] = self.now, c["images"]
        self._page.set_stages({"read": (1, self._decode_ns // 10), "decode": (1, self._decode_ns)})
        self.enter(TRAINING)

    def enter(self, phase):
        """Another phase, from now on."""
        self._counters |= {"phase": phase, "since_ns": self.now, "updated_ns": self.now}
        self._page.write(list(self._counters.values()))
