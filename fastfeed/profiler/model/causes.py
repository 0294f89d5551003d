"""Causes of idle time. Their sum is the idle time; causes.json has a row for each."""

from __future__ import annotations

import json
from enum import IntEnum
from pathlib import Path

_TABLE = json.loads(Path(__file__).with_name("causes.json").read_text("utf-8"))
FAMILIES: dict[str, str] = _TABLE["families"]  # causes with one remedy
STARVED = 0.05
SEVERE = 0.20


class Cause(IntEnum):
    """Causes of idle time in the order of reports. Keys are stable, values are not."""

    title: str  # in reports
    family: str  # a key of FAMILIES
    color: str  # in pictures, readable on white and on black
    means: str  # what the GPU is waiting for, one sentence

    INPUT = 0
    INPUT_IN_THREAD = 1
    H2D_STAGING = 2
    CHECKPOINT = 3
    COMPILE = 4
    MODULE_LOAD = 5
    ALLOC = 6
    COPY = 7
    SYNC = 8
    HOST_COMM = 9
    ENVIRONMENT = 10
    IO = 11
    HOST_CODE = 12
    LAUNCH = 13
    FRAMEWORK = 14
    GC = 15
    GIL = 16
    PYTHON = 17
    CPU_CONTENTION = 18
    QUEUE_FULL = 19
    LAUNCH_LATENCY = 20
    DEPENDENCY = 21
    PEER = 22
    GPU_SHARED = 23
    PROFILER = 24
    HOST_UNKNOWN = 25
    NO_LAUNCH = 26

    def __init__(self, value: int) -> None:
        vars(self).update(_TABLE["causes"][self.key])

    @property
    def key(self) -> str:
        """Stable name in JSON, in --fail-on and in docs."""
        return self.name.lower()


INPUT_CAUSES = (Cause.INPUT, Cause.INPUT_IN_THREAD)
STARVING = (*INPUT_CAUSES, Cause.H2D_STAGING)  # what counts as waiting for input


def word(share: float) -> str:
    """not_starved, starved or severe, for this fraction of the window."""
    return "severe" if share >= SEVERE else "starved" if share >= STARVED else "not_starved"
