"""What an idle nanosecond can be blamed on: one row each. Their sum is the idle time."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

__all__ = ["CAUSES", "FAMILIES", "INPUT_CAUSES", "Cause", "CauseInfo", "cause_of"]


class Cause(IntEnum):
    """In the order of reports. The values are not stable; the keys in CAUSES are."""

    INPUT = 0
    INPUT_WORK = 1
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
    CONTENTION = 18
    QUEUE_FULL = 19
    LATENCY = 20
    DEPENDENCY = 21
    PEER = 22
    GPU_SHARED = 23
    PROFILER = 24
    HOST_UNKNOWN = 25
    NO_LAUNCH = 26


INPUT_CAUSES = (Cause.INPUT, Cause.INPUT_WORK)


class CauseInfo(NamedTuple):
    key: str  # stable: in JSON, in --fail-on, in docs
    title: str  # in reports
    family: str  # a key of FAMILIES: causes with one remedy
    color: str  # in pictures, readable on white and on black
    means: str  # what the GPU is waiting for, one sentence


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

CAUSES = {
    Cause.INPUT: CauseInfo(
        "input", "input wait", "input", "#e5484d", "The training thread waits for the next batch."
    ),
    Cause.INPUT_WORK: CauseInfo(
        "input_in_thread",
        "input in training thread",
        "input",
        "#c62a6b",
        "The training thread prepares the batch itself: it decodes, transforms, collates or pins.",
    ),
    Cause.H2D_STAGING: CauseInfo(
        "h2d_staging",
        "pageable copy",
        "h2d",
        "#f0610e",
        "The driver stages a copy from pageable host memory.",
    ),
    Cause.CHECKPOINT: CauseInfo(
        "checkpoint",
        "checkpoint, eval or log",
        "checkpoint",
        "#12a594",
        "The training thread saves, evaluates or logs.",
    ),
    Cause.COMPILE: CauseInfo(
        "compile", "compiling", "compile", "#8e4ec6", "A kernel or a graph is being compiled."
    ),
    Cause.MODULE_LOAD: CauseInfo(
        "module_load",
        "set-up and loading",
        "module_load",
        "#ab4aba",
        "The driver sets up a context, or loads a kernel at its first use.",
    ),
    Cause.ALLOC: CauseInfo(
        "alloc", "device allocation", "alloc", "#ad7f58", "cudaMalloc, cudaFree and similar calls."
    ),
    Cause.COPY: CauseInfo(
        "copy", "blocking copy", "h2d", "#cc7a1c", "The host waits inside a synchronous copy."
    ),
    Cause.SYNC: CauseInfo(
        "sync",
        "synchronization",
        "sync",
        "#0090ff",
        "The host waits for the GPU before it launches more work.",
    ),
    Cause.HOST_COMM: CauseInfo(
        "host_comm",
        "host communication",
        "comm",
        "#3e63dd",
        "A barrier, a store or a CPU collective.",
    ),
    Cause.ENVIRONMENT: CauseInfo(
        "environment",
        "environment step",
        "environment",
        "#29a383",
        "The training thread steps a simulator.",
    ),
    Cause.IO: CauseInfo(
        "io",
        "file or network I/O",
        "code",
        "#5b8def",
        "The training thread reads, writes or sends.",
    ),
    Cause.HOST_CODE: CauseInfo(
        "host_code",
        "other host code",
        "code",
        "#b08d3c",
        "Code that launches nothing, and may prepare the batch.",
    ),
    Cause.LAUNCH: CauseInfo(
        "launch", "launch calls", "launch", "#d6409f", "The host is inside a launch call."
    ),
    Cause.FRAMEWORK: CauseInfo(
        "framework",
        "framework overhead",
        "launch",
        "#7c66dc",
        "The host is inside a framework's operator.",
    ),
    Cause.GC: CauseInfo(
        "gc", "garbage collection", "launch", "#978365", "The interpreter collects garbage."
    ),
    Cause.GIL: CauseInfo(
        "gil",
        "interpreter lock",
        "launch",
        "#a18072",
        "The thread waits for the interpreter's lock.",
    ),
    Cause.PYTHON: CauseInfo(
        "python", "Python between launches", "launch", "#a58a1b", "The host runs Python code."
    ),
    Cause.CONTENTION: CauseInfo(
        "cpu_contention",
        "no free core",
        "contention",
        "#41a154",
        "The thread is ready to run and no core is free.",
    ),
    Cause.QUEUE_FULL: CauseInfo(
        "queue_full",
        "full launch queue",
        "launch",
        "#93891d",
        "The call waits for a place in the launch queue.",
    ),
    Cause.LATENCY: CauseInfo(
        "launch_latency",
        "launch latency",
        "launch",
        "#8b9298",
        "The few microseconds from a launch to its start.",
    ),
    Cause.DEPENDENCY: CauseInfo(
        "dependency",
        "waiting for another stream",
        "dependency",
        "#0099bd",
        "Launched, but blocked by an event.",
    ),
    Cause.PEER: CauseInfo(
        "peer",
        "waiting for another device",
        "dependency",
        "#0d74ce",
        "Blocked by work on another device.",
    ),
    Cause.GPU_SHARED: CauseInfo(
        "gpu_shared",
        "GPU not available",
        "shared",
        "#5b8def",
        "Launched, and no stream to wait for: another process has the GPU, or the driver holds the"
        " work back.",
    ),
    Cause.PROFILER: CauseInfo(
        "profiler", "profiler overhead", "profiler", "#6f6e77", "The profiler flushes or allocates."
    ),
    Cause.HOST_UNKNOWN: CauseInfo(
        "host_unknown",
        "host, not recorded",
        "unknown",
        "#8b8d98",
        "The host was late; nothing recorded says why.",
    ),
    Cause.NO_LAUNCH: CauseInfo(
        "no_launch",
        "no launch recorded",
        "unknown",
        "#64686f",
        "The launch of the next op is not in the trace.",
    ),
}


def cause_of(key: str) -> Cause:
    """The cause with this stable key. KeyError if there is none."""
    return {info.key: cause for cause, info in CAUSES.items()}[key]
