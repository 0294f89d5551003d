"""What the installed PyTorch writes, with everything switched on, on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.needs import needs

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.trace import RangeKind, Trace
from fastfeed.profiler.readers import read

pytestmark = [needs("torch"), pytest.mark.usefixtures("both_ways")]


@pytest.fixture(scope="module", params=["a.json", "a.json.gz"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    model = torch.nn.Linear(8, 8)
    data = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(40, 8)), batch_size=8
    )
    settings = dict.fromkeys(
        ("record_shapes", "with_stack", "with_flops", "profile_memory", "with_modules"), True
    )
    with profile(activities=[ProfilerActivity.CPU], **settings) as profiler:
        for (batch,) in data:
            with record_function('load "x.jpg"'):
                model(batch).sum().backward()
            profiler.step()
    path = tmp_path_factory.mktemp("torch") / request.param
    profiler.export_chrome_trace(str(path))
    return path


def names(trace: Trace, kind: RangeKind) -> list[str]:
    return [trace.name(name) for name in trace.ranges.name[trace.ranges.kind == kind]]


def test_host_ranges(recorded: Path) -> None:
    trace = read(recorded)
    assert len(trace.origin.notes) == 1 and "no device work" in trace.origin.notes[0]
    assert trace.origin.version == "Kineto schema 1" and trace.origin.wall_ns is not None
    assert len(trace.processes) == 1
    annotations = names(trace, RangeKind.NVTX)
    assert annotations.count('load "x.jpg"') == 5
    assert sum("__next__" in name for name in annotations) == 6
    assert "aten::addmm" in names(trace, RangeKind.OP)
    assert any("dataloader.py" in name for name in names(trace, RangeKind.PYTHON))


def test_says_how_long_the_host_waited(recorded: Path) -> None:
    result = analyze([read(recorded)])
    assert any("7 waits" in sentence for sentence in result.verdict.evidence), (
        "six batches, and the start of the loader"
    )
