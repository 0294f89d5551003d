"""How much of a producer does `prefetch_to_device` hide behind the step?

A generator of NumPy batches takes 0.8 of a step for each; the step waits for a device (it sleeps,
as a trainer does that has queued its work on a GPU). One after the other that is 1.8 steps per
batch; hidden, 1.0. The generator waits (as for a disk), or computes and lets go of the
interpreter's lock (it sorts an array), or computes and never does (a loop of pure Python). A step
is 25 ms.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
from rounds import arguments, finish

import fastfeed as ff

STEP_S, SHARE, BATCHES = 0.025, 0.8, 60


def main() -> None:
    options = arguments(__doc__, rounds=7)
    found = {}
    works = {
        "waits": lambda: time.sleep(SHARE * STEP_S),
        "sorts an array": sorts(),
        "loops in Python": loops(),
    }
    for name, work in works.items():
        rows = []
        for _ in range(options.rounds + 1):
            rows.append(once(work))
        rows = rows[1:]
        hidden = [
            1 - (r["prefetch_to_device"] - r["steps"]) / (r["one after the other"] - r["steps"])
            for r in rows
        ]
        found[name] = {
            "producer_share_of_step": round(
                statistics.median(r["producer"] / r["steps"] for r in rows), 3
            ),
            "seconds": {key: round(statistics.median(r[key] for r in rows), 3) for key in rows[0]},
            "hidden": round(statistics.median(hidden), 3),
            "rounds": [round(share, 3) for share in hidden],
        }
    question = "How much of a producer of 0.8 steps is hidden?"
    finish(
        question,
        {"step_ms": STEP_S * 1e3, "batches": BATCHES, "claim": 0.9, "producers": found},
        options.out,
    )


def once(work: Callable[[], object]) -> dict[str, float]:
    """Seconds of one round."""
    return {
        "steps": steps(),
        "producer": timed(lambda: producer(work), consume=False),
        "one after the other": timed(lambda: producer(work)),
        "prefetch_to_device": timed(lambda: ff.prefetch_to_device(producer(work), "torch:cpu")),
    }


def steps() -> float:
    """Seconds that the steps alone take: sleeping comes back late by what the machine adds."""
    begin = time.perf_counter()
    for _ in range(BATCHES):
        time.sleep(STEP_S)
    return time.perf_counter() - begin


def producer(work: Callable[[], object]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    images, labels = np.zeros((64, 64, 64, 3), np.uint8), np.arange(64)
    for i in range(BATCHES):
        work()
        images[:] = i % 256
        yield images, labels


def timed(items: Callable[[], Iterator[object]], consume: bool = True) -> float:
    """Seconds of a run, a step for each item."""
    begin = time.perf_counter()
    for _ in items():
        if consume:
            time.sleep(STEP_S)
    return time.perf_counter() - begin


def sorts() -> Callable[[], object]:
    """Takes SHARE of a step here and now."""
    numbers = np.random.default_rng(0).random(1 << 22)
    return calibrated(lambda n: np.sort(numbers[:n]), 1 << 22)


def loops() -> Callable[[], object]:
    return calibrated(lambda n: sum(range(n)), 1 << 22)


def calibrated(work: Callable[[int], object], most: int) -> Callable[[], object]:
    """`work` of the size that takes this thread SHARE of a step, found by trying."""
    n = most // 64
    for _ in range(12):
        begin = time.thread_time()
        for _ in range(5):
            work(n)
        n = min(most, max(1, int(n * SHARE * STEP_S * 5 / (time.thread_time() - begin))))
    return lambda: work(n)


if __name__ == "__main__":
    main()
