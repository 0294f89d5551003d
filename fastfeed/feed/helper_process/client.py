"""A helper process as the feed sees it: started, listened to by one thread, ended."""

from __future__ import annotations

import copy
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import numpy as np

from fastfeed.errors import FastfeedError, FeedClosed
from fastfeed.faults import Failure
from fastfeed.feed.helper_process.inbox import CLOSED, Inbox
from fastfeed.feed.helper_process.job import PickledJob
from fastfeed.feed.helper_process.messages import Closed, receive, send, unpack_error
from fastfeed.feed.helper_process.shared_memory import BufferKey, mapped
from fastfeed.feed.producer import PlaceFunction
from fastfeed.feed.quarantine import Quarantine
from fastfeed.runtime.timeline import Span, Timeline

__all__ = ["HelperClient", "end"]

_LOOK_MS = 500  # how often to look whether the helper lives: a process it started may keep the socket open
_END_S = 1.0  # a helper that has not ended by itself after this is killed
_STUCK_S = 5.0  # a thread in a `place` that does not return is left behind, a daemon, after this


class HelperClient:
    """One helper process. The receiving thread holds this, so this holds neither the feed nor its walks."""

    def __init__(self, job: PickledJob, keep: int, quarantine: Quarantine, timeline: Timeline) -> None:
        self._keep, self._quarantine, self._timeline = keep, quarantine, timeline
        self._memory: dict[BufferKey, np.ndarray] = {}  # of slots that the helper uses again
        self._held: dict[BufferKey, weakref.ref[np.ndarray]] = {}  # each dies with the last view of its batch
        self._free: deque[BufferKey] = deque()  # slots that nobody holds any more, not told yet
        self._inboxes: weakref.WeakValueDictionary[int, Inbox] = weakref.WeakValueDictionary()
        self._numbers = count()
        self._outbox: deque[tuple[Any, ...]] = deque()
        self._sending = threading.Lock()
        self.gone: Exception | None = None  # no batch will come any more, and why
        self.ending = False  # because the feed wants it so
        self._heard = False  # anything from it
        self.pid = os.getpid()
        self._job = job
        self._socket: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.begun = False
        self.started = threading.Event()  # or failed to
        # starts the helper, too: Ctrl-C, which comes to the main thread, cannot leave half of one behind
        self.thread = threading.Thread(target=_listen, args=(self,), name="fastfeed-side", daemon=True)

    def begin(self) -> None:
        """Begin to start the helper. Once somebody is there who will end it."""
        self.begun = True
        try:
            self.thread.start()
        except RuntimeError:  # no more threads may be started
            self.started.set()
            raise

    def start(self) -> None:
        """For one thread."""
        path, job = [entry for entry in sys.path if isinstance(entry, str)], self._job
        try:
            with self._sending:  # others' messages come after the first
                self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs, _no_interrupt():  # a helper must not get Ctrl-C before it has said that it ignores it
                    self.process = _start(theirs.fileno(), path)
                with suppress(ConnectionError):  # it has died already, which will be seen
                    send(self._socket, (("make", path, os.environ.get("PYTHONPATH"), job.sizes), []), [job.fd])
        finally:
            self.started.set()
        self.post("free")  # and what has waited

    def leave(self, number: int) -> None:
        """End a walk. Also by garbage collection, so it takes no lock."""
        self._inboxes.pop(number, None)
        self.post("close", number)

    def open(self, raw: bool, start: tuple[int, int, int | None], place: PlaceFunction | None) -> tuple[int, Inbox]:
        """Begin a walk from (epoch, step, epochs)."""
        number, inbox = next(self._numbers), Inbox(place)
        self._inboxes[number] = inbox
        if self.gone is not None:  # since: what the thread told all inboxes did not reach this one
            inbox.results.put(("error", copy.copy(self.gone)))
        self.post("open", number, raw, start)
        return number, inbox

    def post(self, *message: Any) -> None:
        """Send, from any thread, also in the middle of another call of this: then that one sends it."""
        if os.getpid() != self.pid:
            return
        self._outbox.append(message)
        while self._outbox and self._socket is not None and self._sending.acquire(blocking=False):
            try:
                while self._outbox:
                    send(self._socket, (self._outbox.popleft(), self._freed()))
            except OSError:  # it is gone, which the thread will say
                self._outbox.clear()
            finally:
                self._sending.release()

    def _freed(self) -> list[BufferKey]:
        keys = [self._free.popleft() for _ in range(len(self._free))]
        for key in keys:
            self._held.pop(key, None)
        return keys

    def listen(self) -> None:
        """Until the helper is gone. For one thread."""
        source, process = self._socket, self.process
        assert source is not None and process is not None
        poll = select.poll()
        poll.register(source, select.POLLIN)
        while True:
            if poll.poll(_LOOK_MS):
                self._take(*receive(source))
            elif process.poll() is not None:
                raise Closed
            elif self._free:
                self.post("free")

    def _take(self, message: tuple[Any, list[Failure], list[tuple[Any, ...]]], fds: Sequence[int]) -> None:
        self._heard = True
        (what, number, *content), bad, spans = message
        self._quarantine.merge(bad)
        self._timeline.heard([Span(*span) for span in spans])
        root = self._root(content[0], content[1], content[2], fds) if what == "batch" else None
        inbox = self._inboxes.get(number)
        if inbox is None:  # the walk was closed meanwhile
            del root
            if self._free:
                self.post("free")
        elif root is None:
            inbox.results.put((what, unpack_error(*content[0]) if content else None))
        else:
            _, shape, dtype, rest = content
            inbox.add(root.view(dtype).reshape(shape), rest, self._timeline)
            if number not in self._inboxes:  # closed while it was placed
                inbox.drop()

    def _root(self, key: BufferKey, shape: tuple[int, ...], dtype: str, fds: Sequence[int]) -> np.ndarray:
        """The memory of a slot, until its last view is dropped."""
        if fds:
            try:
                memory = mapped(fds[0], math.prod(shape) * np.dtype(dtype).itemsize, there=True)
            finally:
                os.close(fds[0])
            if key[1] < self._keep:  # the helper numbers them as it makes them, and uses the first again
                self._memory[key] = memory
        else:
            memory = self._memory[key]
        root = np.asarray(_WatchedMemory(memory))
        free = self._free
        self._held[key] = weakref.ref(root, lambda _: free.append(key))
        return root

    def stop(self, why: Exception) -> None:
        """Let everybody who waits go."""
        self.gone = copy.copy(why)
        for ref in self._inboxes.valuerefs():
            inbox = ref()
            if inbox is not None:
                inbox.results.put(("error", copy.copy(why)))  # one each: what is raised holds who raised it

    def forked(self) -> None:
        """In a child process: this is the parent's."""
        if self.process is not None:
            self.process.returncode = 0  # or Popen would complain here about a process that is not this one's
        if self._socket is not None:
            self._socket.close()

    def hang_up(self) -> None:
        """The helper ends itself when it sees this."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        if self.ending and not self._heard and self.process is not None:  # importing modules still: nothing to write
            self.process.kill()

    def shut(self) -> None:
        """After `hang_up`, by the thread that listened."""
        with self._sending:
            if self._socket is not None:
                self._socket.close()

    def reap(self) -> int:
        """Its exit status; leaves no process and no zombie."""
        if self.process is None:
            return 0
        try:
            return self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class _WatchedMemory:
    """Makes an array whose views hold that array, not the memory behind it: it is the one to be watched."""

    def __init__(self, memory: np.ndarray) -> None:
        self.__array_interface__, self._memory = memory.__array_interface__, memory


def end(client: HelperClient) -> None:
    """End the helper and the thread. Also by garbage collection and at interpreter exit."""
    if os.getpid() != client.pid:  # after fork() it is the parent's
        client.forked()
        return
    client.ending = True
    if not client.begun or not client.started.wait(_STUCK_S):
        return
    client.hang_up()
    client.reap()
    if client.thread is not threading.current_thread() and client.thread.ident is not None:
        client.thread.join(_STUCK_S)


def _start(fd: int, path: list[str]) -> subprocess.Popen[bytes]:
    safe = ["-P"] if sys.version_info >= (3, 11) else []  # modules come from sys.path, not from the working folder
    command = [sys.executable, *safe, "-m", "fastfeed.feed.helper_process.server", str(fd)]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[fd], env=environ)


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Ctrl-C waits; a process started meanwhile begins like that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _listen(client: HelperClient) -> None:
    why: Exception | None = None
    try:
        client.start()
        client.listen()
    except Closed:
        pass
    except Exception as error:
        why = error
    client.hang_up()
    status = client.reap()
    if client.ending:
        why = FeedClosed(CLOSED)
    client.stop(why or _died(client.process, status))
    client.shut()


def _died(process: subprocess.Popen[bytes] | None, status: int) -> FastfeedError:
    if status < 0:
        names = {known.value: known.name for known in signal.Signals}  # not all numbers have one
        how = f"killed by {names.get(-status, f'signal {-status}')}"
        how += ", which the system also sends where memory runs out" if -status == signal.SIGKILL else ""
    else:
        how = f"with exit status {status}"
    return FastfeedError(
        f"the helper process {process.pid if process else ''} of this feed died, {how}; "
        "a new iteration goes on from feed.state() with a new helper process"
    )
