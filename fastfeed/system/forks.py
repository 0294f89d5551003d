"""Runs callbacks in forked children; does nothing on Windows."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["after_fork"]


def after_fork(call: Callable[[], object]) -> None:
    """Call it in every child that this process, or a child of it, forks from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)
