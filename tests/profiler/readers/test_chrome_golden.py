"""Real files of Kineto: idle time as HolisticTraceAnalysis finds it, under its rules of what counts
and when.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.trace import Kind, RangeKind, Trace
from fastfeed.profiler.readers import decompress
from fastfeed.profiler.readers.chrome import reader as chrome

pytestmark = pytest.mark.slow

# HTA keeps decimals of today's time in microseconds as float64, whose steps are 250 ns
ROUGH = {"hta_ns_resolution_rank0.json.gz": 61}
# by device: ops, idle from first op to last in nanoseconds, percent of the ops whose launch is in
# the file
PLAIN = {
    "hta_amd_mi250_minitoy.json.gz": [(16, 8_762_845, 100)],
    "hta_critical_path_alexnet.json.gz": [(98, 12_854_103_000, 100)],
    "hta_cuda_event_sync_multi_stream.json.gz": [(6, 19_134_000, 100)],
    "hta_nccl_data.json.gz": [(3774, 503_050_991, 100)],
    "hta_ns_resolution_rank0.json.gz": [(6095, 7_574_738, 100)],
    "hta_sampled_rank0.json.gz": [(1204, 675_191_000, 100)],
    "lotus_v100_imagenet_b128_gpu1.json.xz": [(2922, 9_152_385_000, 100)],
    "lotus_v100_imagenet_b128_gpu4.json.xz": [
        (3214, 11_776_262_000, 100),
        (2805, 6_358_103_000, 100),
        (2805, 6_372_292_000, 100),
        (2813, 6_369_679_000, 100),
    ],
    "tb_resnet50_nw0_oldest.pt.trace.json.gz": [(10015, 274_446_000, 93)],
    "tb_resnet50_nw0_span1.pt.trace.json.gz": [(9096, 392_919_000, 100)],
    "tb_resnet50_nw4_span1.pt.trace.json.gz": [(9258, 187_137_000, 100)],
    "tracelens_mi300_owlv2.json.gz": [(4340, 576_521_813, 100)],
}
WITH_GOLDEN = [name for name in PLAIN if "gpu4" not in name]
MORE = ("tb_resnet50_nw0_oldest", "tb_resnet50_nw4_span1", "lotus_v100_imagenet_b128_gpu4")


def at_night(names: Iterable[str]) -> list[Any]:
    """Other runs of a program, whose first one is in CI, are nightly."""
    return [
        pytest.param(name, marks=pytest.mark.nightly) if name.startswith(MORE) else name
        for name in names
    ]


def the(data: Path, name: str) -> Path:
    path = data / "traces" / "kineto" / name
    if not path.is_file():
        pytest.skip(f"{path} is missing; fetch it as the README next to it says")
    return path


def idle(start: np.ndarray, end: np.ndarray) -> int:
    return int(end.max() - start.min()) - intervals.measure(
        intervals.union(intervals.spans(start, end))
    )


def events(path: Path) -> list[dict[str, Any]]:
    with decompress.open_stream(path) as stream:
        text = stream.read().decode("utf-8", "replace")
    return json.loads(text, parse_float=Decimal, strict=False)["traceEvents"]


def hta_idle(trace: Trace, others: list[dict[str, Any]]) -> int:
    """Every event on a stream counts; of more steps than one, what was launched before the last one
    began.
    """
    ops = trace.ops
    rows = [ops.start, ops.end, ops.corr]
    on_stream = [one for one in others if one.get("cat") in ("cuda_sync", "gpu_user_annotation")]
    on_stream = [one for one in on_stream if int(one["args"].get("stream", -1)) >= 0]
    if on_stream:
        starts = [int(one["ts"] * 1000) for one in on_stream]
        ends = [int((one["ts"] + one["dur"]) * 1000) for one in on_stream]
        corrs = [one["args"].get("correlation", -1) for one in on_stream]
        rows = [np.concatenate(pair) for pair in zip(rows, (starts, ends, corrs), strict=True)]
    start, end, corr = rows
    steps = trace.ranges.kind == RangeKind.STEP
    if len(np.unique(trace.ranges.name[steps])) > 1:
        launched = trace.calls.corr[trace.calls.start < trace.ranges.start[steps].max()]
        kept = np.isin(corr, launched)
        start, end = start[kept], end[kept]
    return idle(start, end)


@pytest.mark.parametrize("name", at_night(WITH_GOLDEN))
def test_idle_is_that_of_hta(data: Path, name: str) -> None:
    path = the(data, name)
    golden = json.loads((data / "traces" / "golden_hta.json").read_text())[name]["temporal"][0]
    off = hta_idle(chrome.read(path), events(path)) - golden["idle_time(us)"] * 1000
    assert abs(off) <= ROUGH.get(name, 1)


@pytest.mark.parametrize("name", PLAIN)
def test_device_work_of_real_files(data: Path, name: str) -> None:
    trace = chrome.read(the(data, name))
    ops, found = trace.ops, []
    for device in range(len(trace.devices)):
        own = ops.device == device
        matched = np.isin(ops.corr[own], trace.calls.corr).mean()
        found.append(
            (int(own.sum()), idle(ops.start[own], ops.end[own]), round(float(matched) * 100))
        )
    assert found == PLAIN[name]
    assert trace.origin.notes == ()
    assert not set(np.unique(ops.kind)) - {
        Kind.COMPUTE,
        Kind.COMM,
        Kind.H2D,
        Kind.D2H,
        Kind.D2D,
        Kind.P2P,
        Kind.MEMSET,
    }


@pytest.mark.parametrize("name", at_night(PLAIN))
def test_no_event_is_lost(data: Path, name: str) -> None:
    """Counted by the JSON parser of the standard library."""
    path = the(data, name)
    trace = chrome.read(path)
    cats = [str(one.get("cat", "")).lower() for one in events(path) if one["ph"] == "X"]
    assert len(trace.ops.start) == sum(
        cat.removeprefix("gpu_") in ("kernel", "memcpy", "memset") for cat in cats
    )
    assert len(trace.calls.start) == sum(
        cat in ("runtime", "cuda_runtime", "cuda_driver") for cat in cats
    )
    host = ("operator", "cpu_op", "python_function", "user_annotation")
    assert len(trace.ranges.start) == sum(cat in host for cat in cats)


def test_times_are_the_decimals_of_the_file(data: Path) -> None:
    path = the(data, "hta_ns_resolution_rank0.json.gz")
    ops = chrome.read(path).ops
    rows = [one for one in events(path) if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    expected = sorted((int(one["ts"] * 1000), int((one["ts"] + one["dur"]) * 1000)) for one in rows)
    assert sorted(zip(ops.start.tolist(), ops.end.tolist(), strict=True)) == expected
    assert any(start % 250 for start, _ in expected)  # what float64 would have lost
