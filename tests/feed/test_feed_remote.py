"""Feeds from storage: read ahead of their turn, the same batches as from here, and an end whatever
hangs.
"""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from conftest import environment
from helpers.feeds import NUMBERS, equal, feed, ours
from helpers.lakes import LONG, Lake, wait
from helpers.shards import shard_folder

from fastfeed.errors import FeedClosed, SourceError
from fastfeed.faults import Failure
from fastfeed.sources import Arrays, Cache, TarShards
from fastfeed.storage.retry import RetryPolicy
from fastfeed.storage.storage import Storage


class Far(Arrays):
    """The images of NUMBERS, whose reads end when they are told to; those in `bad` fail."""

    remote = True

    def __init__(self, bad: Sequence[int] = ()) -> None:
        super().__init__(NUMBERS, np.arange(50))
        self.bad, self.begun = bad, list[int]()
        self.pending: dict[int, list[Future[Any]]] = {}
        self.asked: dict[int, threading.Event] = {i: threading.Event() for i in range(50)}
        self.open = False

    def fetch(self, ids: Sequence[int]) -> list[Future[Any]]:
        found: list[Future[Any]] = [Future() for _ in ids]
        for i, future in zip(ids, found, strict=True):
            self.begun.append(i)
            self.pending.setdefault(i, []).append(future)
            if self.open:
                self.end(i)
            self.asked[i].set()
        return found

    def end(self, *ids: int) -> None:
        for i in ids:
            failure = Failure(i, self.uri(i), "read", "io_error", "gone")
            self.pending[i].pop().set_result(failure if i in self.bad else super().read([i])[0])

    def read(self, ids: Sequence[int]) -> list[Any]:
        raise AssertionError("what is remote is fetched")


def far(source: Far, **more: Any) -> Any:
    return feed(source, [], **({"batch": 10, "shuffle": False, "threads": 4} | more))


def test_reads_of_the_next_batches_are_begun_while_the_first_is_waited_for():
    source, got = Far(), []
    with far(source, prefetch=2) as data:
        consumer = threading.Thread(target=lambda: got.append(next(iter(data))))
        consumer.start()
        for i in range(30):
            wait(source.asked[i])
        assert not got
        assert sorted(source.begun) == list(range(30)), "two batches ahead, no more"
        order = list(range(10))
        random.Random(0).shuffle(order)
        source.end(*order)
        consumer.join(LONG)
        assert got[0].ids.tolist() == list(range(10))
        assert np.array_equal(got[0].images, NUMBERS[:10])
        assert not source.asked[30].is_set()


def test_the_same_batches():
    source = Far()
    source.open = True
    with (
        far(source, shuffle=True, seed=5) as data,
        feed(Arrays(NUMBERS, np.arange(50)), [], batch=10, seed=5) as here,
    ):
        for _ in range(2):
            assert equal(list(data), list(here))


def test_bad_samples_are_listed_and_replaced_and_not_read_again():
    source = Far(bad=[3, 17])
    source.open = True
    with far(source) as data:
        first = list(data)
        assert {failure.uri for failure in data.stats().bad} == {source.uri(3), source.uri(17)}
        assert not {3, 17} & set(np.concatenate([b.ids for b in first]).tolist())
        for batch in first:
            assert np.array_equal(batch.images, NUMBERS[batch.ids])


def test_samples_known_to_be_bad_are_not_begun():
    class Broken(Far):
        def end(self, *ids: int) -> None:
            for i in ids:
                failure = Failure(i, self.uri(i), "read", "changed")
                self.pending[i].pop().set_result(
                    failure if i in self.bad else Arrays.read(self, [i])[0]
                )

    source = Broken(bad=[3, 17])
    source.open = True
    with far(source, prefetch=0) as data:
        list(data)
        source.begun.clear()
        list(data)
        assert not {3, 17} & set(source.begun)


