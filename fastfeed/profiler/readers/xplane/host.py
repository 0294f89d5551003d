"""Reads the host planes of an XSpace: API calls, annotations, Python frames, steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastfeed.profiler.model.kernel_names import strip_version
from fastfeed.profiler.model.trace import Calls, RangeKind, Ranges, Strings, Thread, table
from fastfeed.profiler.readers.xplane.device import CopyDetails, DeviceWork, copy_details
from fastfeed.profiler.readers.xplane.planes import Plane, PlaneEvents, PlaneLine, events_of

_IGNORED = (
    "/host:metadata",
    "/host:tfstreamz",
    "/host:__ScopeRangeCallStack__",
    "/host:TPU-runtime",
)
_WANTED = frozenset({"correlation_id", "memcpy_details", "step_num", "_a"})
_THREAD = re.compile(r"^Host Threads/(-?\d+)(/NVTX)?$")
_API = re.compile(r"^(cuda|cu|hip)[A-Z]\w*")
_GRAPH_ID = re.compile(r" \(CudaGraph:\d+\)$")
_FRAME = re.compile(r"^\$(\S+?):(\d+) (.+)$")  # $profiler.py:101 start_trace
_COMPILE = re.compile(
    r"XlaCompile|PjRt\w*(::|Client::)?Compile|::Compile(AndLoad|Backend)?\b|GpuCompiler|(^|["
    r" :])backend_compile"
    r"|XlaCompilationCache|compile_or_get_cached|HloPassPipeline|RunBackend|LlvmCompile|Autotun"
)
# Names that the frameworks use; anything else may be the user's own annotation.
_FRAMEWORK = re.compile(
    r"::|^[\w.>/-]+:[A-Z_]\w*$|^(PJRT|Pjrt)_|^DevicePut$|^ThenExecute"
    r"|^Pjit|^Wait for|^Record|^Execut|^Memory(Allocation|Deallocation)|^Parse|^Thunk|^Prefetch"
    r"|^IteratorGetNext|^MultiDeviceIterator|^(FunctionRun|TraceContext|SessionRun|RunGraph|TfrtModelRun|EagerExecute)"
    r"|^(Parallel|MapAndBatch|ParseExample)\w*(Produce|Consume)|^Kernel(Launch|Execute)|^[A-Z]\w+Op(Done)?$|^jit_"
)
# calls that carry the name of what they launch, as TensorFlow's do, by their real names
_LAUNCHES = (
    (re.compile(r"^Memcpy([HDP])2([HDP])$"), r"Memcpy\1to\2"),
    (re.compile(r"^Memcpy.*"), "Memcpy"),
    (re.compile(r"^Memset.*"), "MemsetAsync"),
    (re.compile(r"^CudaGraph.*"), "GraphLaunch"),
    (re.compile(r"^Mem(ory)?Alloc.*"), "MemAlloc"),
    (re.compile(r"^Mem(ory)?Free.*"), "MemFree"),
)


class HostActivity(NamedTuple):
    """Calls and ranges of one host plane."""

    calls: Calls
    copies: CopyDetails  # a row per call
    ranges: Ranges
    damaged: int
    impossible: int


def is_host(plane: Plane) -> bool:
    """True if the plane's lines are threads of the profiled process."""
    return plane.name.startswith("/host:") and plane.name not in _IGNORED


def host_of(plane: Plane, threads: ThreadTable, names: Strings, amd: bool) -> HostActivity:
    """Calls and ranges of the threads of one plane."""
    events = events_of(plane, plane.lines, _WANTED)
    thread = np.array([threads.of(line) for line in plane.lines] or [-1], np.int32)[events.line]
    correlation = events.ints("correlation_id")
    api = np.array([bool(_API.match(name)) for name in events.names])
    rows = np.flatnonzero((correlation > 0) | api[events.code])
    calls = table(
        Calls,
        start=events.start[rows],
        end=events.end[rows],
        thread=thread[rows],
        name=_call_names(events, rows, names, "hip" if amd else "cu"),
        corr=np.where(correlation > 0, correlation, -1)[rows],
    )
    copies = CopyDetails(*(column[rows] for column in copy_details(events)))
    rest = (events.end > events.start) & (correlation <= 0) & ~api[events.code]
    ranges = _ranges(events, np.flatnonzero(rest), thread, names)
    return HostActivity(calls, copies, ranges, events.damaged, events.impossible)


def _call_names(events: PlaneEvents, rows: np.ndarray, names: Strings, prefix: str) -> np.ndarray:
    """Indexes of call names; a copy with async:0 in its details is the blocking call."""
    codes, texts = events.texts("memcpy_details")
    waits = np.array([*("async:0" in text for text in texts), False])[codes]
    queued, blocking = [], []
    used = np.zeros(len(events.names), bool)
    used[events.code[rows]] = True
    for name, is_used in zip(events.names, used, strict=True):
        called = _called(name, prefix) if is_used else ""
        copies = called.startswith((f"{prefix}Memcpy",)) and not _API.match(name)
        queued.append(names[called + "Async" if copies else called] if is_used else -1)
        blocking.append(names[called] if is_used else -1)
    both = np.array([queued, blocking], np.int32)
    return both[waits[rows].astype(np.int64), events.code[rows]]


