"""Feeds with a helper process, and sources that it can import."""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.errors import FastfeedError, StorageError
from fastfeed.feed.feed import Feed
from fastfeed.feed.session import FeedSession
from fastfeed.sources import Arrays
from helpers.feeds import NUMBERS, feed

LONG = 30  # seconds; a wait that gets this far has failed


def side(source: Any = None, ops: Any = (), **more: Any) -> Feed:
    """Five batches of ten small images, unless told otherwise."""
    source = Arrays(NUMBERS, np.arange(50)) if source is None else source
    return feed(source, list(ops), **({"batch": 10, "side_process": True} | more))


def helper(data: Feed) -> int:
    """The process that makes its batches."""
    return FeedSession.of(data).producer._client.process.pid  # type: ignore[attr-defined, union-attr]


def ended(pid: int) -> bool:
    """Waits for the end of any process."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], LONG)[0])
    finally:
        os.close(fd)


def gone(pid: int) -> bool:
    """Not even a zombie is left."""
    return not Path(f"/proc/{pid}").exists()


def shared_bytes(pid: int | str = "self") -> int:
    """Batch memory that a process has mapped."""
    total = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "/memfd:fastfeed" in line and " rw-s " in line:
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            total += last - first
    return total


class Described(Arrays):
    """Says more of each sample."""

    def weights(self, ids: np.ndarray) -> np.ndarray:
        return (ids % 3 + 0.5).astype(np.float32)

    def boxes(self, ids: np.ndarray) -> None:
        return None

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        wide = np.repeat(ids[:, None], 2000, axis=1).astype(np.float32)  # too long for one message
        return {"name": np.array([f"n{i}" for i in ids], object), "wide": wide}


class Stuck(Arrays):
    """Reads last until a file appears."""

    def __init__(self, folder: Path) -> None:
        super().__init__(NUMBERS)
        self.asked, self.go = folder / "asked", folder / "go"

    def read(self, ids: Any) -> list[Any]:
        self.asked.touch()
        appears(self.go)
        return super().read(ids)


def appears(file: Path) -> None:
    """Wait for another process."""
    deadline = time.monotonic() + LONG
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} was not created"
        time.sleep(0.005)


class Odd(FastfeedError):
    """Does not pickle."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} in {where}")


class Failing(Arrays):
    """Raises this when it comes to sample 25; all but "zero" ends the run."""

    def __init__(self, error: str) -> None:
        super().__init__(NUMBERS)
        self.error = error

    def read(self, ids: Any) -> list[Any]:
        if 25 in ids:
            if self.error == "odd":
                raise Odd("a sample", "the source")
            if self.error == "modules":
                raise MemoryError(" ".join(sys.modules))
            if self.error == "connection":
                raise StorageError("by the storage")
            raise {"memory": MemoryError, "exit": SystemExit, "zero": ZeroDivisionError}[
                self.error
            ]("in the source")
        return super().read(ids)
