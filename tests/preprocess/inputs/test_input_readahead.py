"""What is read ahead of the work: in order, little of it at once, and errors where the bytes are
wanted.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from fastfeed.errors import SourceError
from fastfeed.preprocess.inputs import readahead
from fastfeed.preprocess.inputs.readahead import DEFERRED, read_ahead
from fastfeed.preprocess.model.task import FREE_BYTES


class Distant:
    """A remote source that counts the bytes under way."""

    remote = True

    def __init__(self, sizes: Sequence[int], answered: bool = True) -> None:
        self.bytes_of = sizes
        self._answered = answered
        self.under_way: dict[int, Future[bytes]] = {}
        self.begun: list[int] = []

    def uri(self, i: int) -> str:
        return f"s3://bucket/{i}.jpg"

    def fetch(self, ids: Sequence[int]) -> list[Future[bytes]]:
        found = []
        for i in ids:
            future: Future[bytes] = Future()
            if self._answered:
                future.set_result(bytes(self.bytes_of[i]))
            self.under_way[i] = future
            self.begun.append(i)
            found.append(future)
        return found

    @property
    def held(self) -> int:
        return sum(self.bytes_of[i] for i in self.under_way)


class Measured(Distant):
    """And its sizes are known."""

    bounds = np.array([0, 100])

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        return np.array([self.bytes_of[i] for i in ids], np.int64)

    def shard(self, unit: int) -> str:
        return "s3://bucket/a.tar"


class Near:
    """A local source of which one sample raises."""

    def __init__(self, error: Exception, where: str) -> None:
        self._error = error
        self._where = where

    def uri(self, i: int) -> str:
        if self._where == "uri" and i == 2:
            raise self._error
        return "/nowhere"

    def read(self, ids: Sequence[int]) -> list[bytes]:
        if self._where == "read" and ids == [2]:
            raise self._error
        return [b"x"]


def walk(source: Any, ids: Sequence[int]) -> tuple[list[Any], int]:
    """What was found, and the most bytes that were under way or waiting at once."""
    found, most = [], 0
    with read_ahead(source, ids, lambda: None) as photographs:
        for i, blob, _ in photographs:
            most = max(most, source.held)
            source.under_way.pop(i, None)
            found.append((i, blob if blob is DEFERRED else len(blob)))
    return found, most


@pytest.mark.parametrize("kind", [Distant, Measured])
def test_remote_reads_are_bounded_by_their_bytes(kind: type[Distant]) -> None:
    sizes = [9_000_000] * 40
    source = kind(sizes)
    found, most = walk(source, range(40))
    assert found == list(enumerate(sizes)) and source.begun == list(range(40))
    assert most <= (FREE_BYTES if kind is Measured else 3 * FREE_BYTES), (
        "the first ones are begun before their size is known"
    )


def test_small_remote_photographs_are_many_at_once() -> None:
    source = Distant([1000] * 64)
    assert walk(source, range(64))[1] == 1000 * readahead._AHEAD


def test_large_remote_photographs_wait_for_their_turn() -> None:
    sizes = [1000, FREE_BYTES, 1000, FREE_BYTES, FREE_BYTES, 1000]
    source = Measured(sizes)
    found, _ = walk(source, range(6))
    assert found == [(i, size if size < FREE_BYTES else DEFERRED) for i, size in enumerate(sizes)]
    assert source.begun == [0, 2, 5]


def test_a_remote_read_that_takes_long_is_said_to_be_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readahead, "_SLOW_S", 0.01)
    source, said = Distant([5, 5], answered=False), []

    def waiting() -> None:
        said.append(True)
        for future in source.under_way.values():
            if not future.done():
                future.set_result(b"12345")

    with read_ahead(source, [0, 1], waiting) as photographs:  # type: ignore[arg-type]
        assert [(i, blob) for i, blob, _ in photographs] == [(0, b"12345"), (1, b"12345")]
    assert said == [True]


def test_what_no_one_wants_any_more_is_canceled() -> None:
    source = Distant([5] * 9, answered=False)

    def answer() -> None:
        source.under_way[0].set_result(b"12345")

    with read_ahead(source, range(9), answer) as photographs:  # type: ignore[arg-type]
        assert next(photographs)[:2] == (0, b"12345")
    assert len(source.begun) > 1
    assert [future.cancelled() for future in source.under_way.values()] == [False] + [True] * (
        len(source.begun) - 1
    )


@pytest.mark.parametrize("where", ["uri", "read"])
def test_an_error_of_the_source_is_the_failure_of_its_sample(where: str) -> None:
    with read_ahead(Near(RuntimeError("mistake"), where), range(4), lambda: None) as photographs:  # type: ignore[arg-type]
        found = [blob for _, blob, _ in photographs]
    failure = found.pop(2)
    assert found == [b"x"] * 3
    assert (failure.id, failure.reason) == (
        2,
        "internal",
    ) and "RuntimeError: mistake" in failure.detail


@pytest.mark.parametrize(
    "error", [SourceError("the bucket is gone"), OSError(errno.EMFILE, "too many open files")]
)
def test_what_no_sample_can_change_is_raised_where_its_bytes_are_wanted(error: Exception) -> None:
    found = []
    with read_ahead(Near(error, "read"), range(4), lambda: None) as photographs:  # type: ignore[arg-type]
        with pytest.raises(type(error), match=r"gone|too many"):
            for i, _, _ in photographs:
                found.append(i)
    assert found == [0, 1]


def test_a_remote_read_that_fails_or_cannot_begin_is_the_failure_of_its_sample() -> None:
    class Odd(Distant):
        def fetch(self, ids: Sequence[int]) -> list[Future[bytes]]:
            if 3 in ids:
                raise RuntimeError("no such request")
            found = super().fetch(ids)
            for i in set(ids) & {1}:
                found[list(ids).index(i)] = Future()
                found[list(ids).index(i)].set_exception(RuntimeError("lost"))
            return found

    with read_ahead(Odd([5] * 6), range(6), lambda: None) as photographs:  # type: ignore[arg-type]
        found = {i: blob for i, blob, _ in photographs}
    assert [i for i, blob in found.items() if isinstance(blob, bytes)] == [0, 2, 4, 5]
    assert "lost" in found[1].detail and "no such request" in found[3].detail
