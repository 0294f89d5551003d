"""Distinguishes a storage outage from a bad file, and waits for the outage to end."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from typing import Any

from fastfeed.errors import StorageError
from fastfeed.faults import STORAGE, Failure, Outage
from fastfeed.printable import log
from fastfeed.runtime.progress import BatchProgress
from fastfeed.runtime.thread_pool import Stop
from fastfeed.storage.retry import failing_since, is_cached, last_answer, patience

_FILE_FAULTS = 3  # reads of one file that fail while its endpoint answers, before it counts as bad
_PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0)  # seconds before repeating a read; the last one from then on
_WARN_AFTER_S = 2.0  # of an outage before the first line about it
_WARN_EVERY_S = 60.0  # between lines about the same outage
_PROBES = 2  # other samples read to see whether an endpoint answers
_POLL_S = 0.1  # how often a waiting thread checks whether it should stop
_DAY_S = 86_400
_YEAR_S = 365 * 86_400

ReadIds = Callable[[list[int]], list[Any]]  # ids -> bytes, an array or a Failure each


@dataclass(slots=True)
class _Down:
    """An endpoint of which no read has succeeded since then."""

    since: float
    last_warned: float = 0.0  # time of the last log line about it; 0: not yet
    given_up: bool = False


class Outages:
    """Outages of the endpoints that one feed reads: a bucket, a host, or the local disks.

    A read that fails for a reason of `faults.STORAGE` is repeated. If its endpoint answers other
    reads meanwhile, it is the file's fault, and the failure stays. If it answers none, storage is
    down: all threads that need it wait. Of a small endpoint, one host of a list of web addresses,
    nothing is waited for as long as other endpoints answer.
    """

    def __init__(
        self,
        outage: Outage,
        length: int,
        uri: Callable[[int], Any],
        progress: BatchProgress | None = None,
    ) -> None:
        """`progress` counts the reads that are repeated."""
        self._outage = outage
        self._endpoints = FeedEndpoints(length, uri)
        self._progress = BatchProgress() if progress is None else progress
        self._down: dict[str, _Down] = {}
        self._begun = time.monotonic()  # waiting is not counted from before this
        self._waiting: Counter[str] = Counter()  # threads, by endpoint
        self._lock = threading.Lock()

    def patience(self) -> AbstractContextManager[None]:
        """Let reads begun inside fail once the endpoint is silent for as long as the feed waits."""
        return patience(self._outage.wait)

    def settle(
        self, ids: Sequence[int], entries: list[Any], read: ReadIds, stop: Stop
    ) -> list[Any]:
        """Entries of these ids, with failures of storage replaced by the results of later reads.

        An entry is None where `stop` was set first. Once patience is at its end, StorageError is
        raised, or it is a Failure with the reason "outage".
        """
        self._note(ids, entries)
        failed = [k for k, entry in enumerate(entries) if _is_storage(entry)]
        if failed:
            entries = list(entries)
            for k in failed:
                entries[k] = self._insist(ids[k], entries[k], read, stop)
        return entries

    def error(self, failure: Failure) -> StorageError:
        """The error for a sample that storage does not return."""
        endpoint = parse_endpoint(failure.uri)
        down = self._down.get(endpoint)
        passed = f" for {time.monotonic() - down.since:.0f} s" if down is not None else ""
        return StorageError(
            f"{_name(endpoint)} has not answered{passed}: {failure}; feed.state() holds the"
            " position, and the next iteration continues there; Feed(outage=ff.Outage(wait=...))"
            f" waits longer than {self._outage.wait:g} s"
        )

    def _insist(self, id: int, failure: Failure, read: ReadIds, stop: Stop) -> Any:
        endpoint = parse_endpoint(failure.uri)
        faults = 0
        with self._waits(endpoint):
            for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
                since = time.monotonic()
                down = self._begin(endpoint)
                if not _wait(min(pause, max(down.since + self._outage.wait - since, 0)), stop):
                    return None
                self._progress.count(retries=1)
                (entry,) = read([id])
                if not _is_storage(entry):
                    if not isinstance(entry, Failure) and entry is not None:
                        # it did need a request: it has failed
                        self._is_up(endpoint)
                    return entry
                failure = entry
                if self._is_the_files_fault(endpoint, id, since, read):
                    faults += 1
                    if faults == _FILE_FAULTS:
                        return failure
                elif self._give_up(endpoint, down, failure):
                    return replace(
                        failure, reason="outage", detail=f"{failure.reason}: {failure.detail}"
                    )
        raise AssertionError("pauses never end")

    @contextmanager
    def _waits(self, endpoint: str) -> Iterator[None]:
        """Counts the threads that wait.

        After the last one no outage remains, but one that is known to be given up.
        """
        with self._lock:
            self._waiting[endpoint] += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting[endpoint] -= 1
                down = self._down.get(endpoint)
                if (
                    not self._waiting[endpoint]
                    and down is not None
                    and not (down.given_up and self._replaces)
                ):
                    del self._down[endpoint]  # its time does not run while nothing is read

    @property
    def _replaces(self) -> bool:
        return self._outage.then == "substitute"

    def _begin(self, endpoint: str) -> _Down:
        now = time.monotonic()
        failing = failing_since(endpoint)
        since = now if math.isinf(failing) else max(failing, self._begun)
        with self._lock:
            return self._down.setdefault(endpoint, _Down(since))

    def _is_the_files_fault(self, endpoint: str, id: int, since: float, read: ReadIds) -> bool:
        """True if the endpoint, or for a small one any other, answers since then or now."""
        small = self._endpoints.is_small(endpoint)
        for other in [
            None,
            *islice(self._endpoints.candidates(None if small else endpoint, id), _PROBES),
        ]:
            if other is not None:
                self._note([other], read([other]))
            if self._endpoints.answered(endpoint, since):
                self._is_up(endpoint)
                return True
            if small and self._endpoints.others_answered(endpoint, since):
                return True
        return False

    def _note(self, ids: Sequence[int], entries: Sequence[Any]) -> None:
        """Note the endpoints that gave entries: neither failures nor reads that were stopped."""
        read = [
            id
            for id, entry in zip(ids, entries, strict=True)
            if not (entry is None or isinstance(entry, Failure))
        ]
        if read:
            self._endpoints.note(read[0])
            if self._down:
                for endpoint in self._endpoints.note_read(read):
                    self._is_up(endpoint)

    def _is_up(self, endpoint: str) -> None:
        with self._lock:
            down = self._down.pop(endpoint, None)
        if down is not None and down.last_warned:
            log.warning(
                "%s answers again after %.0f s", _name(endpoint), time.monotonic() - down.since
            )

    def _give_up(self, endpoint: str, down: _Down, failure: Failure) -> bool:
        """True once the feed stops waiting; raises if that ends the run.

        Writes the lines about it.
        """
        now = time.monotonic()
        with self._lock:
            left = down.since + self._outage.wait - now
            down.given_up = left <= 0
            tell = (
                now - down.since >= _WARN_AFTER_S
                and (not down.last_warned or now - down.last_warned >= _WARN_EVERY_S)
                and left > 0
            )
            down.last_warned = now if tell else down.last_warned
        if tell:
            log.warning(
                "waiting for %s: no read has succeeded since %s; %s at %s, or Feed(outage=...);"
                " last error: %s",
                _name(endpoint),
                _at(down.since - now),
                "its samples are replaced" if self._replaces else "StorageError",
                _at(left),
                failure,
            )
        if down.given_up and not self._replaces:
            error = self.error(failure)
            self._begun = now  # the next iteration waits again
            raise error
        return down.given_up


def _wait(seconds: float, stop: Stop) -> bool:
    """False if the feed is being closed, or the batch has failed for another reason."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not stop.is_set():
        time.sleep(min(left, _POLL_S))
    return not stop.is_set()


