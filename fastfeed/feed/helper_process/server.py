"""The helper process: python -m fastfeed.feed.helper_process.server <fd>.

Started by `client`; ends with its socket.

The main thread handles requests, which never takes long. The threads of the pool make batches and
one thread per stream sends them; no message is answered.
"""

from __future__ import annotations

import math
import os
import queue
import select
import signal
import socket
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

import numpy as np

from fastfeed.feed.batch.builder import BatchBuilder
from fastfeed.feed.helper_process.job import PickledJob
from fastfeed.feed.helper_process.messages import BufferKey, Closed, pack_error, receive, send
from fastfeed.feed.producer import steps_from
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.thread_pool import CancelToken, ParallelJob, ThreadPool
from fastfeed.storage.retry import retry_count
from fastfeed.system.shared_memory import anonymous, mapped
from fastfeed.system.signals import unblock_interrupt

# how often to check that the parent lives: a process it forked may keep the socket open
_POLL_MS = 500
_NOTHING = np.empty(0, np.uint8)  # images are sent as shared memory


def main() -> None:
    """Serve until the feed is gone."""
    # Ctrl-C interrupts the trainer, which decides what happens
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    unblock_interrupt()
    parent = os.getppid()
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    helper = _Helper(connection)
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    status = 0
    try:
        while os.getppid() == parent:
            if poll.poll(_POLL_MS):
                helper.handle(*receive(connection))
    except Closed:
        pass
    except BaseException:  # a bug: the feed reports that this process died, this traceback says why
        traceback.print_exc()
        status = 1
    try:
        helper.end()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)  # threads may be in reads that never return


class _Helper:
    """The batch builders and the open streams."""

    def __init__(self, to: socket.socket) -> None:
        self._to = to
        self._sending = threading.Lock()
        self._builders: tuple[BatchBuilder, BatchBuilder] | None = None  # of batches, of raw ones
        self._pool: ThreadPool | None = None
        self._error: tuple[bytes | None, str] | None = None  # why there are no builders
        self._buffers = (SharedBuffers(False), SharedBuffers(True))
        self._senders: dict[int, BatchSender] = {}
        self._reported = 0  # bad samples that the feed has been sent
        self._sent_again = 0  # requests that were repeated, likewise

    def handle(self, message: tuple[tuple[Any, ...], list[BufferKey]], fds: list[int]) -> None:
        """Handle a message, after releasing the buffers that the feed no longer uses."""
        (what, *arguments), released = message
        for key in released:
            self._buffers[key[0]].release(key)
        {
            "make": self._make,
            "open": self._open,
            "more": self._more,
            "close": self._close,
            "free": self._free,
        }[what](*arguments, *fds)

    def _make(self, path: list[str], python_path: str | None, sizes: list[int], fd: int) -> None:
        """Build everything that streams need. An error here is raised by every stream."""
        sys.path[:] = path
        if python_path is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = python_path
        try:
            job = PickledJob.load(fd, sizes)
            builders = job.builders()
            for builder, buffers in zip(builders, self._buffers, strict=True):
                builder.branches[0].buffers.use_allocator(buffers.allocate)
            self._builders = builders
            self._pool = ThreadPool(builders[0].sizes.threads)
        except BaseException as error:
            self._error = pack_error(error)
        finally:
            os.close(fd)

    def _open(self, number: int, raw: bool, start: tuple[int, int, int | None]) -> None:
        if self._builders is None or self._pool is None:
            self._send(("error", number, self._error), ())
            return
        self._senders[number] = BatchSender(
            number, self._builders[raw], self._pool, self._buffers[raw], self._send, start
        )

    def _more(self, number: int, batches: int) -> None:
        if number in self._senders:
            self._senders[number].more(batches)

    def _close(self, number: int) -> None:
        if number in self._senders:
            self._senders.pop(number).close()

    def _free(self) -> None:
        """Do nothing: every message carries released buffers."""

    def _send(self, message: tuple[Any, ...], fds: Sequence[int]) -> None:
        """Send a message with the bad samples and spans since the last one."""
        with self._sending:
            bad = []
            spans = []
            read = (0, 0)
            if self._builders is not None:
                read = self._read()
                bad = self._builders[0].quarantine.failures[self._reported :]
                spans = [tuple(span) for span in self._builders[0].timeline.drain()]
            self._reported += len(bad)
            send(self._to, (message, bad, spans, read), fds)

    def _read(self) -> tuple[int, int]:
        """Bytes read, and reads and requests repeated, since the last message."""
        assert self._builders is not None
        read_bytes, retries = self._builders[0].timeline.progress.drain()
        before = self._sent_again
        self._sent_again = retry_count()
        return read_bytes, retries + self._sent_again - before

    def end(self) -> None:
        """Write the spans that are still pending."""
        if self._builders is not None:
            self._builders[0].timeline.close()


