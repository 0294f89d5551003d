"""Progress of listings and scans on the terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any


class ScanProgress:
    """Counts folders or shards, and images, from several threads."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar = bar
        self._task = task
        self._lock = threading.Lock()
        self._images = 0
        self._done = 0
        self._started = time.monotonic()

    def begin(self, total: int, done: int = 0) -> None:
        """Set how many there are, and how many an earlier run has done."""
        with self._lock:
            self._done = done
            if self._bar is not None and total:
                self._bar.update(self._task, total=total, completed=done)

    def add(self, done: int = 0, images: int = 0) -> None:
        """Add to the counts of work done and of images."""
        with self._lock:
            self._done += done
            self._images += images
            if self._bar is not None:
                rate = self._images / max(time.monotonic() - self._started, 1e-3)
                self._bar.update(self._task, completed=self._done, images=self._images, rate=rate)

    def now(self, activity: str) -> None:
        """Show the activity in the progress bar."""
        if self._bar is not None:
            self._bar.update(self._task, description=activity)


@contextlib.contextmanager
def progress_bar(title: str, show: bool | None, counts: str = "") -> Iterator[ScanProgress]:
    """A count with a bar; `show` None: on a terminal. `counts`: rich's text after the bar."""
    if show is False or (show is None and not (sys.stderr and sys.stderr.isatty())):
        yield ScanProgress()
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn(counts),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield ScanProgress(bar, bar.add_task(title, total=None, images=0, rate=0.0))
