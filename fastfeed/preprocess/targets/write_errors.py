"""What a disk that takes no more means for a job: what, where, and the way on."""

from __future__ import annotations

import errno
import os

from fastfeed.errors import TargetError

__all__ = ["RERUN_HINT", "write_error"]

RERUN_HINT = "then run the same command again: finished shards are kept"

_ADVICE = {
    errno.ENOSPC: "free some",
    errno.EDQUOT: "free some, or ask for more",
    errno.EFBIG: "lower the samples per shard, or choose another folder",
    errno.EIO: "look at the disk and the system's log",
    errno.EROFS: "mount it for writing, or choose another folder",
    errno.EACCES: "change the folder's owner or mode",
    errno.EPERM: "change the folder's owner or mode",
    errno.ENOENT: "look whether the folder is still there and mounted",
    errno.ENOTDIR: "look what lies in the way",
    errno.EISDIR: "look what lies in the way",
    errno.ESTALE: "mount it again",
    errno.ENXIO: "look whether the disk is still there",
    errno.ENODEV: "look whether the disk is still there",
    errno.EMFILE: "raise `ulimit -n`",
    errno.ENFILE: "close other programs",
    errno.EXDEV: "let all folders below it lie on one file system",
}


def write_error(error: OSError, doing: str) -> TargetError:
    """The error to raise for what the system said; `doing` as in "write a.tar to /data/out"."""
    if isinstance(error, TargetError):
        return error
    code = error.errno
    said = os.strerror(code) if code is not None else str(error) or type(error).__name__
    said = said[:1].lower() + said[1:]
    advice = "" if code is None or code not in _ADVICE else f"{_ADVICE[code]}, "
    return TargetError(f"cannot {doing}: {said}; {advice}{RERUN_HINT}", code)
