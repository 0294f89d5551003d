"""Number of functions that a training step calls; a profiler holds each in memory."""

from __future__ import annotations

import sys
from typing import Any

_CALLS = ("call", "c_call")
_MAX_CALLS = 600_000  # to record: torch.profiler took 1.5 kB for each when it ended


class CallCount:
    """Calls of this thread in one step; 0 if something else traces calls already."""

    def __init__(self) -> None:
        self._count = 0
        self._is_active = False

    def begin(self) -> None:
        """Count from now on."""
        if sys.getprofile() is None:
            self._is_active = True
            sys.setprofile(self._see)

    def end(self) -> None:
        """Stop counting calls."""
        self._is_active = False
        if sys.getprofile() == self._see:
            sys.setprofile(None)

    def steps(self, wanted: int, least: int) -> tuple[int, bool]:
        """Steps to record, and whether with the functions that they call.

        Args:
            wanted: Steps that the user wants.
            least: Steps that are recorded even if they call more than fits; with twice as much
                without functions.
        """
        affordable = _MAX_CALLS // max(self._count, 1)
        if 2 * affordable < min(wanted, least):
            return wanted, False
        return min(wanted, max(affordable, least)), True

    def _see(self, frame: Any, event: str, argument: Any) -> None:
        if not self._is_active:  # ended by another thread
            sys.setprofile(None)
        elif event in _CALLS:
            self._count += 1
