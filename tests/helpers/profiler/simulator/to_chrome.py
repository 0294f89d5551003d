"""The run as PyTorch's Kineto writes it since 2023: JSON, microseconds with three decimals,
gzip.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastfeed.profiler.model.trace import Kind, RangeKind
from helpers.profiler.simulator.events import STARTED_NS, Op, Run

_BASE_NS = STARTED_NS // 10**9 * 10**9 - 4 * 10**12  # "baseTimeNanoseconds"
_DEVICE = {
    Kind.H2D: "gpu_memcpy",
    Kind.D2H: "gpu_memcpy",
    Kind.D2D: "gpu_memcpy",
    Kind.P2P: "gpu_memcpy",
}
_CATEGORIES = {
    RangeKind.NVTX: "user_annotation",
    RangeKind.STEP: "user_annotation",
    RangeKind.OP: "cpu_op",
    RangeKind.PYTHON: "python_function",
    RangeKind.GC: "user_annotation",
}


def write_chrome(run: Run, path: Path) -> Path:
    """One process's trace."""
    host = run.hosts[0]
    world = 1 + max((proxy.victim for proxy in run.proxies), default=host.rank)
    head = {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": at, "name": "NVIDIA H200", "numSms": 132} for at in range(len(host.gpus))
        ],
        "distributedInfo": {
            "backend": "nccl",
            "rank": host.rank,
            "world_size": max(world, host.rank + 1),
        },
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": _BASE_NS,
    }
    text = json.dumps(head)[:-1] + ', "traceEvents": [\n' + ",\n".join(_events(run)) + "\n]}\n"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(text)
    return path


def _events(run: Run) -> Iterator[str]:
    host = run.hosts[0]
    shift = STARTED_NS + host.skew_ns - _BASE_NS

    def event(
        cat: str, name: str, pid: object, tid: object, start: int, end: int, args: dict[str, Any]
    ) -> str:
        times = f'"ts": {_us(start + shift)}, "dur": {_us(end - start)}'
        fields = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        return f'{json.dumps(fields)[:-1]}, {times}, "args": {json.dumps(args)}}}'

    def flow(phase: str, pid: object, tid: object, at: int, corr: int) -> str:
        fields = {"ph": phase, "id": corr, "pid": pid, "tid": tid, "cat": "ac2g", "name": "ac2g"}
        return (
            f'{json.dumps(fields)[:-1]}, "ts":'
            f" {_us(at + shift)}{', ' + _END if phase == 'f' else ''}}}"
        )

    yield from _names(run)
    devices = {gpu: at for at, gpu in enumerate(host.gpus)}
    started = {op.corr for op in run.ops}
    for op in run.ops:
        device = devices[op.gpu]
        cat, args = _DEVICE.get(op.kind, "kernel"), _args(op, device)
        yield event(cat, op.name, device, op.stream, op.start, op.end, args)
        yield flow("f", device, op.stream, op.start, op.corr)
    for at, call in enumerate(run.calls):
        args = {"External id": at, "cbid": 211, "correlation": call.corr}
        yield event("cuda_runtime", call.name, host.pid, call.thread, call.start, call.end, args)
        if call.corr in started:
            yield flow("s", host.pid, call.thread, call.start, call.corr)
    for at, one in enumerate(one for one in run.ranges if one.kind in _CATEGORIES):
        args = {"External id": at, "Ev Idx": at}
        yield event(_CATEGORIES[one.kind], one.name, host.pid, one.thread, one.start, one.end, args)
    times = {call.corr: call for call in run.calls}
    for wait in run.waits:
        call = times.get(wait.corr)
        if call is None:
            continue
        device = devices[wait.gpu]
        args = {"device": device, "context": 1, "stream": wait.stream, "correlation": wait.corr}
        args |= {
            "wait_on_stream": wait.on_stream,
            "wait_on_cuda_event_record_corr_id": wait.on_corr,
        }
        args |= {"wait_on_cuda_event_id": wait.on_corr % 5}
        yield event(
            "cuda_sync", "Stream Wait Event", device, wait.stream, call.start, call.end, args
        )
    first, last = run.ops[0].start, max(op.end for op in run.ops)
    yield event(
        "Trace",
        "PyTorch Profiler (0)",
        "Spans",
        "PyTorch Profiler",
        first - 1000,
        last,
        {"Op count": 0},
    )


_END = '"bp": "e"'


def _names(run: Run) -> Iterator[str]:
    host = run.hosts[0]
    for tid, name in host.threads.items():
        yield json.dumps(
            {
                "ph": "M",
                "name": "thread_name",
                "pid": host.pid,
                "tid": tid,
                "ts": 0,
                "args": {"name": f"thread {tid} ({name})"},
            }
        )
    yield json.dumps(
        {
            "ph": "M",
            "name": "process_name",
            "pid": host.pid,
            "tid": 0,
            "ts": 0,
            "args": {"name": "python"},
        }
    )
    for at in range(len(host.gpus)):
        label = {"labels": f"GPU {at}"}
        yield json.dumps(
            {"ph": "M", "name": "process_labels", "pid": at, "tid": 0, "ts": 0, "args": label}
        )


def _args(op: Op, device: int) -> dict[str, Any]:
    args: dict[str, Any] = {
        "External id": op.corr,
        "device": device,
        "context": 1,
        "stream": op.stream,
    }
    args |= {"correlation": op.corr}
    if op.kind is Kind.COMM:
        args |= {
            "Collective name": "allreduce",
            "In msg nelems": op.bytes // 4,
            "Out msg nelems": op.bytes // 4,
        }
        args |= {"dtype": "Float", "Process Group Name": op.group, "Seq": op.seq}
    elif op.bytes >= 0:
        args |= {"bytes": op.bytes, "memory bandwidth (GB/s)": 20.0}
    return args


def _us(ns: int) -> str:
    """Microseconds with their three decimals: no float comes near them."""
    return f"{ns // 1000}.{ns % 1000:03d}"
