"""Reads device and host planes of an XSpace: kernels, copies, API calls, annotations, steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastfeed.profiler.model.kernel_names import copy_kind, kernel_kind, strip_version
from fastfeed.profiler.model.trace import (
    Calls,
    Device,
    Kind,
    Ops,
    Overheads,
    RangeKind,
    Ranges,
    Strings,
    Thread,
    table,
)
from fastfeed.profiler.readers.xplane.planes import Plane, PlaneEvents, PlaneLine, decode_events

_STREAM = re.compile(r"Stream #(-?\d+)")
# records that are not work
_MEMORY = ("memalloc_details", "memfree_details", "memoryresidency_details")
_DEVICE_STATS = frozenset(
    {"correlation_id", "memcpy_details", "memset_details", "group_id", *_MEMORY}
)
_BYTES = re.compile(r"\b(?:size|num_bytes):(\d+)")
_ENDS = re.compile(r"\bkind_src:(\w+)\s+kind_dst:(\w+)")
_HOST_SIDE = {"pageable": 1, "pinned": 0}
_BY_KERNEL = re.compile(r"^__amd_rocclr_copyBuffer")  # ROCm copies with kernels, in every direction


class CopyDetails(NamedTuple):
    """The details of copies, one row per event."""

    bytes: np.ndarray  # int64, -1 unknown
    source: np.ndarray  # int8: 1 pageable, 0 pinned, -1 something else
    target: np.ndarray


class DeviceWork(NamedTuple):
    """The work of one device."""

    device: Device
    ops: Ops  # `device` is 0 in all rows
    overheads: Overheads
    group: np.ndarray  # int64, the step of each op; -1 unknown
    lines: tuple[str, ...]  # lines with events that are not streams
    damaged: int
    impossible: int


def parse_device(plane: Plane) -> Device:
    """The device of a plane such as `/device:GPU:3`, named by its properties."""
    properties = plane.properties
    name = str(properties.get("gpu_device_name", ""))
    if not name:
        vendor = str(properties.get("device_vendor", ""))
        cores = (
            f"{properties['core_count']} {'CUs' if vendor == 'AMD' else 'SMs'}"
            if "core_count" in properties
            else ""
        )
        memory = properties.get("memory_size", 0)
        size = f"{memory / 2**30:.0f} GiB" if isinstance(memory, int) and memory > 0 else ""
        facts = ", ".join(fact for fact in (cores, size) if fact)
        name = f"{vendor} GPU ({facts})".strip() if facts else vendor
    ordinal = re.search(r"(\d{1,6})\D*$", plane.name)
    return Device(int(ordinal[1]) if ordinal else 0, name, process=0)


def parse_device_work(plane: Plane, names: Strings) -> DeviceWork:
    """Everything that ran on one device.

    Lines that xprof derives from the streams are left alone.
    """
    streams = tuple(line for line in plane.lines if _STREAM.match(line.name))
    events = decode_events(plane, streams, _DEVICE_STATS)
    number = [_STREAM.match(line.name) for line in streams]
    stream = np.array([int(match[1]) if match else 0 for match in number] or [0], np.int64)
    kinds = np.array([_kind(name) for name in events.names], np.uint8)
    copies = copy_details(events)
    kind = kinds[events.code]
    at_host = np.where(
        kind == Kind.H2D, copies.source, np.where(kind == Kind.D2H, copies.target, -1)
    )
    correlation = events.ints("correlation_id")
    texts = names.many(name or "unnamed" for name in events.names)
    work = np.ones(len(events), bool)
    for stat in _MEMORY:
        if stat in events.stats:
            work[events.stats[stat].event] = False
    ops = table(
        Ops,
        start=events.start[work],
        end=events.end[work],
        device=0,
        process=0,
        stream=stream[events.line[work]],
        kind=kind[work],
        name=texts[events.code[work]],
        corr=np.where(correlation > 0, correlation, -1)[work],
        bytes=copies.bytes[work],
        pageable=at_host[work],
    )
    flushes = decode_events(
        plane, tuple(line for line in plane.lines if line.name == "CUPTI overhead"), frozenset()
    )
    others = tuple(
        line.name for line in plane.lines if len(line.begin) and not _STREAM.match(line.name)
    )
    overheads = table(Overheads, start=flushes.start, end=flushes.end, process=0)
    device = parse_device(plane)
    return DeviceWork(
        device,
        ops,
        overheads,
        events.ints("group_id")[work],
        others,
        events.damaged,
        events.impossible,
    )


def copy_details(events: PlaneEvents) -> CopyDetails:
    """Sizes and memory kinds of copies: `kind_src:pageable kind_dst:device size:512 async:1`."""
    size = np.full(len(events), -1, np.int64)
    source, target = np.full((2, len(events)), -1, np.int8)
    for stat in ("memcpy_details", "memset_details"):
        codes, texts = events.texts(stat)
        if not texts:
            continue
        details = [_parse_details(text) for text in texts]
        for column, values in zip((size, source, target), zip(*details, strict=True), strict=True):
            has_details = codes >= 0
            column[has_details] = np.array(values, column.dtype)[codes[has_details]]
    return CopyDetails(size, source, target)


def _parse_details(text: str) -> tuple[int, int, int]:
    size = _BYTES.search(text)
    sides_ = _ENDS.search(text)
    count = int(size[1][:18]) if size else 0
    sides = [_HOST_SIDE.get(side.lower(), -1) for side in sides_.groups()] if sides_ else [-1, -1]
    return count or -1, sides[0], sides[1]  # ROCm writes size:0 if it does not know


def _kind(name: str) -> Kind:
    if name.startswith(("Memcpy", "memcpy")):
        return copy_kind(name)
    if name.startswith(("Memset", "memset")):
        return Kind.MEMSET
    return Kind.GRAPH if name.startswith("CudaGraphExec") else kernel_kind(name)


def with_launch_details(ops: Ops, calls: Calls, sizes: CopyDetails, names: Sequence[str]) -> Ops:
    """Ops with the direction, size and memory of copies that only their launches have.

    `sizes` has a row per call.
    """
    by_kernel = np.array([bool(_BY_KERNEL.match(name)) for name in names] or [False])
    unknown_direction = (by_kernel[ops.name] | (ops.kind == Kind.OTHER)) & (ops.corr >= 0)
    incomplete = unknown_direction | (
        (ops.bytes < 0) & np.isin(ops.kind, (Kind.H2D, Kind.D2H, Kind.D2D, Kind.P2P))
    )
    rows = np.flatnonzero(incomplete & (ops.corr >= 0))
    launches = np.flatnonzero(calls.corr >= 0)
    if not len(rows) or not len(launches):
        return ops
    launches = launches[np.argsort(calls.corr[launches], kind="stable")]
    at = np.minimum(np.searchsorted(calls.corr[launches], ops.corr[rows]), len(launches) - 1)
    is_found = calls.corr[launches[at]] == ops.corr[rows]
    rows = rows[is_found]
    call = launches[at[is_found]]
    direction = np.array([copy_kind(name) for name in names] or [Kind.OTHER], np.uint8)[
        calls.name[call]
    ]
    kind = ops.kind.copy()
    has_direction = unknown_direction[rows] & (direction != Kind.OTHER)
    kind[rows[has_direction]] = direction[has_direction]
    size = ops.bytes.copy()
    pageable = ops.pageable.copy()
    size[rows] = np.where(size[rows] < 0, sizes.bytes[call], size[rows])
    at_host = np.where(kind[rows] == Kind.H2D, sizes.source[call], sizes.target[call])
    of_host = (pageable[rows] < 0) & np.isin(kind[rows], (Kind.H2D, Kind.D2H))
    pageable[rows[of_host]] = at_host[of_host]
    return replace(ops, kind=kind, bytes=size, pageable=pageable)


_IGNORED = (
    "/host:metadata",
    "/host:tfstreamz",
    "/host:__ScopeRangeCallStack__",
    "/host:TPU-runtime",
)
_HOST_STATS = frozenset({"correlation_id", "memcpy_details", "step_num", "_a"})
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


def parse_host(plane: Plane, threads: ThreadTable, names: Strings, amd: bool) -> HostActivity:
    """Calls and ranges of the threads of one plane."""
    events = decode_events(plane, plane.lines, _HOST_STATS)
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
    queued = []
    blocking = []
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
        decode_events(
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
