"""The endpoints that hold the samples of a source: a bucket, a host, or the local disks; and when
each answered.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fastfeed.storage.retry import is_cached, last_answer

__all__ = ["Endpoints", "endpoint_of"]

_SAMPLED, _SMALL = 256, 1 / 32  # samples looked at; an endpoint of fewer of these is small
_RECENT = 16


class Endpoints:
    """The endpoints of one source.

    What a disk cache returns is not their answer; there its requests count.
    """

    def __init__(self, length: int, uri: Callable[[int], Any]) -> None:
        self._length, self._uri = length, uri
        self._recent: deque[int] = deque(maxlen=_RECENT)  # samples that were read lately
        self._read_at: dict[
            str, float
        ] = {}  # last time that a sample was read, noted while an endpoint is down
        self._sampled: dict[str, list[int]] | None = None
        self._turn = 0
        self._lock = threading.Lock()

    def of(self, id: int) -> str:
        """The endpoint of a sample."""
        return endpoint_of(self._uri(id))

    def note(self, id: int) -> None:
        """A sample that was read just now."""
        with self._lock:
            self._recent.append(id)

    def note_read(self, ids: Iterable[int]) -> set[str]:
        """Samples that were read just now, while an endpoint is down; those endpoints of theirs
        that have answered.
        """
        now, found = time.monotonic(), {self.of(id) for id in ids}
        with self._lock:
            self._read_at.update(dict.fromkeys(found, now))
        return {endpoint for endpoint in found if not is_cached(endpoint)}

    def answered(self, endpoint: str, since: float) -> bool:
        """Whether it has answered since then, a time of `time.monotonic`."""
        read_at = (
            float("-inf") if is_cached(endpoint) else self._read_at.get(endpoint, float("-inf"))
        )
        return max(last_answer(endpoint), read_at) >= since

    def others_answered(self, endpoint: str, since: float) -> bool:
        """Whether any other endpoint of the source has."""
        return any(self.answered(other, since) for other in self._sample() if other != endpoint)

    def is_small(self, endpoint: str) -> bool:
        """Whether one of several endpoints holds but a few of the samples: one host of a list of
        web addresses.
        """
        counts = {name: len(ids) for name, ids in self._sample().items()}
        count = counts.get(endpoint, 0)
        return len(counts) > (count > 0) and (count <= 1 or count < _SMALL * sum(counts.values()))

    def candidates(self, endpoint: str | None, id: int) -> Iterator[int]:
        """Other samples to read there (None: anywhere): one that was read lately, then others,
        different each time.
        """
        sampled = self._sample()
        spread = [
            other for name, ids in sampled.items() if endpoint in (None, name) for other in ids
        ]
        with self._lock:
            self._turn += 1
            turn, newest = self._turn, list(self._recent)
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


def endpoint_of(uri: Any) -> str:
    """Scheme and host of an address; empty for local paths and names of other kinds."""
    scheme, separator, rest = str(uri).partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if separator else ""
