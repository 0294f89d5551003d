"""Reads one whole local file."""

from __future__ import annotations

import errno
import os
import stat

from fastfeed.storage.retry import Unread
from fastfeed.system.descriptors import open_file

__all__ = ["MAX_BYTES", "read_file", "size_of", "unread"]

# of the path rather than of the disk: another try gives the same
_NO_SUCH_PATH = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}

MAX_BYTES = 1 << 30  # of one file; a photograph is far below


def read_file(path: str | bytes) -> bytes | Unread:
    """The file's bytes; Unread for an empty file as well."""
    try:
        # a named pipe called photo.jpg must not stop the thread for ever
        fd = open_file(path, wait=False)
        with open(fd, "rb", buffering=0) as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return Unread("not_image", "not a regular file")
            if status.st_size > MAX_BYTES:
                return Unread("bomb", f"{status.st_size} bytes, the limit is {MAX_BYTES}")
            blob = file.readall()
    except FileNotFoundError:
        return Unread("not_found")
    except IsADirectoryError:
        return Unread("not_image", "not a regular file")
    except OSError as error:
        return unread(error)
    except ValueError as error:  # a path with a zero byte, or that cannot be encoded
        return Unread("not_found", str(error))
    return blob or Unread("empty")


def unread(error: OSError) -> Unread:
    """Why a local file could not be read."""
    detail = error.strerror or str(error)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        detail += "; this is a limit on open files, `ulimit -n`, and no fault of the file or its storage"
    if error.errno in _NO_SUCH_PATH:
        return Unread("not_found", detail)
    return Unread("denied" if isinstance(error, PermissionError) else "io_error", detail)


def size_of(path: str) -> int:
    """Bytes of a local file; -1 where it is missing."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
