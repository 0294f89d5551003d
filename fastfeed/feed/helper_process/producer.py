"""Batches of a helper process, asked for ahead: `prefetch` beyond the one that is wanted, as with threads."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Any

from fastfeed.errors import ConfigError, FeedClosed
from fastfeed.feed.helper_process.client import Link, end
from fastfeed.feed.helper_process.inbox import Inbox
from fastfeed.feed.helper_process.job import Packed, Recipe
from fastfeed.feed.producer import Making, Place
from fastfeed.feed.quarantine import Quarantine
from fastfeed.runtime.buffers import Allocate
from fastfeed.runtime.timeline import Timeline

__all__ = ["SideMaker"]


class SideMaker:
    """One helper process, started with the first batch, and anew after it died."""

    def __init__(self, recipe: Recipe, depth: int, quarantine: Quarantine, timeline: Timeline) -> None:
        if not hasattr(os, "memfd_create") or not sys.executable:
            raise ConfigError(
                "side_process=True needs Linux and an interpreter that can be started (sys.executable), "
                f"got {sys.platform} and {sys.executable!r}; leave it out"
            )
        self.depth = depth
        self._packed, self._keep = Packed(recipe), recipe.assembly.slots
        self._quarantine, self._timeline = quarantine, timeline
        self._link: Link | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._lock, self._closed = threading.Lock(), False

    def begin(self, epoch: int, step: int, epochs: int | None, place: Place | None, raw: bool) -> Making:
        return _Asked(self, raw, (epoch, step, epochs), place)

    def use_memory(self, allocate: Allocate) -> None:
        """Nothing: no framework can allocate memory here that another process writes. Adapters page-lock what comes."""

    def link(self) -> Link:
        """The helper, started where there is none."""
        with self._lock:
            if self._closed:
                raise FeedClosed("this feed is closed; make a new one")
            if self._link is None or (self._link.gone is not None and self._link.pid == os.getpid()):
                if self._end is not None:
                    self._end()
                self._link = Link(self._packed, self._keep, self._quarantine, self._timeline)
                self._end = weakref.finalize(self, end, self._link)  # also at interpreter exit
            if not self._link.begun:
                self._link.begin()
            return self._link

    def close(self) -> None:
        """End the helper."""
        with self._lock:
            self._closed = True
            if self._end is not None:
                self._end()
            self._packed.close()


class _Asked:
    """Holds its maker, so it outlives the feed that began it."""

    def __init__(self, maker: SideMaker, raw: bool, start: tuple[int, int, int | None], place: Place | None) -> None:
        self._maker, self._raw, self._start, self._place = maker, raw, start, place
        self._link: Link | None = None
        self._number, self._inbox = -1, Inbox(place)
        self._asked, self._ended, self._closed = 0, False, False

    def __next__(self) -> Any:
        if self._link is not None and self._link.ending:
            raise FeedClosed("this feed is closed; make a new one")
        if self._closed:
            raise FeedClosed("these batches were closed, or ended by an error; begin a new iteration")
        try:
            if not self._ended:
                self._ask(self._maker.depth + 1)
                what, result = self._inbox.results.get()
                if what == "batch":
                    self._asked -= 1
                    return result
                if what == "error":
                    try:
                        raise result
                    finally:  # an error holds its frames, these hold this: no cycle may stay
                        del result
                self._ended = True
        except BaseException:  # also Ctrl-C between two lines: what is half done must not be gone on with
            self.close()
            raise
        raise StopIteration

    def _ask(self, wanted: int) -> None:
        """See to it that so many batches are under way, or lie here."""
        if self._link is None:
            link = self._maker.link()
            self._check(link)
            self._number, self._inbox = link.open(self._raw, self._start, self._place)
            self._link = link
            # without the inbox, whose `place` and results may hold all of this
            weakref.finalize(self, link.leave, self._number).atexit = False
        self._check(self._link)
        if self._asked < wanted:
            self._asked, more = wanted, wanted - self._asked
            self._link.post("more", self._number, more)

    def _check(self, link: Link) -> None:
        if link.pid != os.getpid():
            raise FeedClosed(
                "this feed was started before fork(), its helper process works for the parent; "
                "make the feed in the child"
            )

    @property
    def ready(self) -> int:
        return self._inbox.results.qsize()

    @property
    def closed(self) -> bool:
        return self._closed or (self._link is not None and self._link.ending)

    def close(self) -> None:
        self._closed = True
        if self._link is not None:
            self._link.leave(self._number)
            self._inbox.drop()
            self._link.post("free")
