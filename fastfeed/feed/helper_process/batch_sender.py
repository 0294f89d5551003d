"""The helper's side of a walk: batches begun as they are asked for, and sent in order as they are done."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import Any

import numpy as np

from fastfeed.feed.batch_builder import BatchBuilder
from fastfeed.feed.helper_process.messages import pack_error
from fastfeed.feed.helper_process.shared_memory import SharedBuffers
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.thread_pool import CancelToken, ParallelJob, ThreadPool
from fastfeed.sampling.plan import Plan

__all__ = ["BatchSender", "Send"]

_NOTHING = np.empty(0, np.uint8)  # images travel as memory

Send = Callable[[Any, Sequence[int]], None]  # (message, descriptors); for many threads


class BatchSender:
    """One position in the order and what is under way from there."""

    def __init__(
        self,
        number: int,
        builder: BatchBuilder,
        pool: ThreadPool,
        buffers: SharedBuffers,
        send: Send,
        start: tuple[int, int, int | None],
    ) -> None:
        self._number, self._builder, self._pool, self._buffers, self._send = number, builder, pool, buffers, send
        self._stop = CancelToken(pool)
        self._read_ahead = builder.read_ahead()
        self._steps = enumerate(_steps(builder.plan, *start))
        self._begun: queue.SimpleQueue[ParallelJob[Batch] | BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._hand_over, name=f"fastfeed-walk-{number}", daemon=True)
        self._thread.start()

    def more(self, jobs: int) -> None:
        """Begin so many batches more. The end of the walk is sent in the place of a batch."""
        try:
            for n, (epoch, step) in islice(self._steps, jobs):
                job = self._builder.job(epoch, step, n, self._stop, self._read_ahead)
                job.start(self._pool)
                self._begun.put(job)
                jobs -= 1
        except BaseException as error:  # an order's or a source's own
            self._begun.put(error)
            return
        if jobs:
            self._begun.put(None)

    def close(self) -> None:
        """Stop; waits for nothing."""
        self._stop.set()
        self._begun.put(None)

    def _hand_over(self) -> None:
        try:
            while self._next():
                pass
        except ConnectionError:  # nobody receives any more: the main thread sees that too
            pass
        finally:
            self._stop.set()
            if self._read_ahead is not None:
                self._read_ahead.close()

    def _next(self) -> bool:
        """Send what comes next; whether more may follow."""
        job = self._begun.get()
        if job is None:
            if not self._stop.is_set():
                self._send(("end", self._number), ())
            return False
        try:
            if isinstance(job, BaseException):
                raise job
            batch = job.result()
        except BaseException as error:  # arrives at its batch's turn
            return self._fail(error)
        if self._stop.is_set():
            return False
        try:
            self._deliver(batch)
        except ConnectionError:
            raise
        except Exception as error:  # columns that do not pickle, no descriptors left
            return self._fail(error)
        return True

    def _deliver(self, batch: Batch) -> None:
        images = batch.images
        key, fds = self._buffers.lend(images)
        rest = replace(batch, images=_NOTHING, views=batch.views[1:], columns=dict(batch.columns))
        try:
            self._send(("batch", self._number, key, images.shape, images.dtype.str, rest), fds)
        except BaseException:  # however sending ended, the feed has not got the slot
            self._buffers.back(key)
            raise
        self._buffers.sent(images)

    def _fail(self, error: BaseException) -> bool:
        if not self._stop.is_set():
            self._send(("error", self._number, pack_error(error)), ())
        return False


def _steps(plan: Plan, epoch: int, step: int, epochs: int | None) -> Iterator[tuple[int, int]]:
    first = epoch * plan.steps + step
    last = None if epochs is None else max(0, epochs * plan.steps - step)
    return (divmod(position, plan.steps) for position in islice(count(first), last))