def _called(name: str, prefix: str) -> str:
    if _API.match(name):
        return strip_version(_GRAPH_ID.sub("", name))
    name_ = next(
        (pattern.sub(call, name) for pattern, call in _LAUNCHES if pattern.match(name)),
        "LaunchKernel",
    )
    return prefix + name_


def _ranges(events: PlaneEvents, rows: np.ndarray, thread: np.ndarray, names: Strings) -> Ranges:
    used = np.zeros(len(events.names), bool)
    used[events.code[rows]] = True
    annotated = events.plane.name == "/host:NVTX-CUPTI"
    meanings = [
        _meaning(name, annotated) if at else (RangeKind.OTHER, "")
        for name, at in zip(events.names, used, strict=True)
    ]
    kind = np.array([kind_ for kind_, _ in meanings], np.uint8)[events.code[rows]]
    name = np.array(
        [names[text] if at else -1 for (_, text), at in zip(meanings, used, strict=True)], np.int32
    )
    name = name[events.code[rows]]
    # asynchronous: it began on this thread, which then went on
    kind[events.ints("_a")[rows] > 0] = RangeKind.OTHER
    if "step_num" in events.stats:
        step = events.ints("step_num")[rows]
        for row in np.flatnonzero(step >= 0):
            kind[row] = RangeKind.STEP
            name[row] = names[f"{events.names[events.code[rows[row]]]} {step[row]}"]
    return table(
        Ranges,
        start=events.start[rows],
        end=events.end[rows],
        thread=thread[rows],
        name=name,
        kind=kind,
    )


def _meaning(name: str, annotated: bool) -> tuple[RangeKind, str]:
    """The kind of a range, and its name as other dialects write it."""
    if annotated or name.startswith("NVTX:"):
        return RangeKind.NVTX, name.removeprefix("NVTX:")
    if name.startswith("$"):
        frame = _FRAME.sub(r"\1(\2): \3", name).removeprefix("$")
        return RangeKind.COMPILE if _COMPILE.search(name) else RangeKind.PYTHON, frame
    if _COMPILE.search(name):
        return RangeKind.COMPILE, name
    return RangeKind.OP if _FRAMEWORK.search(name) else RangeKind.NVTX, name


def device_steps(planes: Sequence[Plane], works: Sequence[DeviceWork], names: Strings) -> Ranges:
    """Steps as a device saw them, for recordings in which no host thread marks any.

    Their thread is -1.
    """
    derived = [
        events_of(
            plane,
            tuple(line for line in plane.lines if line.name == "Steps"),
            frozenset({"step_name"}),
        )
        for plane in planes
    ]
    longest = max(derived, key=len, default=None)
    if longest is not None and len(longest):
        codes, texts = longest.texts("step_name")
        labels = [
            texts[code] if code >= 0 else longest.names[at]
            for code, at in zip(codes, longest.code, strict=True)
        ]
        return table(
            Ranges,
            start=longest.start,
            end=longest.end,
            name=names.many(f"step {label}" for label in labels),
            kind=RangeKind.STEP,
        )
    busiest = max(works, key=lambda work: np.count_nonzero(work.group >= 0), default=None)
    if busiest is None or not (busiest.group >= 0).any():
        return table(Ranges)
    has_step = busiest.group >= 0
    groups, step_index = np.unique(busiest.group[has_step], return_inverse=True)
    start = np.full(len(groups), np.iinfo(np.int64).max)
    end = np.full(len(groups), np.iinfo(np.int64).min)
    np.minimum.at(start, step_index, busiest.ops.start[has_step])
    np.maximum.at(end, step_index, busiest.ops.end[has_step])
    return table(
        Ranges,
        start=start,
        end=end,
        name=names.many(f"step {group}" for group in groups),
        kind=RangeKind.STEP,
    )


class ThreadTable:
    """Threads by id: lines of several planes can belong to one thread."""

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self._names: list[str] = []

    def of(self, line: PlaneLine) -> int:
        """Index of a line's thread in `all`."""
        match = _THREAD.match(line.name)
        tid = int(match[1]) if match else line.id
        at = self._index.setdefault(tid, len(self._index))
        if at == len(self._names):
            self._names.append("")
        self._names[at] = self._names[at] or ("" if match else re.sub(r"/-?\d+$", "", line.name))
        return at

    @property
    def all(self) -> tuple[Thread, ...]:
        return tuple(
            Thread(0, tid, name)
            for (tid, _), name in zip(self._index.items(), self._names, strict=True)
        )
