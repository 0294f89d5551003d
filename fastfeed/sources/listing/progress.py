"""Progress of a listing on the terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["ListingProgress", "listing_progress"]


class ListingProgress:
    """Counts folders and images; from several threads."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar = bar
        self._task = task
        self._lock = threading.Lock()
        self._images = 0
        self._folders = 0
        self._started = time.monotonic()

    def begin(self, folders: int, resumed: int) -> None:
        """Set the number of folders, and how many an earlier run has listed."""
        with self._lock:
            self._folders = resumed
            if self._bar is not None and folders:
                self._bar.update(self._task, total=folders, completed=resumed)

    def add(self, images: int = 0, folders: int = 0) -> None:
        """Count images and folders."""
        with self._lock:
            self._images += images
            self._folders += folders
            if self._bar is not None:
                rate = self._images / max(time.monotonic() - self._started, 1e-3)
                self._bar.update(
                    self._task, completed=self._folders, images=self._images, rate=rate
                )

    def now(self, activity: str) -> None:
        """Show the current activity."""
        if self._bar is not None:
            self._bar.update(self._task, description=activity)


@contextlib.contextmanager
def listing_progress(title: str, show: bool | None) -> Iterator[ListingProgress]:
    """A count with a bar; None: where stderr is a terminal."""
    if show is False or (show is None and not sys.stderr.isatty()):
        yield ListingProgress()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("folders, {task.fields[images]:,} images, {task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield ListingProgress(bar, bar.add_task(title, total=None, images=0, rate=0.0))
