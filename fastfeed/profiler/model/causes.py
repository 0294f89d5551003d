"""Causes of idle time, one row each. Their sum is the idle time."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

FAMILIES = {
    "input": "waiting for input",
    "h2d": "slow copies to the GPU",
    "launch": "the host launches too slowly",
    "code": "host code that launches nothing",
    "environment": "environment steps",
    "sync": "the host waits for the GPU",
    "alloc": "allocating device memory",
    "checkpoint": "checkpoints, evaluation, logging",
    "compile": "compiling",
    "module_load": "loading kernels and set-up",
    "comm": "communication between ranks",
    "contention": "too few cores",
    "dependency": "order between streams",
    "shared": "a GPU shared with another process, or held by its driver",
    "profiler": "the profiler itself",
    "unknown": "not recorded",
}


class _Row(NamedTuple):
    title: str  # in reports
    family: str  # a key of FAMILIES: causes with one remedy
    color: str  # in pictures, readable on white and on black
    means: str  # what the GPU is waiting for, one sentence


class Cause(IntEnum):
    """Causes of idle time in the order of reports. Keys are stable, values are not."""

    title: str
    family: str
    color: str
    means: str

    INPUT = _Row("input wait", "input", "#e5484d", "The training thread waits for the next batch.")
    INPUT_IN_THREAD = _Row(
        "input in training thread",
        "input",
        "#c62a6b",
        "The training thread prepares the batch itself: it decodes, transforms, collates or pins.",
    )
    H2D_STAGING = _Row(
        "pageable copy", "h2d", "#f0610e", "The driver stages a copy from pageable host memory."
    )
    CHECKPOINT = _Row(
        "checkpoint, eval or log",
        "checkpoint",
        "#12a594",
        "The training thread saves, evaluates or logs.",
    )
    COMPILE = _Row("compiling", "compile", "#8e4ec6", "A kernel or a graph is being compiled.")
    MODULE_LOAD = _Row(
        "set-up and loading",
        "module_load",
        "#ab4aba",
        "The driver sets up a context, or loads a kernel at its first use.",
    )
    ALLOC = _Row("device allocation", "alloc", "#ad7f58", "cudaMalloc, cudaFree and similar calls.")
    COPY = _Row("blocking copy", "h2d", "#cc7a1c", "The host waits inside a synchronous copy.")
    SYNC = _Row(
        "synchronization",
        "sync",
        "#0090ff",
        "The host waits for the GPU before it launches more work.",
    )
    HOST_COMM = _Row(
        "host communication", "comm", "#3e63dd", "A barrier, a store or a CPU collective."
    )
    ENVIRONMENT = _Row(
        "environment step", "environment", "#29a383", "The training thread steps a simulator."
    )
    IO = _Row(
        "file or network I/O", "code", "#5b8def", "The training thread reads, writes or sends."
    )
    HOST_CODE = _Row(
        "other host code",
        "code",
        "#b08d3c",
        "Code that launches nothing, and may prepare the batch.",
    )
    LAUNCH = _Row("launch calls", "launch", "#d6409f", "The host is inside a launch call.")
    FRAMEWORK = _Row(
        "framework overhead", "launch", "#7c66dc", "The host is inside a framework's operator."
    )
    GC = _Row("garbage collection", "launch", "#978365", "The interpreter collects garbage.")
    GIL = _Row(
        "interpreter lock", "launch", "#a18072", "The thread waits for the interpreter's lock."
    )
    PYTHON = _Row("Python between launches", "launch", "#a58a1b", "The host runs Python code.")
    CPU_CONTENTION = _Row(
        "no free core", "contention", "#41a154", "The thread is ready to run and no core is free."
    )
    QUEUE_FULL = _Row(
        "full launch queue", "launch", "#93891d", "The call waits for a place in the launch queue."
    )
    LAUNCH_LATENCY = _Row(
        "launch latency", "launch", "#8b9298", "The few microseconds from a launch to its start."
    )
    DEPENDENCY = _Row(
        "waiting for another stream", "dependency", "#0099bd", "Launched, but blocked by an event."
    )
    PEER = _Row(
        "waiting for another device", "dependency", "#0d74ce", "Blocked by work on another device."
    )
    GPU_SHARED = _Row(
        "GPU not available",
        "shared",
        "#5b8def",
        "Launched, and no stream to wait for: another process has the GPU, or the driver holds the work back.",
    )
    PROFILER = _Row(
        "profiler overhead", "profiler", "#6f6e77", "The profiler flushes or allocates."
    )
    HOST_UNKNOWN = _Row(
        "host, not recorded", "unknown", "#8b8d98", "The host was late; nothing recorded says why."
    )
    NO_LAUNCH = _Row(
        "no launch recorded", "unknown", "#64686f", "The launch of the next op is not in the trace."
    )

    def __new__(cls, *row: Any) -> Cause:
        member = int.__new__(cls, len(cls.__members__))
        member._value_ = len(cls.__members__)
        vars(member).update(_Row(*row)._asdict())
        return member

    @property
    def key(self) -> str:
        """Stable name in JSON, in --fail-on and in docs."""
        return self.name.lower()


INPUT_CAUSES = (Cause.INPUT, Cause.INPUT_IN_THREAD)


STARVING = (*INPUT_CAUSES, Cause.H2D_STAGING)  # what counts as waiting for input
