"""The feed's side of a helper process: one thread starts it and receives from it."""

from __future__ import annotations

import copy
import math
import os
import queue
import select
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from fastfeed.errors import FastfeedError, FeedClosed
from fastfeed.faults import Failure
from fastfeed.feed.faults.quarantine import Quarantine
from fastfeed.feed.helper_process.job import PickledJob
from fastfeed.feed.helper_process.messages import BufferKey, Closed, receive, send, unpack_error
from fastfeed.feed.producer import PlaceFunction
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.timeline import Span, Timeline
from fastfeed.system.shared_memory import mapped
from fastfeed.system.signals import describe_exit, is_kill, no_interrupt

# how often to check that the helper lives: a process it started may keep the socket open
_POLL_MS = 500
_END_S = 1.0  # a helper that has not ended by itself after this is killed
# what happened, bad samples, spans, and (bytes read, repeated reads) since the message before
Message = tuple[Any, list[Failure], list[tuple[Any, ...]], tuple[int, int]]
_IMAGES = 4  # axes of a batch of images; one more where each sample has several views
_CLOSED = "the feed was closed while waiting for a batch"
_STUCK_S = 5.0  # after this a daemon thread is abandoned in a `place` that does not return


class Inbox:
    """A queue in order.

    The stream holds it, the receiving thread does not: `place` may hold the feed.
    """

    def __init__(self, place: PlaceFunction | None) -> None:
        self._place = place
        self._placed = 0
        # ("batch", placed), ("error", exception), ("end", None)
        self.results: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def add(self, images: np.ndarray, rest: Batch, timeline: Timeline) -> None:
        """Assemble a batch from its images and its other arrays, and place it."""
        views = (images, *rest.views) if images.ndim > _IMAGES or rest.image_names else ()
        batch = replace(rest, images=images, views=views)
        if self._place is None:
            self.results.put(("batch", batch))
            return
        try:
            with timeline.span("place", self._placed):
                placed = self._place(batch)
        except BaseException as error:  # raised at its batch's turn
            self.results.put(("error", error))
        else:
            self.results.put(("batch", placed))
        self._placed += 1

    def discard(self) -> None:
        """Drop all batches and wake a waiting consumer with an error."""
        with suppress(queue.Empty):
            while True:
                self.results.get_nowait()
        self.results.put(("error", FeedClosed(_CLOSED)))


