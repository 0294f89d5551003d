"""Where pieces of work are done: processes here (`local`), executors, Ray. The bytes do not depend on it."""

from __future__ import annotations

from fastfeed.preprocess.work import Engine, Outcome

__all__ = ["Engine", "Outcome"]
