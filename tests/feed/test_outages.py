"""Storage that does not answer, and files that cannot be read: which is which, and what the feed
does.
"""

from __future__ import annotations

import logging
import threading
import time

import numpy as np
import pytest
from helpers.addressed import Addressed

from fastfeed.errors import ConfigError, FeedClosed, StorageError
from fastfeed.faults import Outage
from fastfeed.feed.faults import outages
from fastfeed.feed.feed import Feed
from fastfeed.ops import Resize

N = 40


def two_buckets(failing=lambda id: "") -> Addressed:
    """Photographs in two buckets of one storage."""
    return Addressed(N, lambda i: f"s3://{'even' if i % 2 == 0 else 'odd'}/{i}.jpg", failing)


def feed(source, **more) -> Feed:
    return Feed(source, [Resize((8, 8))], batch=8, seed=2, **({"threads": 2} | more))


def ids(batches) -> list[int]:
    return [int(i) for batch in batches for i in batch.ids]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(outages, "_PAUSES", (0.0, 0.01))
    monkeypatch.setattr(outages, "_WARN_AFTER_S", 0.05)


@pytest.mark.parametrize("reason", ["io_error", "timeout"])
def test_an_outage_changes_nothing_of_what_a_run_gets(reason, caplog):
    """Within the epoch it happens in, and in those after."""
    with feed(two_buckets()) as sound:
        want = [ids(sound) for _ in range(3)]
    down = threading.Event()
    source = two_buckets(lambda i: reason if down.is_set() else "")
    with feed(source, outage=60) as data:
        walk = iter(data)
        got = [next(walk)]
        down.set()
        over = threading.Timer(0.4, down.clear)
        over.start()
        got += list(walk)
        assert [ids(got), ids(data), ids(data)] == want
        assert not data.stats().bad
    lines = [record.getMessage() for record in caplog.records if record.name == "fastfeed"]
    assert any(
        "waiting for s3://" in line and "no read has succeeded since" in line for line in lines
    )
    assert any("answers again after" in line for line in lines)
    assert all(
        record.levelno == logging.WARNING for record in caplog.records if record.name == "fastfeed"
    )


def test_patience_ends_with_the_position_saved():
    down = threading.Event()
    source = two_buckets(lambda i: "io_error" if down.is_set() else "")
    with feed(two_buckets()) as sound:
        want = [batch.images.copy() for batch in sound]
    with feed(source, outage=Outage(wait=0.1), prefetch=0) as data:
        walk = iter(data)
        first = [next(walk).images.copy() for _ in range(2)]
        down.set()
        for _ in range(2):
            with pytest.raises(
                StorageError,
                match=r"s3://\w+ has not answered for .*503.*feed.state\(\) holds the pos",
            ):
                list(walk if walk is not None else data)
            walk = None
            assert (data.state()["epoch"], data.state()["step"]) == (0, 2)
        down.clear()
        rest = [batch.images.copy() for batch in data]  # the same epoch, where it stood
        assert not data.stats().bad
    for a, b in zip(first + rest, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("ahead", [0, 3])
def test_one_file_that_cannot_be_read_is_bad_and_read_again_in_the_next_epoch(ahead):
    broken = {7}
    source = two_buckets(lambda i: "io_error" if i in broken else "")
    with feed(source, outage=60, prefetch=ahead) as data:
        first = ids(data)
        assert 7 not in first and {f.id: f.reason for f in data.stats().bad} == {7: "io_error"}
        broken.clear()
        ids(data)  # its first batches were made before
        assert 7 in ids(data)


@pytest.mark.parametrize("reason", ["not_found", "denied"])
def test_files_that_are_back_are_read_again(reason):
    gone = {3, 4}
    source = two_buckets(lambda i: reason if i in gone else "")
    with feed(source, prefetch=0) as data:
        assert not gone & set(ids(data))
        before = len(source.reads)
        missing, gone = set(gone), set()
        assert missing <= set(ids(data))
        assert len(source.reads) == before + N, "each once"


def test_the_other_bucket_does_not_wait_for_this_one():
    """What one endpoint answers says nothing about another: the one that is down is waited for,
    then given up.
    """
    source = two_buckets(lambda i: "timeout" if i % 2 else "")
    with feed(source, outage=Outage(wait=0.1, then="substitute"), prefetch=0) as data:
        got = ids(data)
        assert len(got) == N and all(i % 2 == 0 for i in got)
        assert not data.stats().bad, "nothing of it is listed"
        source.failing = lambda i: ""
        assert sorted(ids(data)) == list(range(N)), "and the next epoch asks again"


def test_substitutes_end_where_all_storage_is_down():
    source = two_buckets(lambda i: "timeout")
    with (
        feed(source, outage=Outage(wait=0, then="substitute")) as data,
        pytest.raises(StorageError),
    ):
        list(data)


def test_masked_samples_of_an_outage_are_not_listed():
    source = two_buckets(lambda i: "timeout" if i % 2 else "")
    with feed(source, on_bad="mask", outage=Outage(wait=0, then="substitute")) as data:
        for batch in data:
            np.testing.assert_array_equal(batch.weights, (batch.ids % 2 == 0).astype(np.float32))
        assert not data.stats().bad


def test_a_feed_that_waits_can_be_closed():
    source, raised = two_buckets(lambda i: "timeout"), []
    data = feed(source, outage=float("inf"))
    walk = iter(data)

    def wait() -> None:
        with pytest.raises(FeedClosed) as error:
            next(walk)
        raised.append(error.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while len(source.reads) < 20:
        time.sleep(0.01)
    data.close()
    waiting.join(5)
    assert raised


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Outage(wait=-1), r"wait=\.\.\.\) must be seconds >= 0, got -1"),
        (lambda: Outage(wait=float("nan")), "got nan"),
        (lambda: Outage(then="skip"), 'must be "raise" or "substitute", got \'skip\''),
        (lambda: feed(two_buckets(), outage="60"), "got '60'"),
        (
            lambda: feed(two_buckets(), on_error="ignore"),
            'on_error must be "raise" or "bad", got \'ignore\'',
        ),
    ],
)
def test_words_for_wrong_arguments(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
