"""Bytes read, repeated reads, and what a feed is at: counted by the batch, on its live page."""

import threading
import time

import numpy as np
import pytest
from helpers.feeds import numbers
from PIL import Image

import fastfeed as ff
from fastfeed.faults import Failure
from fastfeed.feed.session import FeedSession
from fastfeed.live.page import COUNTERS, PageWriter, read_page
from fastfeed.runtime.progress import BatchProgress


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for n in range(24):
        place = folder / f"class{n % 2}" / f"{n}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(n).integers(0, 255, (20 + n, 30, 3), np.uint8)
        Image.fromarray(noise).save(place, quality=90)
    return folder


OPS = [ff.Resize((16, 16))]


@pytest.mark.parametrize("options", [{}, {"decode": "pillow"}, {"side_process": True}])
def test_bytes_read_are_those_of_the_files(photos, options):
    with ff.Feed(ff.ImageFolder(photos), OPS, batch=8, threads=2, **options) as feed:
        list(feed.batches(epochs=2))
        page = FeedSession.of(feed).live.page()
    assert page.counters["images"] == 48
    assert page.counters["read_bytes"] == 2 * sum(
        path.stat().st_size for path in photos.rglob("*.jpg")
    )
    assert page.counters["retries"] == 0


def test_arrays_in_memory_are_not_read():
    with numbers() as feed:
        list(feed)
        assert FeedSession.of(feed).live.page().counters["read_bytes"] == 0


class Shaky(ff.ImageFolder):
    """Fails twice per file, as a share does that is mounted again."""

    tries: dict[int, int]

    def read(self, ids):
        return [self._once(id) for id in ids]

    def _once(self, id):
        self.tries[id] = self.tries.get(id, 0) + 1
        if id % 4 == 0 and self.tries[id] < 2:
            return Failure(id, self.uri(id), "read", "io_error", "try again")
        return super().read([id])[0]


def test_repeated_reads_are_counted(photos):
    source = Shaky(photos)
    source.tries = {}
    with ff.Feed(source, OPS, batch=8, threads=2, shuffle=False, outage=5) as feed:
        list(feed)
        counters = FeedSession.of(feed).live.page().counters
    assert counters["retries"] == 6
    assert counters["bad"] == 0


def test_what_a_hanging_read_is_at_is_on_the_page(photos):
    """The trainer waits in next(), which writes it about once a second."""
    stuck, go_on = threading.Event(), threading.Event()

    class Hangs(ff.ImageFolder):
        def read(self, ids):
            if 9 in ids:
                stuck.set()
                go_on.wait(60)
            return super().read(ids)

    with ff.Feed(Hangs(photos), OPS, batch=8, threads=1, shuffle=False) as feed:
        taker = threading.Thread(target=lambda: list(feed))
        taker.start()
        assert stuck.wait(60)
        limit = time.monotonic() + 60
        while (
            not (page := read_page(FeedSession.of(feed).live.path)).doing[0]
            or page.counters["phase"] != 1
        ):
            assert time.monotonic() < limit
            time.sleep(0.05)
        assert page.doing[0] == "read"
        assert page.doing[1].endswith(("class0", "class1"))
        assert 0 < page.counters["doing_since_ns"] <= time.monotonic_ns()
        go_on.set()
        taker.join()
        assert FeedSession.of(feed).live.page().doing == ("", "")


def test_the_batch_that_is_needed_first_counts():
    now = [0]
    progress = BatchProgress(lambda: now[0])
    assert progress.current() is None
    for batch, stage in ((3, "decode"), (2, "read"), (4, "read")):
        now[0] += 10
        progress.enter(batch, stage, lambda batch=batch: f"s3://bucket{batch}")
    assert progress.current() == ("read", "s3://bucket2", 20)
    progress.leave(2)
    assert progress.current() == ("decode", "s3://bucket3", 10)
    progress.count(5, 1)
    assert progress.drain() == (5, 1)
    progress.count(7)
    assert progress.drain() == (7, 0)


def test_the_median_of_steps_is_on_the_page():
    with numbers() as feed:
        times = [100, 110, 9000, 105, 95]  # ms; one compiles
        now = 1
        FeedSession.of(feed).live.delivered(now, (0, 0))
        for ms in times:
            now += ms * 1_000_000
            FeedSession.of(feed).live.delivered(now, (0, 0))
            FeedSession.of(feed).live.timed_steps(10, ms * 10 * 1_000_000)
        FeedSession.of(feed).live.paused(now)
        counters = read_page(FeedSession.of(feed).live.path).counters
    assert counters["step_median_ns"] == 105_000_000
    assert counters["framework_median_ns"] == 105_000_000


def test_long_places_are_cut_at_their_front(tmp_path):
    page = PageWriter(str(tmp_path / "a.live"), {})
    page.set_doing("read", "/ü" * 100 + "/last")
    page.write([0] * len(COUNTERS))
    stage, place = read_page(page.path).doing
    assert stage == "read"
    assert place.endswith("/ü/last") and len(place.encode()) <= 128


def test_counting_costs_microseconds_per_batch():
    progress, rounds = BatchProgress(), []
    for _ in range(20):
        began = time.thread_time_ns()
        for batch in range(500):
            progress.enter(batch, "read")
            progress.enter(batch, "decode")
            progress.count(1000)
            progress.leave(batch)
        rounds.append((time.thread_time_ns() - began) / 500)
    assert min(rounds) < 40_000  # 0.2 % of a step of 20 ms
