"""Messages between the feed and its helper: pickles over a pair of SEQPACKET sockets.

A message is sent completely or not at all. One that is too long for the socket's buffer is sent as
shared memory.
"""

from __future__ import annotations

import os
import pickle
import socket
import traceback
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from fastfeed.system.shared_memory import anonymous

_INLINE = 32 << 10  # bytes; a socket's buffer holds about 200 KB by default
_LONG = b"L"  # sent instead: the last descriptor holds the message
_FDS = 4  # at most, with one message

BufferKey = tuple[bool, int]  # (of raw batches?, number in order of allocation)


class Closed(Exception):
    """The other process has closed its socket."""


def send(to: socket.socket, message: Any, fds: Sequence[int] = ()) -> None:
    """Send a message. Raises OSError if the other process is gone."""
    data = pickle.dumps(message, protocol=5)
    if len(data) <= _INLINE:
        _send(to, b"S" + data, fds)
        return
    fd = anonymous(0)
    try:
        os.ftruncate(fd, 0)
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        _send(to, _LONG, [*fds, fd])
    finally:
        os.close(fd)


def _send(to: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
    # a trainer may have reset SIGPIPE to its default
    to.sendmsg([data], extra, socket.MSG_NOSIGNAL)


def receive(source: socket.socket) -> tuple[Any, list[int]]:
    """Receive a message and its descriptors, which the caller closes. Closed at the end."""
    space = socket.CMSG_SPACE(_FDS * array("i").itemsize)
    try:
        data, extra, flags, _ = source.recvmsg(_INLINE + 1, space, socket.MSG_CMSG_CLOEXEC)
    except OSError as error:
        raise Closed from error
    fds = array("i")
    for level, kind, content in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    if not data:
        raise Closed
    if flags & socket.MSG_CTRUNC:
        for fd in fds:
            os.close(fd)
        raise OSError(
            "shared memory could not be received; this process has no file descriptor left: raise"
            " ulimit -n"
        )
    if data == _LONG:
        fd = fds.pop()
        os.lseek(fd, 0, os.SEEK_SET)
        with open(fd, "rb") as file:
            return pickle.load(file), list(fds)
    return pickle.loads(memoryview(data)[1:]), list(fds)


def pack_error(error: BaseException) -> tuple[bytes | None, str]:
    """Pickle of an error, None if it does not survive pickling, and its traceback."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    with suppress(Exception):  # an error's own pickling may raise anything
        data = pickle.dumps(error)
        copy = pickle.loads(data)
        if type(copy) is type(error) and str(copy) == str(error):
            return data, text
    return None, text


def unpack_error(data: bytes | None, text: str) -> BaseException:
    """The error, with its traceback in the helper as its cause."""
    error: Any = None
    if data is not None:
        with suppress(Exception):  # its module may differ from the helper's
            error = pickle.loads(data)
    if error is None:
        return RuntimeError(f"the helper process raised an error that does not pickle:\n{text}")
    error.__cause__ = RuntimeError(f"in the helper process:\n{text}")
    return error
