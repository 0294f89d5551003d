"""The live page, the statistics and FASTFEED_TIMELINE say the same of one run.

Time is a clock's that never waits.
"""

import threading

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.feed.session import FeedSession
from fastfeed.live.page import read_page
from fastfeed.live.rates import PageReading, rates
from fastfeed.profiler import analyze, read


class Clock:
    def __init__(self):
        self._now, self._lock = 1_000_000_000, threading.Lock()

    def __call__(self):
        with self._lock:
            return self._now

    def spend(self, ms):
        with self._lock:
            self._now += int(ms * 1e6)


class Slow(ff.Arrays):
    def __init__(self, clock, ms):
        super().__init__(np.zeros((120, 4, 4, 3), np.uint8))
        self._clock, self._ms = clock, ms

    def read(self, ids):
        self._clock.spend(self._ms * len(ids))
        return super().read(ids)


@pytest.mark.parametrize(("make_ms", "use_ms"), [(20, 2), (20, 20), (5, 95), (1, 99)])
def test_timeline_watch_and_statistics_agree_within_a_point(tmp_path, monkeypatch, make_ms, use_ms):
    path, clock = tmp_path / "timeline.jsonl", Clock()
    monkeypatch.setenv("FASTFEED_TIMELINE", str(path))
    with ff.Feed(Slow(clock, make_ms), [], batch=1, threads=1, prefetch=0) as feed:
        FeedSession.of(feed).timeline.clock = clock
        readings, watch = [], ff.StepWatch(feed, every=100, clock=clock)
        for _epoch in range(2):
            for _ in feed:
                readings.append(PageReading(read_page(FeedSession.of(feed).live.path), clock()))
                clock.spend(use_ms)
                log = watch.step()
            clock.spend(3000)  # validates
        share = make_ms / (make_ms + use_ms)
        assert rates(readings[0], readings[-1]).wait == pytest.approx(share, abs=0.01)
        assert log["feed_wait"] == pytest.approx(share, abs=0.01)
        assert feed.stats().wait_share == pytest.approx(share, abs=0.01)
    (row,) = analyze([read(path)]).feeds
    assert row.wait_share == pytest.approx(share, abs=0.01)
