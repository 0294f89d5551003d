"""Exceptions that one image raises, as the reason why that image is bad: no image ends its job."""

from __future__ import annotations

import errno

from fastfeed.decode.base import Bad
from fastfeed.errors import TargetError
from fastfeed.faults import error_text

__all__ = ["SampleFault", "fault_of"]

# no image causes these
_MACHINE = (
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.EDQUOT,
)


class SampleFault(ValueError):
    """One sample's fault, described for its user."""


def fault_of(error: Exception) -> Bad:
    """The fault of an image whose processing raised `error`: `internal`, with the text and the line
    of code.

    Errors of the target, and those of a machine without descriptors, memory or space, are raised
    again.
    """
    if isinstance(error, MemoryError):
        return Bad("oom", "the system has no more memory")
    if isinstance(error, TargetError) or (isinstance(error, OSError) and error.errno in _MACHINE):
        raise error
    if isinstance(error, SampleFault):
        return Bad("internal", str(error))
    return Bad("internal", error_text(error))
