"""Reads that fail: what shows that a file is bad, and what shows nothing."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from pathlib import Path

import pytest
from helpers.addressed import Addressed

import fastfeed as ff
from fastfeed.errors import ConfigError, FeedClosed, SourceError, StorageError
from fastfeed.feed.faults import outages
from fastfeed.storage.local_file import unread


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(outages, "_PAUSES", (0.0, 0.01))


def feed(source, **more) -> ff.Feed:
    options = {"batch": 8, "seed": 2, "threads": 4, "outage": 60} | more
    return ff.Feed(source, [ff.Resize((8, 8))], **options)


def ids(batches) -> list[int]:
    return [int(i) for batch in batches for i in batch.ids]


def reasons(data: ff.Feed) -> dict[int, str]:
    return {failure.id: failure.reason for failure in data.stats().bad}


@pytest.mark.parametrize("on_bad", ["substitute", "mask"])
def test_storage_that_stays_away_is_raised_every_time(on_bad):
    """Also by the threads, and in the iterations, after the one that gave up first."""
    with feed(Addressed(64, failing=lambda i: "io_error"), on_bad=on_bad, outage=0.2) as data:
        for _ in range(3):
            with pytest.raises(StorageError, match="s3://one has not answered"):
                next(iter(data))
        assert not data.stats().bad


def test_what_needs_no_request_is_no_answer():
    """Samples that are refused without a read while the bucket is down."""
    begun = time.monotonic()

    def failing(i: int) -> str:
        return "not_allowed" if i % 4 == 0 else "io_error" if time.monotonic() < begun + 0.5 else ""

    with feed(Addressed(64, failing=failing), on_bad=ff.FaultPolicy(max_share=1)) as data:
        ids(data)
        assert set(reasons(data).values()) == {"not_allowed"}


def test_one_dead_host_of_many():
    """Each address has a host of its own: none of its own kind can answer, others do."""
    source = Addressed(
        64, "https://host{0}.org/{0}.jpg".format, lambda i: "timeout" if i == 9 else ""
    )
    with feed(source, threads=2) as data:
        assert len(ids(data)) == 64
        assert reasons(data) == {9: "timeout"}


def test_a_dead_host_with_a_few_files():
    source = Addressed(
        400,
        lambda i: f"https://{'dead' if i % 100 == 7 else i % 5}.org/{i}.jpg",
        lambda i: "timeout" * (i % 100 == 7),
    )
    with feed(source, threads=2) as data:
        ids(data)
        assert set(reasons(data)) == {7, 107, 207, 307}


def test_all_hosts_are_down():
    source = Addressed(64, "https://host{0}.org/{0}.jpg".format, lambda i: "timeout")
    with feed(source, outage=0.2) as data, pytest.raises(StorageError):
        next(iter(data))


def test_a_bad_shard_in_a_bucket_that_answers():
    """Half of what the bucket holds, in one piece, and nine tenths of the samples lie elsewhere."""
    source = Addressed(
        1000,
        lambda i: f"/data/{i}.jpg" if i < 900 else f"s3://photos/{i}.jpg",
        lambda i: "io_error" if 910 <= i < 960 else "",
    )
    with feed(source) as data:
        ids(data)
        assert set(reasons(data)) == set(range(910, 960))


def test_a_large_part_of_the_samples_is_waited_for():
    """Others answer; but this is a tenth of the data, and no file is to blame."""
    down = threading.Event()
    down.set()
    source = Addressed(
        1000,
        lambda i: f"/data/{i}.jpg" if i < 900 else f"s3://photos/{i}.jpg",
        lambda i: "io_error" if i >= 900 and down.is_set() else "",
    )
    over = threading.Timer(0.5, down.clear)
    over.start()
    with feed(source) as data:
        assert sorted(ids(data)) == list(range(1000))
        assert not data.stats().bad


def test_a_new_iteration_waits_again():
    """The time during which nothing was read does not count."""
    down = threading.Event()
    down.set()
    with feed(
        Addressed(64, failing=lambda i: "io_error" if down.is_set() else ""), outage=1.0
    ) as data:
        walk = iter(data)
        closing = threading.Timer(0.2, walk.close)
        closing.start()
        with pytest.raises(FeedClosed):
            next(walk)
        time.sleep(1.2)  # longer than the patience
        back = threading.Timer(0.3, down.clear)
        back.start()
        assert sorted(ids(data)) == list(range(64))


def test_an_error_does_not_wait_for_storage():
    """One read of a batch raises; the others wait for a bucket, for ever."""

    def failing(i: int) -> str:
        if i == 0:
            raise SourceError("row 0 has no address")
        return "io_error" if i >= 128 else ""

    source = Addressed(256, lambda i: f"s3://{i // 128}/{i}.jpg", failing)
    options = {"batch": 256, "shuffle": False, "prefetch": 0, "outage": float("inf")}
    with feed(source, **options) as data, pytest.raises(SourceError, match="row 0"):
        next(iter(data))


def test_addresses_may_be_paths_and_patience_longer_than_a_calendar(monkeypatch, caplog):
    monkeypatch.setattr(outages, "_WARN_AFTER_S", 0.0)
    down = threading.Event()
    down.set()
    threading.Timer(0.3, down.clear).start()
    source = Addressed(
        16, lambda i: Path(f"/data/{i}.jpg"), lambda i: "io_error" if down.is_set() else ""
    )
    with feed(source, outage=1e18) as data:
        assert sorted(ids(data)) == list(range(16))
    assert any("StorageError at no time" in record.getMessage() for record in caplog.records)
    assert outages._at(3 * 86_400).count("-") == 2, "with its date"


def test_one_policy_contradicts_the_other():
    with pytest.raises(ConfigError, match=r'on_bad="raise" ends the run .*Outage\(then="raise"\)'):
        feed(Addressed(8), on_bad="raise", outage=ff.Outage(then="substitute"))


def test_what_handles_the_log_may_ask_the_feed():
    """As a handler does that shows `feed.stats()` with each line."""
    seen = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(len(data.stats().bad))

    handler, log = Handler(), logging.getLogger("fastfeed")
    log.addHandler(handler)
    try:
        with feed(
            Addressed(64, failing=lambda i: "corrupt" if i % 9 == 0 else ""), threads=1
        ) as data:
            ids(data)
    finally:
        log.removeHandler(handler)
    assert len(seen) == 2 and seen[1] == 8, "the first one, and their count at the end"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_the_process_has_run_out_of_is_said(number):
    """It is a limit of the process or the machine: the error says which, and no file is bad."""
    with pytest.raises(
        StorageError,
        match=r"cannot read a\.jpg: .*no sample is listed as bad for it: (raise|close)",
    ) as e:
        unread(OSError(number, os.strerror(number)), "a.jpg")
    assert e.value.errno == number
