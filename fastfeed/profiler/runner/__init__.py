"""Run a command under a profiler: one recording per rank, the command's own exit code."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastfeed.profiler.runner.foreground import unrunnable
    from fastfeed.profiler.runner.output_folder import free_folder
    from fastfeed.profiler.runner.session import record
    from fastfeed.profiler.runner.settings import Recording, Settings, rank_of

__all__ = ["Recording", "Settings", "free_folder", "rank_of", "record", "unrunnable"]

_MODULES = {"free_folder": "output_folder", "record": "session", "unrunnable": "foreground"}


def __getattr__(name: str) -> object:
    """Import on demand: `nsight`, which readers use, needs no POSIX; running a command does."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'settings')}"), name)
