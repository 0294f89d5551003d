"""Real recordings: every launch is found, and another decoder reads the same."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fastfeed.errors import TraceError
from fastfeed.profiler.model.trace import Kind, RangeKind, Trace
from fastfeed.profiler.readers.decompress import head
from fastfeed.profiler.readers.xplane import reader as xplane

GPU_FILES = ["jax08_mi300_gemm", "jax_te_fused_attn", "tf_gpu_multi_worker"]


@pytest.fixture
def folder(data: Path) -> Path:
    found = data / "traces" / "xplane"
    if not found.is_dir():
        pytest.skip(f"no {found}; set FASTFEED_TEST_DATA to the folder that holds traces/")
    return found


@pytest.fixture
def xplane_pb2() -> ModuleType:
    """The decoder that TensorFlow brings, without TensorFlow."""
    pytest.importorskip(
        "google.protobuf", reason="no protobuf to compare with; pip install protobuf"
    )
    found = importlib.util.find_spec("tensorflow")
    folders = [Path(place) for place in (found.submodule_search_locations or ())] if found else []
    path = next((place / "tsl/profiler/protobuf/xplane_pb2.py" for place in folders), Path())
    if not path.is_file():
        pytest.skip(
            "no TensorFlow, whose xplane_pb2 this compares with; pip install tensorflow-cpu"
        )
    spec = importlib.util.spec_from_file_location("xplane_pb2", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(folder: Path, name: str) -> Trace:
    path = folder / f"{name}.xplane.pb"
    assert xplane.knows(path, head(path))
    return xplane.read(path)


@pytest.mark.parametrize("name", GPU_FILES)
def test_every_op_has_a_launch_before_it(folder: Path, name: str) -> None:
    trace = read(folder, name)
    first = dict(
        zip(trace.calls.corr[::-1].tolist(), trace.calls.start[::-1].tolist(), strict=True)
    )
    assert len(trace.ops.start)
    assert all(
        first[corr] <= start
        for corr, start in zip(trace.ops.corr.tolist(), trace.ops.start.tolist(), strict=True)
    )


@pytest.mark.parametrize("name", GPU_FILES)
def test_another_decoder_reads_the_same(folder: Path, name: str, xplane_pb2: ModuleType) -> None:
    trace = read(folder, name)
    found = xplane_pb2.XSpace()
    found.ParseFromString((folder / f"{name}.xplane.pb").read_bytes())
    ops: Counter[tuple[int, ...] | tuple[str, int, int, int, int]] = Counter()
    ranges: Counter[tuple[int, int]] = Counter()
    for plane in found.planes:
        for line in plane.lines:
            for one in line.events:
                start_ps = line.timestamp_ns * 1000 + one.offset_ps
                start, end = start_ps // 1000, (start_ps + one.duration_ps) // 1000
                stats = {plane.stat_metadata[stat.metadata_id].name: stat for stat in one.stats}
                corr = stats["correlation_id"].uint64_value if "correlation_id" in stats else -1
                if plane.name.startswith("/device:GPU:") and line.name.startswith("Stream #"):
                    ops[
                        plane.event_metadata[one.metadata_id].name,
                        int(plane.name[12:]),
                        line.id,
                        start,
                        end,
                        corr,
                    ] += 1
                elif plane.name == "/host:CPU" and corr < 0 and end > start:
                    ranges[start, end] += 1
    table = trace.ops
    columns = (table.name, table.device, table.stream, table.start, table.end, table.corr)
    ours = Counter(
        (trace.name(row[0]), trace.devices[row[1]].ordinal, *row[2:])
        for row in zip(*(column.tolist() for column in columns), strict=True)
    )
    assert ours == ops
    host = trace.ranges.thread >= 0
    assert ranges == Counter(
        zip(trace.ranges.start[host].tolist(), trace.ranges.end[host].tolist(), strict=True)
    )


def test_rocm_names_the_way_of_a_copy_at_its_launch(folder: Path) -> None:
    kinds = Counter(read(folder, "jax08_mi300_gemm").ops.kind.tolist())
    assert kinds == {Kind.COMPUTE: 30, Kind.H2D: 12, Kind.D2D: 12}


def test_tensorflow(folder: Path) -> None:
    trace = read(folder, "tf_gpu_multi_worker")
    assert [device.ordinal for device in trace.devices] == [1, 4, 6]
    assert Counter(trace.ops.kind.tolist()) == {Kind.COMPUTE: 1330, Kind.H2D: 202, Kind.D2H: 24}
    copies = np.isin(trace.ops.kind, (Kind.H2D, Kind.D2H))
    assert np.all(trace.ops.bytes[copies] > 0)
    waits = [
        trace.name(n) for n in trace.ranges.name if trace.name(n).startswith("IteratorGetNext")
    ]
    assert len(waits) >= 2
    assert [trace.name(n) for n in trace.ranges.name[trace.ranges.kind == RangeKind.STEP]] == [
        "step 0"
    ]


def test_a_tpu_is_refused(folder: Path) -> None:
    with pytest.raises(
        TraceError, match="is a profile of a TPU; only profiles of GPUs can be analyzed"
    ):
        read(folder, "tpu_inference_2")


@pytest.mark.parametrize("name", ["tf_gpu_compute_bound", "tf_gpu_input_bound"])
@pytest.mark.parametrize("renamed", [False, True])
def test_results_are_refused(folder: Path, name: str, renamed: bool, tmp_path: Path) -> None:
    path = folder / f"{name}.input_pipeline.pb"
    if renamed:
        path = tmp_path / "unnamed"
        path.write_bytes((folder / f"{name}.input_pipeline.pb").read_bytes())
    assert xplane.knows(path, head(path))
    with pytest.raises(
        TraceError, match=r"is a result of xprof .*, not a recording; pass the \.xplane\.pb file"
    ):
        xplane.read(path)
