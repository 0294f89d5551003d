"""One iterator of a feed, and several threads that take batches from it: each batch is given
once.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fastfeed as ff

THREADS, BATCHES = 4, 200


def _slow(images: np.ndarray, draws: np.ndarray) -> np.ndarray:
    return images


def _taken(
    iterator: Iterator[Any], label: Callable[[Any], int]
) -> tuple[list[int], list[BaseException]]:
    """The labels that all threads together have got, and what they raised."""
    got: list[list[int]] = [[] for _ in range(THREADS)]
    errors: list[BaseException] = []
    begin = threading.Barrier(THREADS)

    def take(mine: list[int]) -> None:
        begin.wait()
        try:
            for batch in iterator:
                mine.append(label(batch))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(label for mine in got for label in mine), errors


def _feed() -> ff.Feed:
    images = np.zeros((BATCHES, 4, 4, 3), np.uint8)
    return ff.Feed(ff.Arrays(images, np.arange(BATCHES)), [_slow], batch=1, threads=2, prefetch=1)


@pytest.mark.parametrize("kind", ["feed", "batches", "torch", "jax"])
def test_each_batch_is_given_once(kind):
    if kind in ("torch", "jax"):
        pytest.importorskip(kind, reason=f"needs {kind}")
    with _feed() as feed:
        iterators = {
            "feed": lambda: iter(feed),
            "batches": lambda: feed.batches(0),
            "torch": lambda: iter(feed.to_torch("cpu")),
            "jax": lambda: iter(feed.to_jax()),
        }
        label = (
            (lambda batch: int(batch.labels[0]))
            if kind in ("feed", "batches")
            else lambda batch: int(batch[1][0])
        )
        taken, errors = _taken(iterators[kind](), label)
        assert not errors
        assert taken == list(range(BATCHES))
        if kind != "batches":
            assert feed.state()["epoch"] == 1 and feed.state()["step"] == 0


def test_an_error_ends_the_iteration_for_all_threads():
    """A thread that only saw an end would take half an epoch for a whole one."""

    def fails(images: np.ndarray, draws: np.ndarray) -> np.ndarray:
        raise ValueError("a bug")

    with ff.Feed(
        ff.Arrays(np.zeros((BATCHES, 4, 4, 3), np.uint8)), [fails], batch=1, threads=2
    ) as feed:
        taken, errors = _taken(iter(feed), lambda batch: int(batch.labels[0]))
    assert not taken and len(errors) == THREADS
    assert {type(error).__name__ for error in errors} == {"SampleError", "FeedClosed"}
    assert all("a bug" in str(error) for error in errors)


INTERRUPTED = """
import signal, time
import numpy as np
import fastfeed as ff

def slow(image, rng=None):
    time.sleep(0.5)
    return image

feed = ff.Feed(ff.Arrays(np.zeros((64, 4, 4, 3), np.uint8)), [slow], batch=8, threads=1)
walk = iter(feed)
signal.signal(signal.SIGALRM, lambda *_: walk.close())
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    next(walk)
except ff.errors.FeedClosed as error:
    print("closed:", error)
feed.close()
"""


def test_a_signal_handler_closes_the_iterator_that_is_waited_for():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("closed:") and done.returncode == 0, done.stderr
