"""Opens files as descriptors of this process alone, and reads and writes at an offset.

Windows: no pipe is waited for, so no flag is needed. Files are never text. Reading at an offset
moves the position of the descriptor, under a lock, so a descriptor must not be read by others at
the same time: `has_pread` is False.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

READ = os.O_RDONLY
CREATE = os.O_RDWR | os.O_CREAT
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
NEW = os.O_CREAT | os.O_EXCL  # with O_WRONLY or O_RDWR: the file must not exist

_ALWAYS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
_position = threading.Lock()

# the process or the machine has run out of something, so the file is not at fault
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def has_pread() -> bool:
    """Return True if threads may read from one descriptor at the same time."""
    return hasattr(os, "pread")


def open_file(
    path: str | bytes | os.PathLike[str], flags: int = READ, mode: int = 0o644, *, wait: bool = True
) -> int:
    """A descriptor that other programs do not inherit.

    Args:
        path: of the file.
        flags: one of this module, or flags of `os`.
        mode: permissions of a new file.
        wait: False: a named pipe opens at once, instead of waiting for its writer.
    """
    return os.open(path, flags | _ALWAYS | (0 if wait else getattr(os, "O_NONBLOCK", 0)), mode)


def open_regular(path: str | bytes | os.PathLike[str]) -> int:
    """A descriptor for reading a regular file.

    OSError for a pipe or a device, which could block, or never end.

    Folders are IsADirectoryErrors.
    """
    fd = open_file(path, wait=False)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
    raise OSError(errno.EINVAL, "not a regular file", path)


@contextmanager
def closing_file(fd: int) -> Iterator[None]:
    """Close a descriptor at the end of the block."""
    try:
        yield
    finally:
        os.close(fd)


def pread(fd: int, count: int, start: int) -> bytes:
    """Up to `count` bytes from `start` on; fewer at the end of the file, or above 2 GB."""
    if hasattr(os, "pread"):
        return os.pread(fd, count, start)
    with _position:
        os.lseek(fd, start, os.SEEK_SET)
        return os.read(fd, count)


def pwrite(fd: int, data: bytes | memoryview, start: int) -> int:
    """Write at `start`; the number of bytes written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(fd, data, start)
    with _position:
        os.lseek(fd, start, os.SEEK_SET)
        return os.write(fd, data)


def set_times(fd: int, path: str, accessed_ns: int, modified_ns: int) -> None:
    """Set the times of an open file: by its descriptor where that is possible, else by its path."""
    os.utime(fd if os.utime in os.supports_fd else path, ns=(accessed_ns, modified_ns))


def start_writeback(fd: int, start: int, count: int) -> None:
    """Advise the system to write these bytes out, as their pages are not needed again.

    Only Linux supports this.
    """
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):  # only advice
            os.posix_fadvise(fd, start, count, os.POSIX_FADV_DONTNEED)
