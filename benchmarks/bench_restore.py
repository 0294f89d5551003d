"""Does restoring cost the same at step 0 and at step 1,000,000?

What does the order of a billion samples cost?
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from itertools import pairwise

import numpy as np
from rounds import DATA, arguments, finish

import fastfeed as ff
from fastfeed.sampling import MixtureOrder, MixturePart
from fastfeed.spec import ENCODED

BATCH, LENGTH = 256, 1_000_000_000


class Billion:
    """A billion samples that are the same 150 photographs again and again."""

    spec, classes, fingerprint = ENCODED, (), "billion"

    def __init__(self) -> None:
        few = ff.ImageFolder(DATA / "imagenet-sample", labeled=False)
        self._blobs = few.read(range(len(few)))

    def __len__(self) -> int:
        return LENGTH

    def uri(self, i: int) -> str:
        return f"sample {i}"

    def read(self, ids):
        return [self._blobs[i % len(self._blobs)] for i in ids]

    def label(self, ids):
        return np.zeros(len(ids), np.int64)


class Shards:
    """Samples in shards of 50 to 200."""

    def __init__(self, count: int) -> None:
        sizes = np.random.default_rng(0).integers(50, 200, count)
        self.bounds = np.append(0, np.cumsum(sizes))

    def __len__(self) -> int:
        return int(self.bounds[-1])


def mixture_step_us(sources: int, shards: int = 100) -> float:
    """Processor time of the ids of one step, of a mixture of sources in shards."""
    source = Shards(sources * shards)
    edges = source.bounds[::shards].tolist()
    parts = [MixturePart(a, b - a, b - a, ff.Blocks()) for a, b in pairwise(edges)]
    plan = ff.Plan(len(source), BATCH, shuffle=MixtureOrder(tuple(parts)).bind(source))
    taken = []
    for step in range(200):
        begin = time.thread_time()
        plan.ids(0, step)
        taken.append(1e6 * (time.thread_time() - begin))
    return round(statistics.median(taken), 1)


def main() -> None:
    options = arguments(__doc__, rounds=15)
    feed = ff.Feed(Billion(), [ff.RandomResizedCrop(224)], batch=BATCH, threads=options.threads)
    restore: dict[int, list[float]] = {0: [], 1_000_000: [], 3_900_000: []}
    first: dict[int, list[float]] = {step: [] for step in restore}
    for i in range(options.rounds + 1):
        for step in restore:
            state = feed.state() | {"epoch": 3, "step": step}
            begin = time.perf_counter()
            feed.restore(state)
            restored = time.perf_counter()
            batch = next(iter(feed))
            ended = time.perf_counter()
            assert (batch.epoch, batch.step) == (3, step)
            del batch
            if i:
                restore[step].append(1e3 * (restored - begin))
                first[step].append(1e3 * (ended - restored))
    plan, ids = feed.plan, []
    for step in range(200):
        begin = time.perf_counter()
        plan.ids(1, step * 1_000)
        ids.append(1e6 * (time.perf_counter() - begin))
    mixtures = {str(sources): mixture_step_us(sources) for sources in (30, 300)}
    tracemalloc.start()
    ff.Plan(LENGTH, BATCH).ids(0, 1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    result = {
        "samples": LENGTH,
        "restore_ms": {str(step): round(statistics.median(v), 3) for step, v in restore.items()},
        "first_batch_ms": {str(step): round(statistics.median(v), 1) for step, v in first.items()},
        "ids_of_one_step_us": round(statistics.median(ids), 1),
        "ids_of_one_step_of_a_mixture_us": mixtures,
        "plan_peak_bytes": peak,
    }
    feed.close()
    finish("What does restoring cost, by position?", result, options.out)


if __name__ == "__main__":
    main()
