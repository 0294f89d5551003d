"""How much memory decoding may take at once, over all threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["MemoryLimit"]


class MemoryLimit:
    """Admits work by its bytes. Work larger than the limit waits until it can run alone."""

    def __init__(self, bytes: int = 1 << 30) -> None:
        self._bytes, self._used = bytes, 0
        self._change = threading.Condition()

    @contextmanager
    def reserve(self, need: int) -> Iterator[None]:
        """`with limit.reserve(need): ...` waits for room, then holds it."""
        with self._change:
            self._change.wait_for(lambda: not self._used or self._used + need <= self._bytes)
            self._used += need
        try:
            yield
        finally:
            with self._change:
                self._used -= need
                self._change.notify_all()
