"""Recordings of unknown loaders with known cost: the GPU's idle time is input."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from helpers.profiler.one_story import assert_one_story

from fastfeed.profiler import readers
from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.trace import RangeKind, Ranges, Trace, table

# the share of the time in which the GPU waits for input, %, and how far off the report may be
TRUE = {
    "threadqueue.json.gz": (80.8, 2),
    "torchdata.json.gz": (78.1, 2),
    "webdataset.json.gz": (74.1, 2),
    "torch0.json.gz": (20.9, 2),
    "jax_gen.xplane.pb": (87, 2),
    "inline_pil.json.gz": (49.4, 5),
    "i2_pin_main.json.gz": (49.5, 5),
    "a2_active1_preprocess.json.gz": (57.8, 5),
}
NAMED = ("threadqueue", "torchdata", "webdataset", "inline_pil")  # by a function of the program


@pytest.fixture(params=TRUE)
def recorded(request: pytest.FixtureRequest, data: Path) -> tuple[str, Trace]:
    path = data / "reports" / "profiler" / request.param
    if not path.exists():
        pytest.skip(f"no {path} in the test data")
    return request.param, readers.read(path)


def test_what_an_unknown_loader_costs(recorded: tuple[str, Trace]):
    name, trace = recorded
    true, tolerance = TRUE[name]
    result = analyze([trace])
    assert_one_story(result)
    verdict = result.verdict
    assert 100 * verdict.share.value == pytest.approx(true, abs=tolerance)
    assert verdict.word in ("starved", "severe")
    kind = name.split(".")[0]
    assert kind not in NAMED or f"mostly in k_{kind} (graft.py:" in verdict.headline


def test_without_frames_no_wait_is_called_something_else(recorded: tuple[str, Trace]):
    _, trace = recorded
    kept = trace.ranges.kind != RangeKind.PYTHON
    columns = {
        column.name: getattr(trace.ranges, column.name)[kept] for column in fields(trace.ranges)
    }
    verdict = analyze([replace(trace, ranges=table(Ranges, **columns))]).verdict
    assert verdict.word != "not_starved"
