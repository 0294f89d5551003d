"""Folders and their disks.

Windows: a folder cannot be opened, so its names are on the disk when the system writes them;
nothing waits for that.
macOS: fsync reaches the drive, which may still hold it in its cache.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress

from fastfeed.system.descriptors import open_file


def private_folder(path: str) -> str:
    """Create a folder of this user alone, in one of all users, or use it.

    OSError if others made it or may write to it.

    Windows: folders for temporary files belong to one user.
    """
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{path} is not a folder")
    if hasattr(os, "getuid"):
        if status.st_uid != os.getuid():
            raise PermissionError(f"{path} belongs to user {status.st_uid}")
        if status.st_mode & 0o022:
            raise PermissionError(
                f"{path} may be written to by others, mode {stat.S_IMODE(status.st_mode):o}"
            )
    return path


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Make the names in a folder outlive a power cut.

    File systems that have no such call are left alone.
    """
    if os.name == "nt":
        return
    folder = open_file(path)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(folder)


def free_bytes(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Bytes of a folder's disk: writable by this user, and all; (0, 0) if unknown. OSError."""
    if hasattr(os, "statvfs"):
        disk = os.statvfs(path)
        return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    usage = shutil.disk_usage(path)
    return usage.free, usage.total