def test_an_error_of_fetch_is_raised_at_its_batch():
    class Fails(Far):
        def fetch(self, ids: Sequence[int]) -> list[Future[Any]]:
            if max(ids) >= 25:
                raise SourceError("no connection")
            return super().fetch(ids)

    source = Fails()
    source.open = True
    with far(
        source, batch=5, prefetch=0
    ) as data:  # nothing ahead, so that batches are not begun together
        walk = iter(data)
        assert [next(walk).step for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(SourceError, match="no connection"):
            next(walk)
        data.seek(0, 0)
        assert next(iter(data)).step == 0


def consume(data: Any) -> tuple[threading.Thread, list[Any]]:
    """A thread that waits for the first batch, and what came of it."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(next(iter(data)))
        except FeedClosed as error:
            found.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def test_closing_while_reads_hang():
    source = Far()
    data = far(source)
    thread, found = consume(data)
    wait(source.asked[0])
    data.close()
    thread.join(LONG)
    # by then it waits for the batch, or is about to begin the next ones
    assert found in (
        ["the feed was closed while waiting for a batch"],
        ["this feed is closed; create a new one"],
    )
    assert not ours()
    assert all(future.cancelled() for futures in source.pending.values() for future in futures)


def test_closing_while_the_read_of_a_substitute_hangs():
    source = Far(bad=range(10))
    data = far(source, prefetch=0)
    thread, found = consume(data)
    for i in range(10):
        wait(source.asked[i])
    began = len(source.begun)
    source.end(*range(10))
    while len(source.begun) == began:
        gc.collect()
    data.close()
    thread.join(LONG)
    # by then it waits for the batch, or is about to begin the next ones
    assert found in (
        ["the feed was closed while waiting for a batch"],
        ["this feed is closed; create a new one"],
    )
    assert not ours()


def test_dropping_a_feed_while_reads_hang():
    source = Far()
    source.open = True
    data = far(source, prefetch=3)
    walk = iter(data)
    next(walk)
    for i in range(10, 20):  # the next one shall still end
        wait(source.asked[i])
    source.open = False
    next(walk)
    wait(source.asked[49])
    threads = ours()
    del data, walk
    gc.collect()
    for thread in threads:
        thread.join(LONG)
    assert not ours()
    assert all(future.cancelled() for futures in source.pending.values() for future in futures)


INTERRUPT = """
import signal, sys, threading, time
from concurrent.futures import Future
import numpy as np, fastfeed as ff
signal.signal(signal.SIGINT, signal.default_int_handler)
once = iter([signal.SIGINT])  # the batches read ahead call fetch again; a second signal would hit the clean-up
class Far(ff.Arrays):
    remote = True
    def fetch(self, ids):
        for number in once:
            threading.Timer(0, signal.raise_signal, [number]).start()
        return [Future() for _ in ids]
feed = ff.Feed(Far(np.zeros((8, 8, 8, 3), "uint8")), [], batch=8, threads=1)
try:
    next(iter(feed))
except KeyboardInterrupt:
    if sys.argv[1] == "close":
        feed.close()
        print("left", [t.name for t in threading.enumerate() if t.name.startswith("fastfeed")])
"""


@pytest.mark.parametrize("how", ["close", pytest.param("exit", marks=pytest.mark.slow)])
def test_ctrl_c_while_reads_hang(python, how):
    done = python(INTERRUPT, how, **environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("left []\n" if how == "close" else "")


@pytest.mark.parametrize("cached", [False, True])
def test_tar_shards_in_storage(tmp_path, monkeypatch, cached):
    """Through everything: the index, ranges, the cache, reads ahead, decoding; while requests fail
    now and then.
    """
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "indexes"))
    root = shard_folder(tmp_path / "shards", [9, 7, 8])
    lake = Lake({f"bucket/{file.name}": file.read_bytes() for file in sorted(root.glob("*.tar"))})
    drawn = random.Random(1)

    async def before(_: object) -> None:
        if drawn.random() < 0.2:
            raise OSError("busy")

    lake.before = before
    storage = Storage(
        {"water": lake},
        cache=Cache(tmp_path / "cache", chunk=4096) if cached else None,
        policy=RetryPolicy(backoff_s=0, max_backoff_s=0, hedge=False),
    )
    there, here = TarShards("lake://bucket/*.tar", storage=storage), TarShards(root)
    assert there.remote
    with feed(there, batch=6) as remote, feed(here, batch=6) as local:
        for _ in range(2):
            assert equal(list(remote), list(local))
        assert not remote.stats().bad
    assert len(lake.asked) > 24
