"""The kinds of input that a trainer is measured with, and the order in which they take turns."""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence


class Mode(str, enum.Enum):
    """Kind of input that a trainer is measured with.

    Each kind costs as much as the one before and one thing more.
    """

    RESIDENT = "resident"  # the same batch each time, on the device already
    # finished batches in host memory, handed over and copied; the feed's threads are idle
    CACHED = "cached"
    # as CACHED, while the feed makes a batch per step that is not waited for and thrown away
    BUSY = "busy"
    WARM = "warm"  # from the feed; its files are in the page cache
    COLD = "cold"  # from the feed; its files are not in the page cache
    REAL = "real"  # from a loader that is not a feed


FEED_MODES = (Mode.RESIDENT, Mode.CACHED, Mode.BUSY, Mode.WARM, Mode.COLD)
LOADER_MODES = (Mode.RESIDENT, Mode.CACHED, Mode.REAL)
PARTS: dict[
    str, tuple[Mode, Mode]
] = {  # part of a step -> it is the second mode's step minus the first's
    "copy": (Mode.RESIDENT, Mode.CACHED),
    "contention": (Mode.CACHED, Mode.BUSY),
    "preparation": (Mode.BUSY, Mode.WARM),
    "fetch": (Mode.WARM, Mode.COLD),
    "loading": (Mode.CACHED, Mode.REAL),
}


def order(modes: Sequence[Mode], turn: int, seed: int) -> list[Mode]:
    """Modes of one round in random order: randomized blocks (Fisher, The Design of Experiments).

    Whatever else changes on the machine in the course of a round then hits each mode as likely as
    any other, and independently of other rounds, as the intervals assume. Orders with a system do
    not: with every second round backwards, and another mode first from pair to pair, a load that
    returned every 30 s left the truth outside of most intervals (benchmarks/results/prove.md).
    """
    return random.Random(f"{seed} {turn}").sample(list(modes), len(modes))
