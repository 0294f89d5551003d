"""Chrome traces for tests: small ones of chosen events, and large ones in the layout that Kineto
writes.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from fastfeed.profiler.model.trace import Ops, RangeKind, Trace

PID = 4242
HTOD = "Memcpy HtoD (Pageable -> Device)"
BASE = 1_751_410_836_000_000_000  # nanoseconds since 1970
KERNELS = (
    "ampere_sgemm_128x64_nn",
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous"
        " namespace)::launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, c10::Scalar,"
        " at::native::detail::ClampLimits)::{lambda()#1}::operator()()"
        " const::{lambda()#7}::operator()() const::{lambda(float)#1}, at::detail::Array<char*, 2>"
        " >(int, float)"
    ),
    (
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1,"
        " true>(cudnnTensorStruct, float const*)"
    ),
)


def event(
    cat: str, name: str, ts: Any, dur: Any, *, pid: Any = PID, tid: Any = PID, **args: Any
) -> dict[str, Any]:
    """A complete event in the usual order of keys."""
    record = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return record | ({"args": args} if args else {})


def launch(corr: int, ts: Any, dur: Any = 5, **more: Any) -> dict[str, Any]:
    return event(
        "cuda_runtime",
        "cudaLaunchKernel",
        ts,
        dur,
        **more,
        **{"External id": corr},
        cbid=211,
        correlation=corr,
    )


def kernel(
    corr: int,
    ts: Any,
    dur: Any,
    name: str = KERNELS[0],
    *,
    stream: int = 7,
    device: int = 0,
    **more: Any,
) -> Any:
    return event(
        "kernel",
        name,
        ts,
        dur,
        pid=device,
        tid=stream,
        **{"External id": corr, "queued": 0, "device": device},
        context=1,
        stream=stream,
        correlation=corr,
        grid=[1, 1, 1],
        **more,
    )


def meta(kind: str, pid: Any, value: str, tid: Any = 0) -> dict[str, Any]:
    key = "labels" if kind == "process_labels" else "name"
    return {"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": {key: value}}


def flows(corr: int, ts: Any) -> list[dict[str, Any]]:
    arrow = {"id": corr, "pid": PID, "tid": PID, "ts": ts, "cat": "ac2g", "name": "ac2g"}
    return [{"ph": "s", **arrow}, {"ph": "f", **arrow, "bp": "e"}]


def write(path: Path, events: list[Any], indent: int | None = None, **top: Any) -> Path:
    """An object with `top` before the events, as Kineto has it."""
    text = json.dumps({"schemaVersion": 1, **top, "traceEvents": events}, indent=indent)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def device_rows(ops: Ops) -> list[tuple[int, ...]]:
    return list(
        zip(
            ops.start.tolist(),
            ops.end.tolist(),
            ops.stream.tolist(),
            ops.corr.tolist(),
            strict=True,
        )
    )


def host_rows(trace: Trace) -> list[tuple[str, RangeKind, int]]:
    ranges = trace.ranges
    tids = [trace.threads[thread].tid if thread >= 0 else -1 for thread in ranges.thread]
    return [
        (trace.name(name), RangeKind(kind), tid)
        for name, kind, tid in zip(ranges.name, ranges.kind, tids, strict=True)
    ]


def training() -> list[dict[str, Any]]:
    """One step: input, a copy, a kernel."""
    copy = {"device": 0, "context": 1, "stream": 7, "correlation": 1, "bytes": 4096}
    return [
        meta("process_name", PID, "python"),
        meta("process_labels", PID, "CPU"),
        meta("process_labels", 0, "GPU 0"),
        meta("thread_name", PID, f"thread {PID} (python)", PID),
        event("user_annotation", "ProfilerStep#5", 100, 900, **{"External id": 1}),
        event(
            "user_annotation",
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            101,
            300,
        ),
        event(
            "cpu_op",
            "aten::to",
            410,
            50,
            **{"Input Dims": [[8, 3], []], "Concrete Inputs": ["", "[1, {}]"]},
        ),
        event("cuda_runtime", "cudaMemcpyAsync_v3020", 420, 20, cbid=41, correlation=1),
        event("gpu_memcpy", HTOD, 425, 11, pid=0, tid=7, **copy),
        launch(2, 470),
        kernel(2, 480, 400),
        *flows(2, 470),
        event(
            "gpu_user_annotation", "ProfilerStep#5", 425, 455, pid=0, tid=7, **{"External id": 1}
        ),
        {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": "[memory]",
            "pid": PID,
            "tid": PID,
            "ts": 1,
            "args": {"Bytes": 8},
        },
        event(
            "Trace",
            "PyTorch Profiler (0)",
            0,
            1200,
            pid="Spans",
            tid="PyTorch Profiler",
            **{"Op count": 0},
        ),
    ]


def starved_steps(steps: int = 8) -> list[dict[str, Any]]:
    """Steps of 100 ms that wait 30 ms for their batch."""
    events = []
    for step in range(steps):
        start, waits = (
            step * 100_000,
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        )
        events.append(event("user_annotation", f"ProfilerStep#{step}", start, 100_000))
        events.append(event("user_annotation", waits, start, 30_000))
        for k in range(7):
            at, corr = start + 30_000 + k * 10_000, step * 10 + k
            events += [launch(corr, at), kernel(corr, at + 5, 9_990)]
    return events


_CALL = """  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": %(pid)d, "tid": %(pid)d,
    "ts": %(call)s, "dur": 4.211,
    "args": {
      "External id": %(n)d, "cbid": 211, "correlation": %(n)d
    }
  },
  {
    "ph": "s", "id": %(n)d, "pid": %(pid)d, "tid": %(pid)d, "ts": %(call)s,
    "cat": "ac2g", "name": "ac2g"
  },
