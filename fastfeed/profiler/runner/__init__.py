"""Run a command under a profiler: light options, one recording per rank, the command's own exit
code.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastfeed.profiler.runner.child import unrunnable
    from fastfeed.profiler.runner.session import record
    from fastfeed.profiler.runner.settings import Recording, Settings, free_folder, rank_of

__all__ = ["Recording", "Settings", "free_folder", "rank_of", "record", "unrunnable"]

_MODULES = {"record": "session", "unrunnable": "child"}  # all others: settings


def __getattr__(name: str) -> object:
    """On demand: `nsight`, which readers use, works on every system; running a command needs
    POSIX.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'settings')}"), name)
