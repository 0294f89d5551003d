"""Lines about an endpoint that does not answer, and when its reads are tried once.

The clock never waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from helpers.clocks import now, run
from helpers.services import FOREVER, Service
from helpers.services import read as ask

from fastfeed.preprocess.inputs.source_spec import PATIENCE_S
from fastfeed.storage.clients import explain
from fastfeed.storage.reads import Unread
from fastfeed.storage.retry import Health, RetryPolicy, is_cached, last_answer, retry

REFUSED = ConnectionRefusedError("Connection refused")


def read(health: Health, service: Service, size: int = 1000) -> Any:
    return ask(service, size, health=health)[0]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_nothing_is_said_of_reads_that_are_answered(caplog):
    read(Health("s3://b"), Service((2.0, b"x")))
    read(Health("s3://b"), Service((15.0, b"x")), size=40_000_000)
    assert not lines(caplog)


def test_silence_is_told_after_seconds_and_its_end_too(caplog):
    answer = read(Health("s3://b"), Service((FOREVER, b""), (0.1, b"x")))
    assert answer == b"x"
    assert lines(caplog) == [
        "s3://b has not answered for 3 s, trying again",
        "s3://b answers again after 20 s",
    ]


def test_failures_are_told_with_the_last_one(caplog):
    answer = read(Health("s3://b"), Service((0, OSError("busy"))))
    assert isinstance(answer, Unread)
    assert lines(caplog)[0] == "s3://b has not answered for 3 s, trying again; last error: busy"


def test_what_storage_refuses_is_an_answer(caplog):
    health = Health("s3://b")
    for error in (FileNotFoundError("a"), PermissionError("no")):
        answer = read(health, Service((0, error)))
        assert isinstance(answer, Unread)
    assert not lines(caplog)


def test_reads_of_an_endpoint_that_takes_no_connection_fail_soon_and_later_ones_at_once():
    health, after = Health("s3://b"), []

    async def two() -> None:
        for _ in range(2):
            service = Service((0, REFUSED))
            await retry(service, 0, explain, RetryPolicy(), None, health=health)
            after.append((len(service.begun), now()))

    run(two())
    (first, at), (second, _) = after
    assert first > 3 and at < 12 and second == 1


@pytest.mark.parametrize("patience_s", [1.0, PATIENCE_S, 600.0])
def test_rows_of_a_host_that_takes_no_connection_fail_soon_whatever_the_patience(patience_s):
    """A table of `fastfeed preprocess` with a dead host, by default and with --patience."""
    health, policy = Health("http://127.0.0.1:9"), RetryPolicy.patient(patience_s)

    async def rows() -> float:
        for _ in range(12):
            answer = await retry(Service((0, REFUSED)), 0, explain, policy, None, health=health)
            assert isinstance(answer, Unread) and answer.reason == "io_error"
        return now()

    assert 0 < run(rows()) < 12


def test_silence_is_waited_for_as_long_as_patience_says():
    health, policy = Health("http://silent"), RetryPolicy.patient(300.0)

    async def one() -> float:
        await retry(Service((0, OSError("busy"))), 0, explain, policy, None, health=health)
        return now()

    assert 250 < run(one()) < 330


def test_an_answer_ends_it():
    health, tried = Health("s3://b"), []

    async def three() -> None:
        for answers in ([(0, REFUSED)], [(0, b"x")], [(0, REFUSED), (0, b"x")]):
            service = Service(*answers)
            await retry(service, 0, explain, RetryPolicy(), None, health=health)
            tried.append(len(service.begun))

    run(three())
    assert tried[1:] == [1, 2]


def test_while_it_is_down_a_large_read_has_the_time_that_it_needs():
    """Over a slow link, or no read of an endpoint that is back would ever succeed."""
    health, answers = Health("s3://slow"), []

    async def two() -> None:
        for service in (Service((0, REFUSED)), Service((8.0, b"x"))):
            answers.append(
                await retry(service, 20 << 20, explain, RetryPolicy(), None, health=health)
            )

    run(two())
    assert isinstance(answers[0], Unread) and answers[1] == b"x"


def test_what_failed_long_ago_is_forgotten():
    health, tried = Health("s3://idle"), []

    async def two() -> None:
        for service in (Service((0, REFUSED)), Service((0, REFUSED), (0, b"x"))):
            await retry(service, 0, explain, RetryPolicy(), None, health=health)
            tried.append(len(service.begun))
            await asyncio.sleep(600)

    run(two())
    assert tried[0] > 3 and tried[1] == 2


def test_answers_are_known_to_the_process():
    begun = time.monotonic()
    read(Health("s3://answers"), Service((0, OSError("busy"))))
    assert last_answer("s3://answers") == float("-inf")
    read(Health("s3://answers", cached=True), Service((0, b"x")))
    assert (
        last_answer("s3://answers") >= begun
        and is_cached("s3://answers")
        and not is_cached("s3://slow")
    )
