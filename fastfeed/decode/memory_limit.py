"""Limit on the memory that decoding may take at once, over all threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.runtime.extension import extension, is_built
from fastfeed.runtime.placement import lacks_memory
from fastfeed.system.processes import after_fork

DEFAULT_BYTES = 2 << 30  # of a process, half of it for the native extension and half for Pillow
_LEAST = 64 << 20  # bytes without which a system has no more memory, however small an image is
T = TypeVar("T")


class MemoryLimit:
    """Admits work by its bytes. Work larger than the limit waits until it can run alone."""

    def __init__(self, bytes: int = DEFAULT_BYTES // 2) -> None:
        self.bytes = bytes
        self._forget()

    def _forget(self) -> None:
        self._used = 0
        self._change = threading.Condition()

    @contextmanager
    def reserve(self, need: int) -> Iterator[None]:
        """`with limit.reserve(need): ...` waits for room, then holds it."""
        with self._change:
            self._change.wait_for(lambda: not self._used or self._used + need <= self.bytes)
            self._used += need
        try:
            yield
        finally:
            with self._change:
                self._used -= need
                self._change.notify_all()

    def change(self, bytes: int) -> None:
        """Change the limit for all work from now on."""
        with self._change:
            self.bytes = bytes
            self._change.notify_all()


DECODING = MemoryLimit()  # shared by Pillow's decoders of this process
after_fork(DECODING._forget)  # threads that hold memory, or the lock, are not in the child


def limit_decoding(bytes: int) -> None:
    """Let decoders of this process hold `bytes` at once, half in native code, half in Pillow."""
    DECODING.change(bytes // 2)
    if is_built():
        extension().limit_held_bytes(bytes // 2)


class Oversized(Exception):
    """A file asks for more memory than its size explains."""


def with_memory(call: Callable[[], T], need: Callable[[], int]) -> T:
    """Call it, and once more after a lack of memory has passed because other threads freed theirs.

    Args:
        call: what may raise MemoryError, or an error that says so.
        need: computes the bytes that it may ask for.

    Raises:
        MemoryError: If the system does not have this many bytes.
        Oversized: If it does, and they are not enough.
    """
    try:
        return call()
    except Exception as error:
        if not lacks_memory(error):
            raise
    np.empty(max(need(), _LEAST), np.uint8)
    try:
        return call()
    except Exception as error:
        if not lacks_memory(error):
            raise
        raise Oversized(f"{error}" or "more memory than an image of its size takes") from error


def give_back() -> None:
    """Return memory that the allocator keeps for its threads to the system.

    Does nothing without the native extension, or where the native extension cannot do so.
    """
    if is_built():
        extension().give_back()


def check_memory(memory: Any) -> None:
    """Raise ConfigError unless `memory` is a number of bytes that decoding can use, or None."""
    if memory is not None and (
        isinstance(memory, bool) or not isinstance(memory, int) or not 1 << 20 <= memory < 1 << 62
    ):
        raise ConfigError.of(
            "memory", f"bytes, an integer >= {1 << 20} such as 4 << 30, or None", memory
        )
