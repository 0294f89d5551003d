"""A task whose pieces each ask one thing of their runner."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastfeed.decode.base import DecodeFailure
from fastfeed.preprocess.model.task import MemoryLimitError, TaskContext

PLAIN, FAILS, GREEDY, ENDLESS = range(4)  # pieces


@dataclass(frozen=True)
class LawTask:
    """Runs each of these pieces."""

    def run(
        self, piece: int, context: TaskContext, poison: Mapping[int, DecodeFailure]
    ) -> dict[str, Any]:
        context.begin(0)
        if piece == FAILS:
            raise FileNotFoundError(2, "no such target")
        if piece == GREEDY:
            try:
                with context.room(1 << 50):
                    return {"room": "given"}
            except MemoryLimitError as error:
                return {"room": str(error)}
        while piece == ENDLESS:
            context.begin(1)
            time.sleep(0.001)
        return {"piece": piece}

    def alone(self, sample: int, context: TaskContext) -> None:
        """Survives."""
