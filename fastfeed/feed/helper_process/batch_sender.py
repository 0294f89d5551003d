"""The helper's side of a stream: starts batches as requested, and sends them in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import Any

import numpy as np

from fastfeed.feed.batch.builder import BatchBuilder
from fastfeed.feed.helper_process.messages import pack_error
from fastfeed.feed.helper_process.shared_memory import SharedBuffers
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.thread_pool import CancelToken, ParallelJob, ThreadPool
from fastfeed.sampling.plan import Plan

_NOTHING = np.empty(0, np.uint8)  # images are sent as shared memory

Send = Callable[[Any, Sequence[int]], None]  # (message, descriptors); for many threads


class BatchSender:
    """One stream: a position in the order, and the jobs started from there."""

    def __init__(
        self,
        number: int,
        builder: BatchBuilder,
        pool: ThreadPool,
        buffers: SharedBuffers,
        send: Send,
        start: tuple[int, int, int | None],
    ) -> None:
        self._number = number
        self._builder = builder
        self._pool = pool
        self._buffers = buffers
        self._send = send
        self._stop = CancelToken(pool)
        self._read_ahead = builder.read_ahead()
        self._steps = enumerate(_steps(builder.plan, *start))
        self._started: queue.SimpleQueue[ParallelJob[Batch] | BaseException | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(
            target=self._send_all, name=f"fastfeed-sender-{number}", daemon=True
        )
        self._thread.start()

    def more(self, jobs: int) -> None:
        """Start `jobs` more batches; at the end of the stream, send its end instead."""
        try:
            for n, (epoch, step) in islice(self._steps, jobs):
                job = self._builder.job(epoch, step, n, self._stop, self._read_ahead)
                job.start(self._pool)
                self._started.put(job)
                jobs -= 1
        except BaseException as error:  # orders and sources may raise anything
            self._started.put(error)
            return
        if jobs:
            self._started.put(None)

    def close(self) -> None:
        """Stop the stream, without waiting for its thread."""
        self._stop.set()
        self._started.put(None)

    def _send_all(self) -> None:
        try:
            while self._send_next():
                pass
        except ConnectionError:  # the feed is gone: the main thread notices that too
            pass
        finally:
            self._stop.set()
            for reads in self._read_ahead.values():
                reads.close()

    def _send_next(self) -> bool:
        """Send the next message; returns whether more may follow."""
        job = self._started.get()
        if job is None:
            if not self._stop.is_set():
                self._send(("end", self._number), ())
            return False
        try:
            if isinstance(job, BaseException):
                raise job
            batch = job.result()
        except BaseException as error:  # raised at its batch's turn
            return self._send_error(error)
        if self._stop.is_set():
            return False
        try:
            self._send_batch(batch)
        except ConnectionError:
            raise
        except Exception as error:  # columns that do not pickle, no descriptors left
            return self._send_error(error)
        return True

    def _send_batch(self, batch: Batch) -> None:
        images = batch.images
        key, fds = self._buffers.lend(images)
        rest = replace(batch, images=_NOTHING, views=batch.views[1:], columns=dict(batch.columns))
        try:
            self._send(("batch", self._number, key, images.shape, images.dtype.str, rest), fds)
        except BaseException:  # the feed has not received the buffer
            self._buffers.release(key)
            raise
        self._buffers.mark_sent(images)

    def _send_error(self, error: BaseException) -> bool:
        if not self._stop.is_set():
            self._send(("error", self._number, pack_error(error)), ())
        return False


def _steps(plan: Plan, epoch: int, step: int, epochs: int | None) -> Iterator[tuple[int, int]]:
    first = epoch * plan.steps + step
    last = None if epochs is None else max(0, epochs * plan.steps - step)
    return (divmod(position, plan.steps) for position in islice(count(first), last))