class SharedBuffers:
    """The helper's side: memory for one `BufferPool`, and which of it the feed uses."""

    def __init__(self, raw: bool) -> None:
        self._raw = raw
        self._numbers = count()
        self._by_address: dict[int, _Memory] = {}  # by address
        self._buffers: dict[BufferKey, np.ndarray] = {}

    def allocate(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Allocate an array in shared memory, for a `BufferPool`."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        fd = anonymous(size)
        try:
            root = mapped(fd, size)
        except OSError:
            os.close(fd)
            raise
        address = _address(root)
        self._by_address[address] = _Memory((self._raw, next(self._numbers)), fd)
        weakref.finalize(root, _forget, self._by_address, address).atexit = False
        return root.view(dtype).reshape(shape)

    def lend(self, array: np.ndarray) -> tuple[BufferKey, list[int]]:
        """Keep an array until `release`.

        Returns its key, and its descriptor unless the feed has it already.
        """
        memory = self._by_address[_address(array)]
        self._buffers[memory.key] = array
        return memory.key, [] if memory.fd is None else [memory.fd]

    def mark_sent(self, array: np.ndarray) -> None:
        """Close the array's descriptor once the feed has received it."""
        self._by_address[_address(array)].close()

    def release(self, key: BufferKey) -> None:
        """Release a buffer that the feed no longer uses."""
        self._buffers.pop(key, None)


@dataclass(slots=True)
class _Memory:
    """One allocation; its descriptor, until it has been sent."""

    key: BufferKey
    fd: int | None

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def _forget(memories: dict[int, _Memory], address: int) -> None:
    """Forget memory before it is unmapped, so the address cannot have been reused yet."""
    memories.pop(address).close()


def _address(array: np.ndarray) -> Any:
    return array.__array_interface__["data"][0]


Send = Callable[[Any, Sequence[int]], None]  # (message, descriptors); for many threads


@dataclass(eq=False)
class BatchSender:
    """One stream: a position in the order, and the jobs started from there."""

    _number: int
    _builder: BatchBuilder
    _pool: ThreadPool
    _buffers: SharedBuffers
    _send: Send
    _start: tuple[int, int, int | None]

    def __post_init__(self) -> None:
        self._stop = CancelToken(self._pool)
        self._read_ahead = self._builder.read_ahead()
        self._steps = enumerate(steps_from(self._builder.plan, *self._start))
        self._started: queue.SimpleQueue[ParallelJob[Batch] | BaseException | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(
            target=self._send_all, name=f"fastfeed-sender-{self._number}", daemon=True
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
            self._send(("batch", self._number, key, images.shape, images.dtype.name, rest), fds)
        except BaseException:  # the feed has not received the buffer
            self._buffers.release(key)
            raise
        self._buffers.mark_sent(images)

    def _send_error(self, error: BaseException) -> bool:
        if not self._stop.is_set():
            self._send(("error", self._number, pack_error(error)), ())
        return False


if __name__ == "__main__":
    main()
