"""Who waits for whom: the statistics against a clock that moves only when somebody works."""

import threading

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.feed.session import FeedSession
from fastfeed.live.meter import Meter


class Clock:
    """Nanoseconds that pass when told to."""

    def __init__(self):
        self.now, self._lock = 0, threading.Lock()

    def __call__(self) -> int:
        return self.now

    def spend(self, ms: float) -> None:
        with self._lock:
            self.now += int(ms * 1e6)


class Slow(ff.Arrays):
    """Each read takes this long."""

    def __init__(self, clock, ms, samples=40):
        super().__init__(np.zeros((samples, 4, 4, 3), np.uint8))
        self._clock, self._ms = clock, ms

    def read(self, ids):
        self._clock.spend(self._ms * len(ids))
        return super().read(ids)


@pytest.mark.parametrize(
    ("read_ms", "step_ms", "share"), [(10, 30, 0.25), (10, 10, 0.5), (30, 10, 0.75), (0, 10, 0.0)]
)
def test_wait_share_is_that_of_a_slowed_source(read_ms, step_ms, share):
    clock = Clock()
    with ff.Feed(Slow(clock, read_ms), [], batch=1, threads=1, prefetch=0) as feed:
        FeedSession.of(feed).timeline.clock = clock
        for _epoch in range(2):
            for _batch in feed:
                clock.spend(step_ms)
            clock.spend(5000)  # validation, between two epochs, is not training
        stats = feed.stats()
    assert stats.images == 80
    assert stats.wait_share == pytest.approx(share)
    assert stats.seconds == pytest.approx(80 * (read_ms + step_ms) / 1e3)
    assert stats.stage_ms["read"] == pytest.approx(read_ms)


def test_an_adapter_can_say_that_the_epoch_is_over():
    clock = Clock()
    with ff.Feed(Slow(clock, 10, samples=1), [], batch=1, threads=1, prefetch=0) as feed:
        FeedSession.of(feed).timeline.clock = clock
        next(iter(feed))
        clock.spend(30)
        FeedSession.of(feed).cursor.epoch_ended()
        clock.spend(5000)
        assert feed.stats().wait_share == pytest.approx(0.25)


def test_the_text():
    with ff.Feed(ff.Arrays(np.zeros((8, 4, 4, 3), np.uint8)), [], batch=4, threads=2) as feed:
        assert "0 images" in str(feed.stats())
        list(feed)
        text = str(feed.stats())
    assert text.startswith("8 images in ")
    assert "of the time waiting for data" in text
    assert "(2 threads)" in text
    assert "0 bad samples" in text


class Interrupted(int):
    """A count at which another thread adds to the same meter."""

    def __new__(cls, value, call):
        number = super().__new__(cls, value)
        number.call, number.threads = call, []
        return number

    def __add__(self, other):
        if not self.threads:
            self.threads.append(threading.Thread(target=self.call))
            self.threads[0].start()
            self.threads[0].join(0.2)  # it waits for us, or is done
        return int(self) + other


@pytest.mark.parametrize("name", ["wait_ns", "batches", "images", "ready", "asked"])
def test_two_threads_lose_no_counts(name):
    def take():
        meter.record_ready(1)
        meter.record_request(40, 1)
        meter.record_delivery(40, 50, 1)

    meter = Meter()
    number = Interrupted(0, take)
    setattr(meter, name, number)
    take()
    (thread,) = number.threads
    thread.join()
    assert getattr(meter, name) == {"wait_ns": 20}.get(name, 2)
