"""Do ranks keep up with each other?

One to eight processes on one machine, each with its feed and a made-up step.

Every rank walks its share of the same epoch; a step sleeps, as a trainer does that has queued its
work on a GPU, and ends when all ranks have ended it, as an all-reduce does. The work per rank is
fixed and small enough for the cores at hand to serve eight of them, so that what is measured is the
feed's coordination, not their speed.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from typing import Any

import numpy as np
from rounds import arguments, finish

import fastfeed as ff

STEP_S, STEPS, BATCH, SIZES = 0.1, 40, 4, (1, 2, 4, 8)


def main() -> None:
    options = arguments(__doc__, rounds=5)
    rounds: list[dict[int, dict[str, float]]] = []
    for i in range(options.rounds):
        order = SIZES if i % 2 else SIZES[::-1]
        rounds.append({size: run(size) for size in order})
    rows = []
    for size in SIZES:
        efficiency = [r[1]["seconds"] / r[size]["seconds"] for r in rounds]
        rows.append(
            {
                "ranks": size,
                "samples_per_second": round(statistics.median(r[size]["rate"] for r in rounds), 1),
                "efficiency": round(statistics.median(efficiency), 3),
                "farthest_behind": round(statistics.median(r[size]["behind"] for r in rounds), 3),
                "rounds": [round(e, 3) for e in efficiency],
            }
        )
    question = "How much of one process's rate do eight keep, each?"
    finish(
        question,
        {"step_ms": STEP_S * 1e3, "claims": {"efficiency": 0.95, "behind": 0.05}, "rows": rows},
        options.out,
    )


def run(size: int) -> dict[str, float]:
    """All ranks once.

    Behind: how much later than the mean the slowest rank was ready for a step, as a share of it.
    """
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(size), context.Queue()
    ranks = [context.Process(target=rank, args=(r, size, barrier, results)) for r in range(size)]
    for process in ranks:
        process.start()
    found = [results.get(timeout=300) for _ in ranks]
    for process in ranks:
        process.join()
    own = np.array([f["own"] for f in found])  # time that a rank needed for itself, over all steps
    return {
        "seconds": statistics.median(f["seconds"] for f in found),
        "rate": size * BATCH * STEPS / statistics.median(f["seconds"] for f in found),
        "behind": float(own.max() / own.mean() - 1),
    }


def rank(number: int, size: int, barrier: Any, results: Any) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2048, 96, 96, 3), dtype=np.uint8)
    source, world = ff.Arrays(images, np.zeros(2048, int)), ff.World(number, size, number, size)
    ops = [ff.RandomResizedCrop(64), ff.RandomFlip(), ff.Normalize.imagenet()]
    with ff.Feed(source, ops, global_batch=BATCH * size, world=world, threads=1) as feed:
        walk = iter(feed.batches(0, epochs=None))
        for _ in range(5):
            next(walk)
        barrier.wait()
        begin, own = time.perf_counter(), 0.0
        for _ in range(STEPS):
            ready = time.perf_counter()
            next(walk)
            time.sleep(STEP_S)
            own += time.perf_counter() - ready
            barrier.wait()
        results.put({"seconds": time.perf_counter() - begin, "own": own})


if __name__ == "__main__":
    main()
