"""Messages and errors on their way between two processes, and what the parent hears."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import numpy as np
import pytest
from helpers.helper_feeds import Odd

from fastfeed.errors import TooManyFailures
from fastfeed.faults import Failure
from fastfeed.feed.faults.quarantine import Quarantine
from fastfeed.feed.helper_process.messages import Closed, pack_error, receive, send, unpack_error
from fastfeed.runtime.timeline import Span, Timeline
from fastfeed.system.shared_memory import anonymous, mapped

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        yield one, other


@pytest.mark.parametrize("size", [0, 1000, 32 << 10, 3_000_000])
def test_messages_of_any_size_with_memory(pair, size):
    fd = anonymous(100)
    mapped(fd, 100)[7] = 9
    before = len(os.listdir("/proc/self/fd"))
    send(pair[0], ("batch", os.urandom(size)), [fd])
    send(pair[0], "next")
    (what, data), fds = receive(pair[1])
    assert (what, len(data), len(fds)) == ("batch", size, 1)
    assert mapped(fds[0], 100)[7] == 9
    os.close(fds[0])
    assert receive(pair[1]) == ("next", [])
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(fd)


def test_the_end_is_said_to_both_sides(pair):
    pair[0].close()
    with pytest.raises(Closed):
        receive(pair[1])
    with pytest.raises(ConnectionError):
        send(pair[1], "hello")


def test_an_error_keeps_its_type_its_text_and_what_it_carries():
    failure = Failure(3, "a.jpg", "decode", "corrupt")
    again = unpack_error(*pack_error(TooManyFailures("too many", [failure])))
    assert isinstance(again, TooManyFailures)
    assert (str(again), again.failures) == ("too many", (failure,))
    assert "TooManyFailures: too many" in str(again.__cause__)


def test_an_error_that_does_not_pickle_keeps_its_text():
    data, text = pack_error(Odd("a sample", "the source"))
    assert data is None
    again = unpack_error(data, text)
    assert type(again) is RuntimeError
    assert "Odd: a sample in the source" in str(again)


def test_a_timeline_hears_spans_and_forgets_those_it_passes_on():
    helper, parent = Timeline(), Timeline()
    spans = [Span("decode", 0, 10, 30, 7), Span("decode", 1, 40, 45, 7)]
    for span in spans:
        helper.record(span)
    parent.merge(helper.drain())
    assert helper.drain() == []
    assert helper.totals() == parent.totals() == {"decode": (2, 25)}
    assert parent.spans() == spans


def test_a_quarantine_hears_of_bad_samples_and_writes_nothing(tmp_path):
    failure = Failure(3, "a.jpg", "decode", "corrupt")
    quarantine = Quarantine(tmp_path / "bad.jsonl", length=10)
    quarantine.merge([failure, failure])
    assert quarantine.failures == [failure]
    assert not (tmp_path / "bad.jsonl").exists()
    assert not quarantine.known_bad(np.array([3]))[0]
