"""Locks on open files, which end with the process that holds them.

OSError without locks: on some network mounts, and on systems with neither `fcntl` nor `msvcrt`. Windows: one byte far behind the end of the file is locked, shared locks are exclusive,
and a lock that is waited for is tried once a second.
"""

from __future__ import annotations

import errno
import os
from types import ModuleType
from typing import Any

fcntl: ModuleType | None
msvcrt: Any
try:
    import fcntl
except ImportError:
    fcntl = None
try:
    import msvcrt
except ImportError:
    msvcrt = None

# the byte locked on Windows, where locked bytes cannot be read; offsets may be 32 bits
_FAR = (1 << 31) - 2


def lock(fd: int, *, wait: bool = True, shared: bool = False) -> None:
    """Lock an open file.

    BlockingIOError where another process has it, unless `wait`; OSError without locks.

    Args:
        fd: descriptor of the file.
        wait: until other processes have released it.
        shared: other processes may hold shared locks too.
    """
    if fcntl is not None:
        fcntl.flock(
            fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        )
    elif msvcrt is not None:
        while not _lock_byte(fd, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK):
            if not wait:
                raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process")
    else:
        raise OSError(errno.ENOTSUP, "this system has no locks on files")


def unlock(fd: int) -> None:
    """Release a lock, even if a forked process holds a copy of the descriptor."""
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_UN)
    elif msvcrt is not None:
        _lock_byte(fd, msvcrt.LK_UNLCK)


def _lock_byte(fd: int, how: int) -> bool:
    """Lock or unlock a byte; False if another process has it."""
    at = os.lseek(fd, 0, os.SEEK_CUR)
    os.lseek(fd, _FAR, os.SEEK_SET)
    try:
        msvcrt.locking(fd, how, 1)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EDEADLK):
            raise
        return False
    finally:
        os.lseek(fd, at, os.SEEK_SET)
    return True
