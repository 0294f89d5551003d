"""Real exports of Nsight Systems, 2020 to 2026, against what nsys itself says of their gaps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fastfeed.profiler.model.intervals import complement, spans, union
from fastfeed.profiler.model.trace import Kind, RangeKind, Trace
from fastfeed.profiler.readers import detect
from fastfeed.profiler.readers.nsys import reader as nsys


@pytest.fixture(scope="module")
def folder(data) -> Path:
    found = data / "traces"
    if not (found / "nsys_sqlite").is_dir():
        pytest.skip(
            f"no traces at {found}; set FASTFEED_TEST_DATA to the folder that holds"
            " traces/nsys_sqlite"
        )
    return found


def gaps(trace: Trace, process: int, device: int) -> dict[str, int]:
    """As the gpu_gaps rule of nsys has it: profiler overhead counts as busy where it is inside of
    first to last op.
    """
    ours = (
        (trace.ops.process == process)
        & (trace.ops.device == device)
        & (trace.ops.kind != Kind.GRAPH)
    )
    busy = union(spans(trace.ops.start[ours], trace.ops.end[ours]))
    first, last = int(busy[0, 0]), int(busy[-1, 1])
    own = trace.overheads.process == process
    inside = own & (trace.overheads.start > first) & (trace.overheads.end < last)
    if (
        "schema 3.2" not in trace.origin.version
    ):  # rows told by their type count for us, and for nsys by name only
        busy = union(busy, spans(trace.overheads.start[inside], trace.overheads.end[inside]))
    idle = complement(busy, first, last)
    lengths = idle[:, 1] - idle[:, 0]
    return {"n": len(lengths), "sum_ns": int(lengths.sum()), "max_ns": int(lengths.max(initial=0))}


def test_gaps_equal_those_of_nsys_to_the_nanosecond(folder):
    golden = json.loads((folder / "golden_nsys_analyze.json").read_text())
    compared = 0
    for name, said in golden.items():
        trace = nsys.read(folder / "nsys_sqlite" / name)
        pairs = set(zip(trace.ops.process.tolist(), trace.ops.device.tolist(), strict=True))
        ours = {
            f"{trace.processes[process].pid}/{trace.devices[device].ordinal}": gaps(
                trace, process, device
            )
            for process, device in pairs
        }
        assert ours == said["gpu_gaps_gap0"], name
        compared += len(ours)
    assert compared >= 7


def test_every_file_is_whole(folder):
    for path in sorted((folder / "nsys_sqlite").glob("*.sqlite")):
        assert detect(path) == "nsys"
        trace = nsys.read(path)
        ops = trace.ops
        assert (ops.end >= ops.start).all() and (ops.start > 0).all()
        assert ops.device.min() >= 0 and ops.process.min() >= 0 and ops.name.min() >= 0
        assert trace.calls.thread.min() >= 0 and len(set(trace.names)) == len(trace.names)
        assert all("_v" not in trace.name(name) for name in np.unique(trace.calls.name))
        for process in np.unique(ops.process).tolist():
            mine = np.array([thread.process == process for thread in trace.threads])
            calls = set(trace.calls.corr[mine[trace.calls.thread]].tolist())
            ids = set(ops.corr[ops.process == process].tolist())
            assert len(ids & calls) > 0.8 * len(ids), (
                path.name
            )  # extrap_con_kernel lacks the calls of three copies


def test_two_gpus_trained_in_one_file(folder):
    trace = nsys.read(folder / "nsys_sqlite" / "nsysai_mfu_2gpu_before.sqlite")
    assert [(one.ordinal, one.process) for one in trace.devices] == [(0, 0), (1, 1)]
    assert (trace.ops.kind == Kind.COMM).sum() == 66
    copies = trace.ops.kind == Kind.H2D
    assert copies.sum() == 34 and (trace.ops.pageable[copies] == 1).all()
    operators = trace.ranges.kind == RangeKind.OP
    assert operators.sum() == 18_656
    assert "aten::to" in trace.names and not any("op_id" in name for name in trace.names)
    # 200 calls of cudaStreamWaitEvent; this file has no records of events to join
    assert len(trace.waits.corr) == 200 and (trace.waits.on_stream == -1).all()


def test_the_oldest_file_has_calls_once(folder):
    trace = nsys.read(folder / "nsys_sqlite" / "extrap_sampled_s100000.sqlite")
    assert len(trace.calls.corr) == len(set(trace.calls.corr.tolist())) == 18


def test_a_report_through_the_nsys_of_this_machine(folder):
    from fastfeed.profiler.readers.nsys import report as nsys_report
    from fastfeed.profiler.runner import nsight

    if nsight.find() is None:
        pytest.skip("no nsys on this machine; make nsys, then set NSYS=build/nsys/nsys")
    path = folder / "nsys_rep" / "bootcamp_jacobi_single_gpu.qdrep"
    trace = nsys_report.read(path)
    assert trace.origin.path == str(path) and len(trace.ops.start) == 5_004
