"""On every real trace: the causes sum to the idle time and the budget to the window, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from fastfeed.errors import TraceError
from fastfeed.profiler import readers
from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.format import WORDS
from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.runner import nsight

pytestmark = pytest.mark.slow

REFUSED = {
    "jaxtb_pdl_2p2c.nsys-rep": "newer|Nsight Systems",
    "nersc_4workers.nsys-rep": "newer|Nsight Systems",
    "nersc_dali.nsys-rep": "newer|Nsight Systems",
    "hta_mtia_inf.json.gz": "MTIA",
    "tpu_inference_2.xplane.pb": "TPU",
    "tf_gpu_compute_bound.input_pipeline.pb": "result",
    "tf_gpu_input_bound.input_pipeline.pb": "result",
}


def _files(data):
    files = sorted(
        path
        for path in (data / "traces").rglob("*")
        if path.is_file() and path.parent.name != "traces"
    )
    assert len(files) > 20
    return files


def _idle(trace: Trace, device: int) -> tuple[int, int]:
    """Window and idle time by counting how many operations are open, event by event."""
    rows = trace.ops.device == device
    at = np.concatenate([trace.ops.start[rows], trace.ops.end[rows]])
    change = np.concatenate([np.ones(rows.sum(), int), -np.ones(rows.sum(), int)])
    order = np.lexsort((-change, at))
    at, open_ = at[order], np.cumsum(change[order])
    idle = int(np.diff(at)[open_[:-1] == 0].sum())
    return int(at[-1] - at[0]), idle


def test_every_idle_nanosecond_of_every_real_trace_has_one_cause(data):
    answered = 0
    for path in _files(data):
        try:
            trace = readers.read(path)
        except TraceError as refused:
            if path.suffix in (".qdrep", ".nsys-rep") and nsight.find() is None:
                continue  # only Nsight Systems reads these
            assert path.name in REFUSED, f"{path.name}: {refused}"
            assert len(str(refused)) > 40 and "\n" not in str(refused)
            continue
        result = analyze([trace])
        answered += 1
        for device in result.devices:
            window, idle = _idle(trace, device.device)
            ops = trace.ops
            rows = ops.device == device.device
            # from the mark of a step on, and to its end
            marked = (
                int(ops.start[rows].min()) - device.first + device.last - int(ops.end[rows].max())
            )
            whole = device.whole
            assert whole.budget.window == window + marked, path.name
            assert whole.budget.idle + whole.budget.overhead == idle + marked, path.name
            slices = device.slices
            assert (slices.start[1:] >= slices.end[:-1]).all() and (
                slices.end > slices.start
            ).all(), path.name
            assert int((slices.end - slices.start).sum()) == whole.budget.idle, path.name
            for period in (whole, device.judged):
                parts = period.budget
                assert sum(period.causes.values()) == parts.idle, path.name
                busy = parts.compute + parts.comm + parts.h2d + parts.other + parts.overhead
                assert busy + parts.idle == parts.window, path.name
                assert period.input.exposed + period.input.hidden == period.input.total, path.name
            if device.judged.budget.idle:
                split = sum(device.metrics[f"{part}_share"] for part in ("late", "call", "queued"))
                assert split == pytest.approx(1), path.name
        assert result.verdict.word in WORDS
        assert (result.verdict.word == "abstained") == bool(result.verdict.reasons), path.name
        assert result.verdict.change and result.verdict.command
    assert answered >= 20
