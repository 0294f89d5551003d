"""What the report says of a feed, and what the feed says of itself: the same share of waiting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.feed.session import FeedSession
from fastfeed.profiler import readers
from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.compare.ci_gate import TRIPPED, check, parse
from fastfeed.profiler.compare.compare import compare
from fastfeed.profiler.model.format import percent


class Clock:
    """Nanoseconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def spend(self, ms: float) -> None:
        self.now += int(ms * 1e6)


class Slow(ff.Arrays):
    """Each sample takes this long to read."""

    def __init__(self, clock: Clock, ms: float) -> None:
        super().__init__(np.zeros((40, 4, 4, 3), np.uint8))
        self._clock, self._ms = clock, ms

    def read(self, ids: Sequence[int]) -> list[Any]:
        self._clock.spend(self._ms * len(ids))
        return super().read(ids)


@pytest.mark.parametrize(
    ("read_ms", "step_ms", "share"), [(10, 30, 0.25), (4, 31, 4 / 35), (30, 10, 0.75)]
)
def test_stats_and_report_agree(
    tmp_path: Path, monkeypatch, read_ms: int, step_ms: int, share: float
):
    """Over three epochs with validation between them, which is not training."""
    path, clock = tmp_path / "feed.jsonl", Clock()
    monkeypatch.setenv("FASTFEED_TIMELINE", str(path))
    with ff.Feed(Slow(clock, read_ms), [], batch=1, threads=1, prefetch=0) as feed:
        FeedSession.of(feed).timeline.clock = clock
        for _epoch in range(3):
            for _batch in feed:
                clock.spend(step_ms)
            clock.spend(2000)
        stats = feed.stats()
    result = analyze([readers.read(path)])
    (reported,) = result.feeds
    assert stats.wait_share == pytest.approx(share)
    assert reported.wait_share == pytest.approx(stats.wait_share, abs=0.002)
    assert reported.training_ns == pytest.approx(stats.seconds * 1e9, rel=0.01)
    assert f"waited for batches {100 * share:.1f} %" in result.verdict.headline
    (change,) = compare(result, result).feeds
    assert change.wait.before == change.wait.after == reported.wait_share
    assert change.batch.before_ns == pytest.approx((read_ms + step_ms) * 1e6, rel=0.001), (
        "without the pauses"
    )
    code, (sentence,) = check([parse(f"input>{99 * share:.1f}%")], result)
    assert (
        code == TRIPPED
        and f"the trainer waited {percent(reported.wait_share)} of the time" in sentence
    )
    assert check([parse(f"input>{101 * share:.1f}%")], result)[0] == 0


def test_the_feed_of_training_is_named_though_validation_waits_longer(tmp_path, monkeypatch):
    """As it does on a busy machine: which feed is slower there is chance."""
    path, clock = tmp_path / "feed.jsonl", Clock()
    monkeypatch.setenv("FASTFEED_TIMELINE", str(path))
    options: dict[str, Any] = {"batch": 1, "threads": 1, "prefetch": 0}
    with (
        ff.Feed(Slow(clock, 10), [], name="train", **options) as train,
        ff.Feed(Slow(clock, 70), [], name="val", **options) as val,
    ):
        FeedSession.of(train).timeline.clock = FeedSession.of(val).timeline.clock = clock
        for feed in (train, val, train):
            for _batch in feed:
                clock.spend(10)
    headline = analyze([readers.read(path)]).verdict.headline
    assert "feed train's timeline, the trainer waited for batches 50.0 % " in headline


def test_feeds_of_one_process_are_told_apart(tmp_path: Path, monkeypatch):
    """One for training and one for validation, as most trainers have."""
    path, clock = tmp_path / "feed.jsonl", Clock()
    monkeypatch.setenv("FASTFEED_TIMELINE", str(path))
    options: dict[str, Any] = {"batch": 1, "threads": 1, "prefetch": 0}
    with (
        ff.Feed(Slow(clock, 30), [], name="train", **options) as train,
        ff.Feed(Slow(clock, 10), [], name="val", **options) as val,
    ):
        FeedSession.of(train).timeline.clock = FeedSession.of(val).timeline.clock = clock
        for _epoch in range(2):
            for feed, step_ms in ((train, 10), (val, 30)):
                for _batch in feed:
                    clock.spend(step_ms)
        shares = {"train": train.stats().wait_share, "val": val.stats().wait_share}
    result = analyze([readers.read(path)])
    reported = {feed.name: feed for feed in result.feeds}
    assert (
        "feed train's timeline, the trainer waited for batches 75.0 % " in result.verdict.headline
    )
    assert shares == {"train": pytest.approx(0.75), "val": pytest.approx(0.25)}
    for name, share in shares.items():
        assert reported[name].batches == 80
        assert reported[name].waited_ns == (80 * 30_000_000 if name == "train" else 80 * 10_000_000)
        assert reported[name].wait_share == pytest.approx(share, abs=0.01)
        assert reported[name].stages["read"] == (80, reported[name].waited_ns)
