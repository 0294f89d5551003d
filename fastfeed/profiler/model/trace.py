"""The normal form of every dialect: work of the devices, and activity of the host.

Times are int64 nanoseconds on the trace's own clock, spans are half-open [start, end). A table is a
frozen dataclass of columns, all of one length, in any order of rows. Texts are interned: a column
`name` holds indexes into `Trace.names`, -1 for none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

from fastfeed.profiler.model.columns import unique_values


class Kind(IntEnum):
    """Kind of a device op."""

    COMPUTE = 0
    COMM = 1  # NCCL, RCCL and kin
    H2D = 2
    D2H = 3
    D2D = 4
    P2P = 5
    MEMSET = 6
    GRAPH = 7  # a whole CUDA graph, where its kernels were not recorded; counts as compute
    OTHER = 8  # unified memory migration and the like


class RangeKind(IntEnum):
    """Origin of a host range, which decides how far its name can be trusted."""

    # the user's or a library's annotation, also user_annotation of PyTorch, StepTraceAnnotation
    NVTX = 0
    OP = 1  # a framework's operator: cpu_op, TF op, an XLA thunk
    PYTHON = 2  # a function of the interpreter
    FEED = 3  # a span of fastfeed's timeline, or its NVTX range; the name is "fastfeed:<stage>"
    STEP = 4  # one training step; the name has its number
    SYSTEM = 5  # a call of the operating system that blocked (nsys osrt)
    GC = 6  # garbage collection of the interpreter
    GIL = 7  # waiting for the interpreter's lock
    COMPILE = 8  # where the dialect itself says so
    OTHER = 9


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    host: str = ""  # "" unknown
    name: str = ""  # the command, where recorded
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Thread:
    process: int  # index into Trace.processes
    tid: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """One physical GPU of the recording.

    Two processes that share it (same uuid) share the row; ranks that each call theirs 0 do not.
    """

    ordinal: int  # the number that the trace calls it
    name: str = ""  # e.g. NVIDIA H200
    uuid: str = ""
    process: int = -1  # its only process, -1 if several share it


@dataclass(frozen=True, slots=True)
class Ops:
    """Device work: kernels, copies and the like."""

    start: np.ndarray  # int64
    end: np.ndarray  # int64
    device: np.ndarray  # int32, index into Trace.devices
    process: np.ndarray  # int32, index into Trace.processes
    stream: np.ndarray  # int64, the trace's own number
    kind: np.ndarray  # uint8, a Kind
    name: np.ndarray  # int32
    corr: np.ndarray  # int64, joins with Calls.corr within the process; -1 none
    bytes: np.ndarray  # int64, copied or communicated; -1 unknown
    pageable: np.ndarray  # int8: 1 the host side of the copy is pageable, 0 it is not, -1 unknown
    group: np.ndarray  # int32, name of the communicator or process group of a COMM op; -1 unknown
    seq: np.ndarray  # int64, which collective of that group; -1 unknown


@dataclass(frozen=True, slots=True)
class Calls:
    """CUDA or HIP API calls on host threads; names are without suffixes (_v7000, _ptsz)."""

    start: np.ndarray
    end: np.ndarray
    thread: np.ndarray  # int32, index into Trace.threads
    name: np.ndarray  # int32
    corr: np.ndarray  # int64, -1 none


@dataclass(frozen=True, slots=True)
class Ranges:
    """Other activity of a host thread; ranges of one thread nest or follow each other."""

    start: np.ndarray
    # of a range that was still open at the end of the recording: the end of the recording
    end: np.ndarray
    thread: np.ndarray  # int32; -1 if the dialect does not say
    name: np.ndarray  # int32
    kind: np.ndarray  # uint8, a RangeKind
    domain: np.ndarray  # int32, NVTX domain or category; -1 none


@dataclass(frozen=True, slots=True)
class Waits:
    """A stream that waits for an event (cudaStreamWaitEvent)."""

    corr: np.ndarray  # int64, of the waiting call
    process: np.ndarray  # int32
    stream: np.ndarray  # int64, that waits; -1 unknown
    on_stream: np.ndarray  # int64, where the event was recorded; -1 unknown
    on_corr: np.ndarray  # int64, correlation of the call that recorded the event; -1 unknown


@dataclass(frozen=True, slots=True)
class Overheads:
    """Work of the profiler itself, which is not the process's fault."""

    start: np.ndarray
    end: np.ndarray
    process: np.ndarray  # int32


@dataclass(frozen=True, slots=True)
class Sched:
    """A thread that was ready to run and had no core."""

    start: np.ndarray
    end: np.ndarray
    thread: np.ndarray  # int32