def _is_storage(entry: Any) -> bool:
    return isinstance(entry, Failure) and entry.reason in STORAGE


def _name(endpoint: str) -> str:
    return endpoint or "the source"


def _at(seconds: float) -> str:
    """The time of day after these seconds, with the date if that is another day."""
    if abs(seconds) > _YEAR_S:
        return "no time"
    form = "%H:%M:%S" if abs(seconds) < _DAY_S / 2 else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(time.time() + seconds))


# samples looked at; an endpoint of fewer of these is small
_SAMPLED = 256
_SMALL = 1 / 32


_RECENT = 16


class FeedEndpoints:
    """The endpoints of one source.

    What a disk cache returns is not their answer; there its requests count.
    """

    def __init__(self, length: int, uri: Callable[[int], Any]) -> None:
        self._length = length
        self._uri = uri
        self._recent: deque[int] = deque(maxlen=_RECENT)  # samples that were read lately
        self._read_at: dict[
            str, float
        ] = {}  # last time that a sample was read, noted while an endpoint is down
        self._sampled: dict[str, list[int]] | None = None
        self._turn = 0
        self._lock = threading.Lock()

    def of(self, id: int) -> str:
        """The endpoint of a sample."""
        return parse_endpoint(self._uri(id))

    def note(self, id: int) -> None:
        """Note a sample that was read just now."""
        with self._lock:
            self._recent.append(id)

    def note_read(self, ids: Iterable[int]) -> set[str]:
        """Note samples read during an outage; return those of their endpoints that answered."""
        now = time.monotonic()
        found = {self.of(id) for id in ids}
        with self._lock:
            self._read_at.update(dict.fromkeys(found, now))
        return {endpoint for endpoint in found if not is_cached(endpoint)}

    def answered(self, endpoint: str, since: float) -> bool:
        """True if it has answered since then, a time of `time.monotonic`."""
        read_at = (
            float("-inf") if is_cached(endpoint) else self._read_at.get(endpoint, float("-inf"))
        )
        return max(last_answer(endpoint), read_at) >= since

    def others_answered(self, endpoint: str, since: float) -> bool:
        """True if any other endpoint of the source has answered since then."""
        return any(self.answered(other, since) for other in self._sample() if other != endpoint)

    def is_small(self, endpoint: str) -> bool:
        """True for a host that holds few of the samples in a list of web addresses."""
        counts = {name: len(ids) for name, ids in self._sample().items()}
        count = counts.get(endpoint, 0)
        return len(counts) > (count > 0) and (count <= 1 or count < _SMALL * sum(counts.values()))

    def candidates(self, endpoint: str | None, id: int) -> Iterator[int]:
        """Other samples to read there, a recent one first, then a different selection each time."""
        sampled = self._sample()
        spread = [
            other for name, ids in sampled.items() if endpoint in (None, name) for other in ids
        ]
        with self._lock:
            self._turn += 1
            turn = self._turn
            newest = list(self._recent)
        recent = [
            other for other in reversed(newest) if endpoint is None or self.of(other) == endpoint
        ]
        # steps of a golden ratio: neighboring turns are far apart, since bad samples lie together
        # in a bad shard
        begin = int(turn * 0.618034 * len(spread)) % max(len(spread), 1)
        for other in dict.fromkeys([*recent[:1], *spread[begin:], *spread[:begin]]):
            if other != id:
                yield other

    def _sample(self) -> dict[str, list[int]]:
        """Ids from all over the source, by endpoint."""
        with self._lock:
            if self._sampled is None:
                self._sampled = {}
                count = min(_SAMPLED, self._length)
                for id in (k * self._length // count for k in range(count)):
                    self._sampled.setdefault(self.of(id), []).append(id)
            return self._sampled


def parse_endpoint(uri: Any) -> str:
    """Scheme and host of an address; empty for local paths and names of other kinds."""
    scheme, separator, rest = str(uri).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if separator else ""