class HelperClient:
    """The feed's side of one helper process.

    The receiving thread holds this object, so it holds neither the feed nor its streams.
    """

    def __init__(
        self, job: PickledJob, keep: int, quarantine: Quarantine, timeline: Timeline
    ) -> None:
        self._keep = keep
        self._quarantine = quarantine
        self._timeline = timeline
        self._memory: dict[BufferKey, np.ndarray] = {}  # of buffers that the helper reuses
        self._in_use: dict[
            BufferKey, weakref.ref[np.ndarray]
        ] = {}  # each dies with the last view of its batch
        # no longer in use; not yet reported to the helper
        self._released: deque[BufferKey] = deque()
        self._inboxes: weakref.WeakValueDictionary[int, Inbox] = weakref.WeakValueDictionary()
        self._numbers = count()
        self._outbox: deque[tuple[Any, ...]] = deque()
        self._sending = threading.Lock()
        self.failure: Exception | None = None  # why no more batches will come
        self.is_ending = False  # the feed has ended it
        self._has_answered = False  # it has sent a message
        self.pid = os.getpid()
        self._job = job
        self._socket: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.is_started = False
        self.launched = threading.Event()  # or has failed to
        # also starts the helper: Ctrl-C, which interrupts the main thread, cannot leave one half
        # started
        self.thread = threading.Thread(
            target=_listen, args=(self,), name="fastfeed-helper", daemon=True
        )

    def start_thread(self) -> None:
        """Start the thread, which starts the helper. Call it when a finalizer is in place."""
        self.is_started = True
        try:
            self.thread.start()
        except RuntimeError:  # no more threads may be started
            self.launched.set()
            raise

    def start(self) -> None:
        """Start the helper. Called by the thread."""
        path = [entry for entry in sys.path if isinstance(entry, str)]
        job = self._job
        try:
            with self._sending:  # others' messages come after the first
                self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs, no_interrupt():  # a helper must not get Ctrl-C before it ignores it
                    self.process = _start(theirs.fileno(), path)
                with suppress(ConnectionError):  # it has died already; `listen` will notice
                    send(
                        self._socket,
                        (("make", path, os.environ.get("PYTHONPATH"), job.sizes), []),
                        [job.fd],
                    )
        finally:
            self.launched.set()
        self.post("free")  # and the messages queued so far

    def close_stream(self, number: int) -> None:
        """Close a stream. Also called by garbage collection, so it takes no lock."""
        self._inboxes.pop(number, None)
        self.post("close", number)

    def open_stream(
        self, raw: bool, start: tuple[int, int, int | None], place: PlaceFunction | None
    ) -> tuple[int, Inbox]:
        """Open a stream that starts at (epoch, step, epochs)."""
        number = next(self._numbers)
        inbox = Inbox(place)
        self._inboxes[number] = inbox
        if self.failure is not None:  # all other inboxes already have it from the thread
            inbox.results.put(("error", copy.copy(self.failure)))
        self.post("open", number, raw, start)
        return number, inbox

    def post(self, *message: Any) -> None:
        """Send a message, from any thread; a call that is already sending sends this one as well."""
        if os.getpid() != self.pid:
            return
        self._outbox.append(message)
        while self._outbox and self._socket is not None and self._sending.acquire(blocking=False):
            try:
                while self._outbox:
                    send(self._socket, (self._outbox.popleft(), self._take_released()))
            except OSError:  # the helper is gone; the thread reports it
                self._outbox.clear()
            finally:
                self._sending.release()

    def _take_released(self) -> list[BufferKey]:
        keys = [self._released.popleft() for _ in range(len(self._released))]
        for key in keys:
            self._in_use.pop(key, None)
        return keys

    def listen(self) -> None:
        """Receive until the helper is gone. Called by the thread."""
        source = self._socket
        process = self.process
        assert source is not None and process is not None
        poll = select.poll()
        poll.register(source, select.POLLIN)
        while True:
            if poll.poll(_POLL_MS):
                self._handle(*receive(source))
            elif process.poll() is not None:
                raise Closed
            elif self._released:
                self.post("free")

    def _handle(self, message: Message, fds: Sequence[int]) -> None:
        self._has_answered = True
        (kind, number, *content), bad, spans, read = message
        self._quarantine.merge(bad)
        self._timeline.merge([Span(*span) for span in spans])
        self._timeline.progress.count(*read)
        buffer = self._buffer(content[0], fds) if kind == "batch" else None
        inbox = self._inboxes.get(number)
        if inbox is None:  # the stream was closed meanwhile
            del buffer
            if self._released:
                self.post("free")
        elif buffer is None:
            inbox.results.put((kind, unpack_error(*content[0]) if content else None))
        else:
            _, shape, dtype, rest = content
            size = math.prod(shape) * np.dtype(dtype).itemsize  # memory may be of larger batches
            images = buffer[:size].view(dtype).reshape(shape)
            inbox.add(images, rest, self._timeline)
            if number not in self._inboxes:  # closed while it was placed
                inbox.discard()

    def _buffer(self, key: BufferKey, fds: Sequence[int]) -> np.ndarray:
        """The memory of a buffer; when its last view is dropped it counts as released."""
        if fds:
            try:
                memory = mapped(fds[0], os.fstat(fds[0]).st_size, populate=True)
            finally:
                os.close(fds[0])
            if key[1] < self._keep:
                # the helper numbers buffers in order of allocation and reuses the first ones
                self._memory[key] = memory
        else:
            memory = self._memory[key]
        buffer = np.asarray(_WatchedMemory(memory))
        released = self._released
        self._in_use[key] = weakref.ref(buffer, lambda _: released.append(key))
        return buffer

    def fail(self, error: Exception) -> None:
        """Raise an error in all streams that wait."""
        self.failure = copy.copy(error)
        for ref in self._inboxes.valuerefs():
            inbox = ref()
            if inbox is not None:
                # a copy each: an exception holds the frames it was raised in
                inbox.results.put(("error", copy.copy(error)))

    def abandon(self) -> None:
        """Let go of the helper in a forked child: it belongs to the parent."""
        if self.process is not None:
            # or Popen would warn about a process that is not a child of this one
            self.process.returncode = 0
        if self._socket is not None:
            self._socket.close()

    def disconnect(self) -> None:
        """Shut the socket down, which ends the helper."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        # still importing modules: it has nothing to write
        if self.is_ending and not self._has_answered and self.process is not None:
            self.process.kill()

    def close_socket(self) -> None:
        """Close the socket after `disconnect`. Called by the thread."""
        with self._sending:
            if self._socket is not None:
                self._socket.close()

    def reap(self) -> int:
        """Wait for its end, or kill it; returns its exit status."""
        if self.process is None:
            return 0
        try:
            return self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class _WatchedMemory:
    """Memory of an array whose views keep it alive, so that a weak reference sees the last."""

    def __init__(self, memory: np.ndarray) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory = memory


def end(client: HelperClient) -> None:
    """End the helper and the thread. Also called by garbage collection and at interpreter exit."""
    if os.getpid() != client.pid:  # after fork() the helper belongs to the parent
        client.abandon()
        return
    client.is_ending = True
    if not client.is_started or not client.launched.wait(_STUCK_S):
        return
    client.disconnect()
    client.reap()
    if client.thread is not threading.current_thread() and client.thread.ident is not None:
        client.thread.join(_STUCK_S)


def _start(fd: int, path: list[str]) -> subprocess.Popen[bytes]:
    # modules come from sys.path, not the working directory
    options = ["-P"] if sys.version_info >= (3, 11) else []
    command = [sys.executable, *options, "-m", "fastfeed.feed.helper_process.server", str(fd)]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[fd], env=environ)


def _listen(client: HelperClient) -> None:
    error: Exception | None = None
    try:
        client.start()
        client.listen()
    except Closed:
        pass
    except Exception as raised:
        error = raised
    client.disconnect()
    status = client.reap()
    if client.is_ending:
        error = FeedClosed(_CLOSED)
    client.fail(error or _died(client.process, status))
    client.close_socket()


def _died(process: subprocess.Popen[bytes] | None, status: int) -> FastfeedError:
    how = describe_exit(status) if status < 0 else f"with {describe_exit(status)}"
    how += ", which the system also sends where memory runs out" if is_kill(status) else ""
    return FastfeedError(
        f"the helper process {process.pid if process else ''} of this feed died, {how}; "
        "a new iteration continues from feed.state() with a new helper process"
    )