Columns = TypeVar("Columns")
Table = TypeVar("Table", Ops, Calls, Ranges, Waits, Overheads, Sched)

_TYPES = {
    "device": np.int32,
    "process": np.int32,
    "thread": np.int32,
    "name": np.int32,
    "domain": np.int32,
}
_TYPES |= {"group": np.int32, "kind": np.uint8, "pageable": np.int8}


def table(kind: type[Table], /, rows: int | None = None, **columns: Any) -> Table:
    """`table(Ops, start=..., end=...)`: a table of these columns, in their types.

    A missing column is -1, or 0 for `kind`; a scalar fills its column. `table(Ops)` is an empty
    one.
    """
    sizes = {np.shape(column)[0] for column in columns.values() if np.ndim(column)}
    if len(sizes) > 1:
        raise ValueError(f"columns of one length, got {sorted(sizes)}")
    count = sizes.pop() if sizes else (rows or 0)
    made = {}
    for one in fields(kind):
        dtype = _TYPES.get(one.name, np.int64)
        given = columns.pop(one.name, 0 if one.name == "kind" else -1)
        made[one.name] = (
            np.full(count, given, dtype)
            if np.ndim(given) == 0
            else np.asarray(given).astype(dtype, copy=False)
        )
    if columns:
        raise ValueError(f"{kind.__name__} has no column {', '.join(columns)}")
    return kind(**made)


def concatenated(*tables: Columns) -> Columns:
    """The rows of all these tables of one kind, which may be any dataclass of columns."""
    kind: Any = type(tables[0])
    names = [column.name for column in fields(kind)]
    return kind(*(np.concatenate([getattr(part, name) for part in tables]) for name in names))


class Strings:
    """Interned texts: `strings["gemm"]` is an index into `strings.all`, for `Trace.names`."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._index: dict[str, int] = {}

    def __getitem__(self, text: str | None) -> int:
        if text is None:
            return -1
        found = self._index.get(text)
        if found is None:
            found = self._index[text] = len(self.all)
            self.all.append(text)
        return found

    def many(self, texts: Iterable[str | None]) -> np.ndarray:
        """Indexes of many names: int32."""
        return np.fromiter((self[text] for text in texts), np.int32)


@dataclass(frozen=True, slots=True)
class Origin:
    """Source of a trace, and gaps of its recording, each of which can prevent a verdict."""

    path: str
    dialect: str  # nsys, nvprof, chrome, xplane, timeline
    version: str = ""  # of the schema or product, as the file says
    wall_ns: int | None = None  # nanoseconds since 1970 of this trace's time 0; None where unknown
    host_calls: bool = True  # API calls were recorded, so launches are distinct from lateness
    dropped: int = 0  # records that the profiler says it lost
    sampled: bool = False  # the file says that events were left out
    notes: tuple[
        str, ...
    ] = ()  # sentences for the user: skipped lines, ranges without names, repaired values
    incomplete: str = ""  # why part of the file could not be read; "" if it is whole


@dataclass(frozen=True, slots=True)
class Trace:
    origin: Origin
    names: tuple[str, ...] = ()
    processes: tuple[Process, ...] = ()
    threads: tuple[Thread, ...] = ()
    devices: tuple[Device, ...] = ()
    ops: Ops = field(default_factory=lambda: table(Ops))
    calls: Calls = field(default_factory=lambda: table(Calls))
    ranges: Ranges = field(default_factory=lambda: table(Ranges))
    waits: Waits = field(default_factory=lambda: table(Waits))
    overheads: Overheads = field(default_factory=lambda: table(Overheads))
    sched: Sched = field(default_factory=lambda: table(Sched))
    # also in the file: world_size, cpu_count, feeds; pauses between cycles
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def with_notes(self, *notes: str) -> Trace:
        """Return this trace with more notes for its user."""
        return replace(self, origin=replace(self.origin, notes=(*self.origin.notes, *notes)))

    def name(self, index: int) -> str:
        return self.names[index] if index >= 0 else ""

    def matches(self, name: np.ndarray, pattern: re.Pattern[str]) -> np.ndarray:
        """Mask of these indexes of names that the pattern matches: bool, shape (n,)."""
        table = np.zeros(len(self.names) + 1, bool)  # the last is for -1
        for index in unique_values(name).tolist():
            table[index] = pattern.search(self.name(index)) is not None
        return table[name]

    def thread_processes(self, thread: np.ndarray, unknown: int = -2) -> np.ndarray:
        """The process of each of these threads, `unknown` for thread -1: int64, shape (n,)."""
        return np.array([*(row.process for row in self.threads), unknown], np.int64)[thread]
