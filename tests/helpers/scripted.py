"""A trainer and a feed whose every cost is known: time is a number, which only they move.

The feed is real but for its producer, which takes scripted times instead of working. So adapters,
frameworks and the proof run as they are, and nothing depends on how busy the machine is.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastfeed as ff
from fastfeed.feed.feed import Feed
from fastfeed.feed.session import FeedSession
from fastfeed.proof.measure.modes import Mode
from fastfeed.proof.measure.page_cache import ColdCheck
from fastfeed.runtime.batch import Batch

BATCH, SIZE = 4, 4


@dataclass(frozen=True)
class Costs:
    """Milliseconds per step."""

    step: float  # of the trainer
    copy: float  # more, if the batch is not on the device
    contention: float  # more, while the feed works
    make: float  # of the feed, per batch whose files are in memory
    fetch: float  # more, if they are not
    noise: float = 0.02  # standard deviation of each, as a share

    @property
    def truth(self) -> dict[str, float]:
        """What a proof should find.

        Holds where the feed is clearly faster or clearly slower than the step.
        """
        busy = self.step + self.copy + self.contention
        warm, cold = max(busy, self.make), max(busy, self.make + self.fetch)
        parts = {
            "copy": self.copy,
            "contention": self.contention,
            "preparation": warm - busy,
            "fetch": cold - warm,
        }
        return parts | {"input": cold - self.step}


class Idle:
    """What else happens on the machine: nothing.

    Others return by how much it is slowed down, 1 or so on average.
    """

    def __call__(self, now: int, chance: random.Random) -> float:
        return 1.0


class Wandering(Idle):
    """Its speed changes by 5 %, slowly (an Ornstein-Uhlenbeck process), as it does with heat and
    neighbors.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._now, self._level = seconds, 0, math.nan

    def __call__(self, now: int, chance: random.Random) -> float:
        kept = math.exp(-(now - self._now) / 1e9 / self._seconds) if self._now else 0.0
        before, self._now = self._level if self._now else 0.0, now
        self._level = kept * before + math.sqrt(1 - kept * kept) * chance.gauss(0, 0.05)
        return math.exp(self._level)


class Bursts(Idle):
    """Another program takes a third of its speed, now and then, for some seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._until, self._on = seconds, 0.0, True

    def __call__(self, now: int, chance: random.Random) -> float:
        while now >= self._until:
            self._on = not self._on
            self._until = max(self._until, now) + chance.expovariate(1 / self._seconds) * (
                1e9 if self._on else 4e9
            )
        return 1.3 if self._on else 1.0


class Periodic(Idle):
    """It is slower by 5 % and faster by 5 %, regularly, as with what is done every half a
    minute.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._begin = seconds, math.nan

    def __call__(self, now: int, chance: random.Random) -> float:
        if math.isnan(self._begin):
            self._begin = chance.random()
        return 1 + 0.05 * math.sin(2 * math.pi * (self._begin + now / 1e9 / self._seconds))


LOADS = {
    "nothing": Idle,
    "speed wanders within 2 s": lambda: Wandering(2),
    "speed wanders within a minute": lambda: Wandering(60),
    "bursts of 3 s": lambda: Bursts(3),
    "a period of 8 s": lambda: Periodic(8),
    "a period of 17 s": lambda: Periodic(17),
    "a period of 30 s": lambda: Periodic(30),
}