"""
_KERNEL = """  {
    "ph": "X", "cat": "kernel", "name": "%(name)s", "pid": 0, "tid": 7,
    "ts": %(start)s, "dur": %(dur)s,
    "args": {
      "External id": %(n)d,
      "queued": 0, "device": 0, "context": 1,
      "stream": 7, "correlation": %(n)d,
      "registers per thread": 122, "shared memory": 12544,
      "blocks per SM": 5.925926, "warps per SM": 23.703703,
      "grid": [8, 16, 5],
      "block": [128, 1, 1],
      "est. achieved occupancy %%": 25
    }
  },
  {
    "ph": "f", "id": %(n)d, "pid": 0, "tid": 7, "ts": %(start)s,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  },
"""
_OP = """  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": %(pid)d, "tid": %(pid)d,
    "ts": %(op)s, "dur": 8.100,
    "args": {
      "External id": %(n)d,"Record function id": 0, "Concrete Inputs": ["", "[1, 64]"], "Ev Idx": %(n)d
    }
  },
"""
_FIRST = """
{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150000000000
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
  "baseTimeNanoseconds": %d,
  "traceEvents": [
"""
_LAST = """  {
    "name": "Record Window End", "ph": "i", "s": "g",
    "pid": "", "tid": "", "ts": 1.000
  }
  ],
  "traceName": "trace.json",
  "displayTimeUnit": "ms"
}
"""


def large(
    path: Path, launches: int, ops: bool = False, begin_ns: int = 4_203_669_604_595_407
) -> Path:
    """`launches` kernels of 9 us every 10 us, each with its call and both ends of the arrow, as
    Kineto writes them.

    A gap of 1000 ns follows each kernel. About 0.9 kB a launch, 1.1 kB with an operator for each.
    """
    template = _CALL + _KERNEL + (_OP if ops else "")
    with path.open("w") as file:
        file.write(_FIRST % BASE)
        for begin in range(0, launches, 10_000):
            file.write(
                "".join(
                    _launch(template, n, begin_ns)
                    for n in range(begin, min(launches, begin + 10_000))
                )
            )
        file.write(_LAST)
    return path


def _launch(template: str, n: int, begin_ns: int) -> str:
    at = begin_ns + 10_000 * n
    call, start, op = (f"{ns // 1000}.{ns % 1000:03d}" for ns in (at - 6_100, at, at - 8_000))
    values = {"n": n + 1, "call": call, "start": start, "op": op, "dur": "9.000", "pid": PID}
    return template % (values | {"name": KERNELS[n % len(KERNELS)]})
