"""How a feed ends: closed, dropped, interrupted, forked, broken."""

from __future__ import annotations

import contextlib
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import environment
from helpers.feeds import NUMBERS, feed, numbers, ours

from fastfeed.errors import (
    FeedClosed,
    SourceError,
    TooManyFailures,
)
from fastfeed.sources import Arrays

# -- ends

LONG = 20  # seconds; a wait that gets this far has failed


class Slow(Arrays):
    """Reads wait until they are let go."""

    def __init__(self) -> None:
        super().__init__(NUMBERS)
        self.asked, self.go = threading.Event(), threading.Event()

    def read(self, ids: Any) -> list[Any]:
        self.asked.set()
        assert self.go.wait(LONG)
        return super().read(ids)


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """Without the collector: what is dropped must go by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_dropping_a_feed_ends_its_threads(no_garbage):
    data = numbers()
    for _ in data:
        break
    threads = ours()
    assert {"fastfeed-0", "fastfeed-1"} <= {thread.name for thread in threads}
    del data
    for thread in threads:
        thread.join(LONG)
    assert not ours()


def test_a_walk_outlives_its_feed(no_garbage):
    walk = numbers().batches()
    assert len(list(walk)) == 5
    del walk
    assert not ours()


def test_an_exception_in_user_code_leaves_nothing(no_garbage):
    def train() -> None:
        for _ in numbers():
            raise KeyError("user's own")

    with contextlib.suppress(KeyError):
        train()
    assert not ours()


def test_with_ends_threads_whatever_happens():
    with pytest.raises(KeyError), numbers() as data:
        for _ in data:
            raise KeyError
    assert not ours()


def test_a_closed_feed_says_so():
    data = numbers()
    walk, other = iter(data), data.batches()
    next(walk)
    next(other)
    data.close()
    data.close()
    for use in (
        lambda: next(walk),
        lambda: next(other),
        lambda: next(iter(data)),
        lambda: next(data.batches()),
    ):
        with pytest.raises(FeedClosed):
            use()


def test_closing_lets_a_waiting_consumer_go():
    source, errors = Slow(), []
    data = feed(source, [], batch=10)

    def consume() -> None:
        try:
            next(iter(data))
        except FeedClosed as error:
            errors.append(str(error))

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert source.asked.wait(LONG)
    closer = threading.Thread(target=data.close)
    closer.start()
    consumer.join(LONG)
    # by then it waits for the batch, or is about to begin the next ones
    assert errors in (
        ["the feed was closed while waiting for a batch"],
        ["this feed is closed; create a new one"],
    )
    source.go.set()
    closer.join(LONG)
    assert not ours()


TWICE = (
    "another iteration of this feed has begun, or seek() moved it; for two at once use"
    " feed.batches(epoch)"
)


@pytest.mark.parametrize(
    "other", [lambda d: next(iter(d)), lambda d: d.seek(0), lambda d: d.seek(5, 2)]
)
def test_two_iterations_at_once(other):
    data = numbers()
    walk = iter(data)
    next(walk)
    other(data)
    with pytest.raises(FeedClosed) as error:
        next(walk)
    assert str(error.value) == TWICE


def test_an_iteration_that_is_over_may_be_asked_again():
    data = numbers()
    walk = iter(data)
    for _ in range(5):
        next(walk)
    following = iter(data)
    assert next(following).epoch == 1
    assert next(walk, None) is None
    assert next(following).step == 1


def test_an_error_of_the_source_is_raised_in_its_place_and_the_feed_continues():
    class Failing(Arrays):
        def read(self, ids: Any) -> list[Any]:
            if 25 in ids:
                raise SourceError("in the source")
            return super().read(ids)

    with feed(Failing(NUMBERS), [], batch=10, shuffle=False) as data:
        walk = iter(data)
        assert [next(walk).step, next(walk).step] == [0, 1]
        with pytest.raises(SourceError, match="in the source"):
            next(walk)
        assert data.state()["step"] == 2
        with pytest.raises(
            SourceError, match="in the source"
        ):  # the same batch is due, not the next epoch
            next(iter(data))
        assert data.state()["step"] == 2
        data.seek(0, 3)
        assert [b.step for b in data] == [3, 4]


def test_a_source_that_gives_too_little():
    class Short(Arrays):
        def read(self, ids: Any) -> list[Any]:
            return super().read(ids)[1:]

    with (
        feed(Short(NUMBERS), [], batch=10) as data,
        pytest.raises(
            TooManyFailures, match=r"internal.* \(TypeError: Short.read\(1 ids\) gave 0 entries"
        ),
    ):
        next(iter(data))


EXIT = """
import sys
import fastfeed as ff
feed = ff.Feed(ff.ImageFolder(sys.argv[1]), [ff.RandomResizedCrop(16)], batch=4, prefetch=4)
walk, aside = iter(feed), feed.batches(3)
next(walk), next(aside)
print("first batch", flush=True)
{}
"""


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("raise KeyError('user')", 1),
        pytest.param("sys.exit(3)", 3, marks=pytest.mark.slow),
        pytest.param("", 0, marks=pytest.mark.slow),
        pytest.param("del feed; del walk", 0, marks=pytest.mark.slow),
    ],
)
def test_the_interpreter_may_end_in_the_middle(photos, python, how, code):
    done = python(EXIT.format(how), photos.root)
    assert (done.returncode, done.stdout) == (code, "first batch\n"), done.stderr
    assert done.stderr == "" or (code == 1 and done.stderr.rstrip().endswith("KeyError: 'user'"))


INTERRUPT = """
import signal, threading
import numpy as np, fastfeed as ff
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins without
go, once = threading.Event(), iter(["reading"])  # batches ahead are read as well
class Slow(ff.Arrays):
    def read(self, ids):
        for line in once:
            print(line, flush=True)
        go.wait()
        return super().read(ids)
feed = ff.Feed(Slow(np.zeros((8, 8, 8, 3), "uint8")), [], batch=8, threads=1)
try:
    next(iter(feed))
except KeyboardInterrupt:
    go.set()
    feed.close()
    print("left", [t.name for t in threading.enumerate() if t.name.startswith("fastfeed")])
"""


def test_ctrl_c_while_waiting_for_a_slow_source():
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "reading\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, "left []\n", "")