class Script:
    """The clock, and what happens in it."""

    def __init__(self, costs: Costs, seed: int = 0, load: Idle | None = None) -> None:
        self.costs, self.now = costs, 1_000_000_000
        self.cold, self.working = True, 0
        self._random, self._load = random.Random(seed), load or Idle()
        self._asked, self._spent = 0.0, 0  # milliseconds, nanoseconds

    def __call__(self) -> int:
        return self.now

    @property
    def truth(self) -> dict[str, float]:
        """What a proof should find: at the speed that the machine had while it ran."""
        slower = self._spent / self._asked / 1e6
        return {name: ms * slower for name, ms in self.costs.truth.items()}

    def spend(self, ms: float) -> None:
        ns = self.noisy(ms)
        self.now, self._asked, self._spent = self.now + ns, self._asked + ms, self._spent + ns

    def noisy(self, ms: float) -> int:
        """Nanoseconds; the mean of many is `ms`, where nothing else happens on the machine."""
        sigma = self.costs.noise
        slower = self._load(self.now, self._random)
        return round(ms * 1e6 * slower * math.exp(self._random.gauss(-sigma * sigma / 2, sigma)))

    def train(self, resident: bool) -> None:
        """One step of the trainer."""
        self.spend(self.costs.step)
        if not resident:
            self.spend(self.costs.copy)
        if self.working:
            self.spend(self.costs.contention)

    def train_on(self, feed: Feed) -> None:
        """One step; the proof knows where its batch lies."""
        proof = FeedSession.of(feed).proof
        self.train(proof is not None and proof.mode is Mode.RESIDENT)


class Producer:
    """Makes batches one after the other, `depth` ahead."""

    helper_pid = 0

    def __init__(self, script: Script, depth: int) -> None:
        self._script, self._depth = script, depth

    def start(
        self, epoch: int, step: int, place: Any = None, raw: bool = False, epochs: int | None = None
    ) -> Stream:
        return Stream(self._script, self._depth, place)

    def use_memory(self, allocate: Any) -> None:
        pass

    def close(self) -> None:
        pass


class Stream:
    def __init__(self, script: Script, depth: int, place: Any) -> None:
        self._script, self._depth, self._place = script, depth, place
        self._cost = script.costs.make + (script.costs.fetch if script.cold else 0.0)
        self._ends: deque[int] = deque()  # when each batch under way is ready
        self._free, self._number, self.closed = 0, 0, False
        script.working += 1

    def __next__(self) -> Any:
        script = self._script
        while len(self._ends) <= self._depth:
            self._free = max(self._free, script.now) + script.noisy(self._cost)
            self._ends.append(self._free)
        script.now = max(script.now, self._ends.popleft())
        images = np.zeros((BATCH, SIZE, SIZE, 3), np.uint8)
        labels, ids = np.zeros(BATCH, np.int64), np.arange(BATCH)
        batch = Batch(images, labels, np.ones(BATCH, np.float32), ids, 0, self._number)
        self._number += 1
        return batch if self._place is None else self._place(batch)

    @property
    def ready(self) -> int:
        return sum(end <= self._script.now for end in self._ends)

    def close(self) -> None:
        self._script.working -= not self.closed
        self.closed = True


class Pages:
    """Instead of FilePages: the script's files."""

    script: Script  # the one that runs

    def __init__(self, source: Any) -> None:
        pass

    def check(self, ids: np.ndarray) -> ColdCheck:
        return ColdCheck(verified=True)

    def warm(self, ids: np.ndarray) -> None:
        self.script.cold = False

    def drop(self, ids: np.ndarray) -> float:
        self.script.cold = True
        return 0.0


def scripted_feed(script: Script, samples: int = 400, **more: Any) -> Feed:
    """A feed of this script; set `fastfeed.proof.measure.session.FilePages` to Pages before a proof."""
    Pages.script = script
    source = ff.Arrays(np.zeros((samples, SIZE, SIZE, 3), np.uint8), np.zeros(samples, np.int64))
    feed = Feed(source, [], batch=BATCH, threads=1, **more)
    FeedSession.of(feed).timeline.clock = script
    session = FeedSession.of(feed)
    session.producer = session.cursor._producer = Producer(script, session.prefetch)  # type: ignore[assignment]
    return feed


STARVED = Costs(step=40, copy=4, contention=6, make=80, fetch=30)
FED = Costs(step=40, copy=2, contention=3, make=20, fetch=5)
FETCHING = Costs(step=40, copy=0, contention=0, make=30, fetch=50)
COPYING = Costs(step=20, copy=15, contention=2, make=25, fetch=4)
EVEN = Costs(step=30, copy=3, contention=12, make=60, fetch=0)
ALL = [STARVED, FED, FETCHING, COPYING, EVEN]
