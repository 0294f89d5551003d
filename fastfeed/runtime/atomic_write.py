"""Files replaced as a whole: a temporary name in the same folder, fsync, then an atomic rename."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from fastfeed.system.descriptors import NEW, open_file
from fastfeed.system.folders import sync_folder


@contextmanager
def atomic_write(
    path: str | os.PathLike[str],
    *,
    hidden: bool = False,
    mode: int = 0o666,
    sync_parent: bool = False,
) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of `path` when the block ends without an error.

    Until then `path` stays as it was, and it does so for good if the block raises (Ctrl-C included)
    or the process is killed. A killed process leaves `NAME.<random>.new` next to `path`; an error
    removes it.

    Args:
        path: The file to write. Its folder must exist.
        hidden: Put a dot in front of the temporary name, for folders that others list meanwhile.
        mode: Permissions of the file, as far as the umask leaves them.
        sync_parent: Also fsync the folder, so that the rename outlives a power cut.

    Raises:
        OSError: The file cannot be written.
    """
    folder, name = os.path.split(os.path.abspath(path))
    prefix = f".{name}." if hidden else f"{name}."
    temporary = os.path.join(folder, f"{prefix}{secrets.token_hex(8)}.new")
    fd = open_file(temporary, os.O_RDWR | NEW, mode)
    try:
        with open(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C as well: no half-written file may stay behind
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if sync_parent:
        sync_folder(folder)
