"""What does a feed cost a trainer whose own Python is busy: in its process, and with a helper
process?

The trainer's step is a loop of pure Python that takes about 10 ms where nothing else runs. Decoding
threads in the same process take turns with it at the interpreter's lock; those of a helper process
do not.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict

from rounds import DATA, arguments, finish, interleaved, ratio

import fastfeed as ff

BATCH, STEPS, STEP_MS = 64, 20, 10
OPS = [ff.RandomResizedCrop(224), ff.RandomFlip(), ff.Normalize.imagenet()]


def main() -> None:
    options = arguments(__doc__, rounds=5)
    source = ff.ImageFolder(DATA / "imagenet-sample", labeled=False)
    loops = calibrated()
    took: dict[str, list[float]] = defaultdict(list)  # milliseconds of each step
    with (
        ff.Feed(source, OPS, batch=BATCH, threads=options.threads) as inside,
        ff.Feed(source, OPS, batch=BATCH, threads=options.threads, side_process=True) as helped,
    ):

        def train(name: str, feed: ff.Feed | None) -> int:
            steps = range(STEPS) if feed is None else feed.batches(0, 0, STEPS // len(feed) + 1)
            for _, _batch in zip(range(STEPS), steps, strict=False):
                begin = time.perf_counter()
                busy(loops)
                took[name].append(1e3 * (time.perf_counter() - begin))
            if feed is not None:
                steps.close()
            return STEPS * BATCH

        contestants = {"no feed": None, "in process": inside, "side process": helped}
        result = interleaved(
            options.rounds,
            {
                name: lambda name=name, feed=feed: train(name, feed)
                for name, feed in contestants.items()
            },
        )
    for name, row in result.items():
        steps = took[name][STEPS:]  # without the round to warm up
        row["step_ms"] = round(statistics.median(steps), 2)
        row["step_ms_mean"] = round(statistics.mean(steps), 2)
    finish(
        "What does a feed cost a trainer whose Python is busy?",
        {
            "batch": BATCH,
            "steps": STEPS,
            "step_ms_meant": STEP_MS,
            "cpu_ms_per_image": "of the trainer's process alone",
            "result": result,
            "side_by_in_process": ratio(result, "side process", "in process"),
            "step_in_process_by_side": round(
                result["in process"]["step_ms"] / result["side process"]["step_ms"], 3
            ),
        },
        options.out,
    )


def busy(loops: int) -> int:
    """Holds the interpreter's lock, as a trainer does that launches many small kernels."""
    total = 0
    for i in range(loops):
        total += i & 3
    return total


def calibrated() -> int:
    """Loops of a step."""
    loops = 100_000
    best = min(timed(loops) for _ in range(5))
    return max(1, round(loops * STEP_MS / best))


def timed(loops: int) -> float:
    """Milliseconds."""
    begin = time.perf_counter()
    busy(loops)
    return 1e3 * (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
