"""Turns an OSError of a target into a TargetError with advice."""

from __future__ import annotations

import errno
import os

from fastfeed.errors import TargetError

__all__ = ["RERUN_HINT", "write_error"]

RERUN_HINT = "then run the same command again: finished shards are kept"

_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or ask for more",
    errno.EFBIG: "lower the samples per shard, or choose another folder",
    errno.EIO: "check the disk and the system log",
    errno.EROFS: "mount it for writing, or choose another folder",
    errno.EACCES: "change the folder's owner or mode",
    errno.EPERM: "change the folder's owner or mode",
    errno.ENOENT: "check that the folder still exists and is mounted",
    errno.ENOTDIR: "check what is at that path",
    errno.EISDIR: "check what is at that path",
    errno.ESTALE: "mount it again",
    errno.ENXIO: "check that the disk is still attached",
    errno.ENODEV: "check that the disk is still attached",
    errno.EMFILE: "raise `ulimit -n`",
    errno.ENFILE: "close other programs",
    errno.EXDEV: "keep all folders of the target on one file system",
}


def write_error(error: OSError, action: str) -> TargetError:
    """The TargetError for an OSError; `action` is such as "write a.tar to /data/out"."""
    if isinstance(error, TargetError):
        return error
    code = error.errno
    message = os.strerror(code) if code is not None else str(error) or type(error).__name__
    message = message[:1].lower() + message[1:]
    advice = "" if code is None or code not in _ADVICE else f"{_ADVICE[code]}, "
    return TargetError(f"cannot {action}: {message}; {advice}{RERUN_HINT}", code)
