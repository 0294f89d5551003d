"""The worker process of `supervisor`.

Usage: python -m fastfeed.preprocess.workers.worker <fd> <fd> <fd> <identity>...

It runs one piece at a time, and records which image it works on before touching it. It ends when
the other end of its socket closes, and at once when its supervisor's process or the job's driver
has ended. An image that crashes it costs only this process.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import select
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TextIO

from fastfeed.decode.pillow_warnings import send_to
from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.task import (
    FREE_BYTES,
    MemoryLimitError,
    Orphaned,
    Task,
    unpickle_task,
)
from fastfeed.preprocess.workers.lifeline import ProgressSlot, end_with, end_with_pipe
from fastfeed.printable import log
from fastfeed.system import shared_memory
from fastfeed.system.processes import limit_memory, user

if TYPE_CHECKING:
    _Handler = logging.StreamHandler[TextIO]
else:
    _Handler = logging.StreamHandler  # no generic class before Python 3.11


class _OneWorkerLog(_Handler):
    """Writes in only one of a driver's workers: the one that holds a system-wide socket name."""

    _name: socket.socket | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._may_write():
            super().emit(record)

    def _may_write(self) -> bool:
        if self._name is None:
            name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                name.bind(f"\0fastfeed-log-{os.getppid()}-{user()}")
            except OSError:  # another worker has it; on systems without such names, all write
                name.close()
                return not shared_memory.is_available()
            self._name = name
        return True


class SupervisorChannel:
    """The TaskContext of this process: talks to its supervisor."""

    def __init__(self, connection: Connection, slot: ProgressSlot) -> None:
        self._connection = connection
        self._slot = slot
        self._hangup = select.poll()
        self._hangup.register(connection.fileno(), select.POLLHUP)

    def begin(self, sample: int) -> None:
        """As in TaskContext; -1: no sample."""
        self._slot.write(sample)
        if self._hangup.poll(0):
            raise Orphaned

    @contextmanager
    def room(self, need: int) -> Iterator[None]:
        """Wait until `need` more bytes are free, as in TaskContext."""
        if need <= FREE_BYTES:
            yield
            return
        self.send("need", need)
        answer, limit = self.receive()
        if answer == "never":
            raise MemoryLimitError(need, limit)
        try:
            yield
        finally:
            self.send("free")

    def send(self, *message: Any) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise Orphaned from None

    def receive(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise Orphaned from None


def main() -> None:
    """Serve until the supervisor is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    end_with_pipe(int(sys.argv[3]))
    end_with(sys.argv[4:])
    channel = SupervisorChannel(Connection(int(sys.argv[1])), ProgressSlot(int(sys.argv[2])))
    _silence()
    send_to(partial(channel.send, "warning"))
    status = 0
    try:
        _serve(channel)
    except Orphaned:
        pass
    except BaseException:  # a bug: the supervisor reports the death, this traceback the cause
        traceback.print_exc()
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # threads may hang in reads


def _silence() -> None:
    """Silence decoders, which would flood the terminal; reasons are in the records.

    Pillow's warnings are sent on.
    """
    warnings.simplefilter("ignore")
    for category in (UserWarning, RuntimeWarning):
        warnings.filterwarnings("always", category=category, module=r"PIL\.")
    # for our own tracebacks, and lines about storage
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    _tell_through(sys.stderr)
    with open(os.devnull, "w", encoding="ascii") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # of C libraries


def _tell_through(stream: TextIO) -> None:
    """Let fastfeed's own warnings reach this stream, and no other log anything."""
    root = logging.getLogger()
    root.handlers[:] = [logging.NullHandler()]
    log.handlers[:] = [_OneWorkerLog(stream)]
    log.propagate = False


def _serve(channel: SupervisorChannel) -> None:
    sys_path, pickled, memory = channel.receive()
    sys.path[:] = sys_path
    task: Task | ConfigError
    try:
        task = unpickle_task(pickled)
    except ConfigError as error:
        task = error
    limit_memory(2 * memory + (512 << 20))  # `memory` is resident, the limit counts reserved memory
    gc.freeze()  # imported modules stay: the collector need not visit them again
    channel.send("ready")
    while True:
        command, piece, poison = channel.receive()
        channel.begin(-1)
        try:
            if isinstance(task, Exception):
                raise task
            if command == "alone":
                task.alone(piece, channel)
                channel.send("done", {})
            else:
                channel.send("done", task.run(piece, channel, poison))
        except Exception as error:
            # of the piece as a whole, such as a full disk or a missing source
            traceback.clear_frames(error.__traceback__)
            channel.send("failed", _sendable(error))


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # pickling an error of another package calls its code
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    main()
