"""The run as JAX's profiler writes it: an XSpace with one plane per GPU and one of the host."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from fastfeed.profiler.model.trace import Kind, RangeKind
from helpers.profiler.simulator.events import STARTED_NS, Op, Range, Run
from helpers.profiler.xplanes import Event, Line, Plane, Ref, event, gpu, space

_COPY = {Kind.H2D: ("MemcpyH2D", "host", "device"), Kind.D2H: ("MemcpyD2H", "device", "host")}
_COPY |= {Kind.P2P: ("MemcpyP2P", "device", "device"), Kind.D2D: ("MemcpyD2D", "device", "device")}


def write_xplane(run: Run, path: Path) -> Path:
    """One process's trace. Each line counts from a time of its own."""
    host = run.hosts[0]
    shift = STARTED_NS + host.skew_ns
    planes = [gpu(at, _streams(run, one, shift)) for at, one in enumerate(host.gpus)]
    threads: dict[int, list[Event]] = defaultdict(list)
    for call in run.calls:
        stats = {"correlation_id": call.corr}
        threads[call.thread].append(event(call.name, call.start + shift, call.end + shift, stats))
    for one in run.ranges:
        if one.kind is not RangeKind.SYSTEM:  # nothing of the operating system here
            threads[one.thread].append(_range(one, shift))
    lines = [
        Line(
            f"Host Threads/{tid}",
            sorted(events, key=lambda one: (one.start_ps, -one.end_ps)),
            tid,
            shift - 5_000,
        )
        for tid, events in threads.items()
    ]
    task = Plane(
        "Task Environment",
        (),
        {"profile_start_time": shift - 10_000, "profile_stop_time": shift + 10**12},
    )
    path.write_bytes(space([*planes, Plane("/host:CPU", lines), Plane("/host:metadata"), task]))
    return path


def _range(one: Range, shift: int) -> Event:
    name, stats = one.name, {}
    if one.kind is RangeKind.STEP:
        name, stats = "train", {"step_num": int(one.name.split("#")[1]), "_r": 1}
    elif one.kind is RangeKind.PYTHON:
        file, line, function = re.split(r"\((\d+)\): ", one.name)
        name = f"${file.rpartition('/')[2]}:{line} {function}"
    elif one.kind is RangeKind.OP:
        stats = {"tf_op": Ref(one.name)}
    return event(name, one.start + shift, one.end + shift, stats)


def _streams(run: Run, one: int, shift: int) -> list[Line]:
    streams: dict[int, list[Op]] = defaultdict(list)
    for op in run.ops:
        if op.gpu == one:
            streams[op.stream].append(op)
    lines = [
        Line(
            f"Stream #{number}({_what(ops)})",
            [_op(op, shift) for op in ops],
            number,
            ops[0].start + shift - 17,
        )
        for number, ops in sorted(streams.items())
    ]
    whole = [_op(op, shift) for op in run.ops if op.gpu == one and op.kind is Kind.COMPUTE]
    return [*lines, Line("XLA Modules", whole, -1, shift)]  # derived: must not be counted


def _what(ops: list[Op]) -> str:
    return ",".join(sorted({_COPY[op.kind][0] if op.kind in _COPY else "Compute" for op in ops}))


def _op(op: Op, shift: int) -> Event:
    stats: dict[str, object] = {"correlation_id": op.corr}
    name = op.name
    if op.kind in _COPY:
        name, source, target = _COPY[op.kind]
        host = "pageable" if op.pageable == 1 else "pinned"
        source, target = (host if side == "host" else side for side in (source, target))
        stats["memcpy_details"] = Ref(
            f"kind_src:{source} kind_dst:{target} size:{op.bytes} dest:0 async:1"
        )
    else:
        stats["kernel_details"] = Ref(
            "regs:32 static_shared:0 dynamic_shared:0 grid:1,1,1 block:1,1,1 occ_pct:100"
        )
    return event(name, op.start + shift, op.end + shift, stats)  # type: ignore[arg-type]
