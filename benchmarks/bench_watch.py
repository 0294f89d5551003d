"""How soon does fastfeed watch notice, and what does being watched cost?

Keras on TensorFlow trains on real photographs on one core, which other processes take and give
back; then the processor time of what a feed publishes per batch, and of a look.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import Any

from rounds import DATA, arguments, finish  # puts `helpers` on the path

from helpers.hogs import HOGS, Hogs, trainer_on  # isort: skip

import fastfeed as ff
from fastfeed.feed.session import FeedSession
from fastfeed.live.folder import folders
from fastfeed.live.states import State
from fastfeed.live.watch import Monitor

PHOTOGRAPHS = DATA / "flowers5" / "train"
FED, STARVED = (State.FED, State.TIGHT), (State.STARVED, State.SEVERE)
LIMIT_S = 240
STEADY_S = 15  # that a state must have lasted before the next change
LOOP = 500


def main() -> None:
    options = arguments(__doc__, rounds=5)
    core = min(os.sched_getaffinity(0))
    trainer, hogs = trainer_on(core, PHOTOGRAPHS), Hogs(core)
    changes: list[dict[str, Any]] = []
    try:
        watch = Monitor(folders(), trainer.pid)
        until(watch, FED)
        for _ in range(options.rounds):
            rest(watch)
            hogs.go()
            starved = until(watch, STARVED)
            rest(watch)
            hogs.stop()
            changes.append({"starved_s": starved, "fed_s": until(watch, FED)})
        looks = [spent(watch.look, 1) for _ in range(50)]
    finally:
        trainer.kill()
        trainer.wait()
        hogs.end()
    finish(
        "How soon does fastfeed watch notice, and what does being watched cost?",
        {
            "hogs": HOGS,
            "changes": changes,
            "median_s": {
                name: statistics.median(row[name] for row in changes)
                for name in ("starved_s", "fed_s")
            },
            "cpu_us": {
                "publishing, per batch": statistics.median(publishing(20)),
                "a look, one feed": statistics.median(looks),
            },
        },
        options.out,
    )


def until(watch: Monitor, states: tuple[State, ...]) -> float:
    """Seconds until the trainer is in one of these states, looking once a second as the command
    does.
    """
    begin = time.monotonic()
    while not any(row.judgment.state in states for row in watch.look().rows):
        if time.monotonic() > begin + LIMIT_S:
            raise TimeoutError(f"never {states}")
        time.sleep(1)
    return round(time.monotonic() - begin, 1)


def rest(watch: Monitor) -> None:
    end = time.monotonic() + STEADY_S
    while time.monotonic() < end:
        watch.look()
        time.sleep(1)


def publishing(rounds: int) -> list[float]:
    """Microseconds of processor time per batch."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FASTFEED_LIVE"] = folder
        with ff.Feed(ff.ImageFolder(PHOTOGRAPHS), [ff.CenterCrop(64)], batch=8) as feed:
            next(iter(feed))
            live = FeedSession.of(feed).live

            def publish() -> None:
                for step in range(LOOP):
                    live.requested(step, 1)
                    live.delivered(step, (0, step))

            return [spent(publish, LOOP) for _ in range(rounds)]


def spent(call: Any, times: int) -> float:
    """Microseconds of this thread for each of `times`."""
    begin = time.thread_time_ns()
    call()
    return round((time.thread_time_ns() - begin) / times / 1e3, 2)


if __name__ == "__main__":
    main()
