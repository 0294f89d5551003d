"""The process that does the work: python -m fastfeed.preprocess.workers.worker <fd> <fd>. Started by `supervisor`.

It does one piece at a time, notes which photograph it is at before touching it, and ends when the other end of its
socket closes. Whatever a photograph does to it, only this process is lost.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.preprocess.task import FREE_BYTES, IMPORT_HINT, MemoryLimitError, Orphaned, Task
from fastfeed.preprocess.workers.progress_slot import ProgressSlot

__all__ = ["main"]


class SupervisorChannel:
    """The `Watch` of this process: asks and tells whoever started it."""

    def __init__(self, connection: Connection, place: ProgressSlot) -> None:
        self._connection, self._place = connection, place
        self._ear = select.poll()
        self._ear.register(connection.fileno(), select.POLLHUP)

    def begin(self, sample: int) -> None:
        """As in Watch; -1: no photograph's fault."""
        self._place.write(sample)
        if self._ear.poll(0):
            raise Orphaned

    @contextmanager
    def room(self, need: int) -> Iterator[None]:
        """As in Watch."""
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
    """Serve until nobody is there who wants it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to who started this, and what it does then decides
    _quiet()
    line = SupervisorChannel(Connection(int(sys.argv[1])), ProgressSlot(int(sys.argv[2])))
    status = 0
    try:
        _serve(line)
    except Orphaned:
        pass
    except BaseException:  # a mistake of ours: whoever started this says that it died, this text says of what
        traceback.print_exc()
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # threads may be in reads that never return


def _quiet() -> None:
    """What decoders say of millions of photographs is not for a terminal; the reasons are in the records."""
    warnings.simplefilter("ignore")
    logging.disable()
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)  # ours: how this process ended, if it is our mistake
    with open(os.devnull, "w", encoding="ascii") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # of libraries in C


def _serve(line: SupervisorChannel) -> None:
    path, packed, memory = line.receive()
    sys.path[:] = path
    task: Task | Exception
    try:
        task = pickle.loads(packed)
    except Exception as error:  # of a class of the user's that is not importable here, with whatever that raises
        task = ConfigError(f"a worker process cannot have the source or the target: {error!r}; {IMPORT_HINT}")
    _limit(memory)
    gc.freeze()  # what has been imported stays: it need not be looked at again and again
    line.send("ready")
    while True:
        what, piece, poison = line.receive()
        line.begin(-1)
        try:
            if isinstance(task, Exception):
                raise task
            if what == "alone":
                task.alone(piece, line)
                line.send("done", {})
            else:
                line.send("done", task.run(piece, line, poison))
        except Exception as error:  # of the piece as a whole: the disk is full, the source is gone
            traceback.clear_frames(error.__traceback__)
            line.send("failed", _sendable(error))


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # pickling an error of another package calls its code
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _limit(memory: int) -> None:
    """Beyond this, allocations fail here instead of the system killing someone: a decoder that asks for the moon."""
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[5]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = used + 2 * memory + (512 << 20)  # memory is what is used; the limit counts what is reserved
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))


if __name__ == "__main__":
    main()
