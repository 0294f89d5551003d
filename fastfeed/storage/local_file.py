"""Reads one whole local file."""

from __future__ import annotations

import os
import stat

from fastfeed.storage.retry import Unread

__all__ = ["MAX_BYTES", "read_file"]

MAX_BYTES = 1 << 30  # of one file; a photograph is far below


def read_file(path: str | bytes) -> bytes | Unread:
    """The file's bytes; Unread for an empty file as well."""
    try:
        # O_NONBLOCK: a named pipe called photo.jpg must not stop the thread for ever
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
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
        return Unread("io_error", error.strerror or str(error))
    except ValueError as error:  # a path with a zero byte, or that cannot be encoded
        return Unread("not_found", str(error))
    return blob or Unread("empty")
