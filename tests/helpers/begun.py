"""A remote source whose reads end when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from helpers.lakes import LONG


class Remote:
    """Begins reads, which end when they are told to."""

    remote = True

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.pending: dict[int, Future[Any]] = {}
        self._began = threading.Condition()

    def fetch(self, ids: Sequence[int]) -> list[Future[Any]]:
        assert all(type(i) is int for i in ids)
        with self._began:
            self.calls.append(list(ids))
            self._began.notify_all()
        return [self.pending.setdefault(i, Future()) for i in ids]

    @property
    def begun(self) -> list[int]:
        return [i for call in self.calls for i in call]

    def until(self, count: int) -> None:
        """Wait until so many reads have begun."""
        with self._began:
            assert self._began.wait_for(lambda: len(self.begun) >= count, LONG)

    def answer(self, *ids: int, size: int = 1) -> None:
        for i in ids:
            self.pending.setdefault(i, Future()).set_result(bytes([i % 256]) * size)


class Shards(Remote):
    """One that knows the size of each sample."""

    bounds = np.array([0, 1000])

    def __init__(self, sizes: dict[int, int] | int) -> None:
        super().__init__()
        self._sizes = sizes

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        return np.array(
            [
                self._sizes if isinstance(self._sizes, int) else self._sizes.get(int(i), 1)
                for i in ids
            ]
        )

    def shard(self, unit: int) -> str:
        return "a.tar"
