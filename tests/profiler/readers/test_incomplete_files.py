"""Files whose end is missing, that are damaged, or whose profiler lost records: what the origin of
the trace says.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.profiler import kineto_files
from helpers.profiler.kineto_files import kernel, launch
from helpers.profiler.simulator.cases import ALL
from helpers.profiler.simulator.write import write

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.readers import read

pytestmark = pytest.mark.usefixtures("both_ways")


def _steps(count: int) -> list[dict[str, object]]:
    events = []
    for n in range(count):
        at = n * 1000
        events.append(kineto_files.event("user_annotation", f"ProfilerStep#{n}", at, 1000))
        events += [
            kineto_files.event("cpu_op", "aten::mm", at, 100),
            launch(n, at + 50),
            kernel(n, at + 100, 880),
        ]
    return events


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return kineto_files.write(tmp_path / "whole.json", _steps(200))


def test_a_whole_file(whole: Path):
    trace = read(whole)
    assert trace.origin.incomplete == ""
    assert analyze([trace]).verdict.confidence == "confirmed"


def test_a_file_that_is_still_being_written(whole: Path, tmp_path: Path):
    """107 of 200 steps: a verdict about those, and less certain."""
    text = whole.read_text("utf-8")
    part = tmp_path / "part.json"
    part.write_text(text[: text.index("ProfilerStep#107")], "utf-8")
    trace = read(part)
    assert trace.origin.incomplete.startswith("The file ends in the middle of its events")
    result = analyze([trace])
    assert len(result.devices[0].steps.labels) in (106, 107)
    assert (result.verdict.word, result.verdict.confidence) == ("not_starved", "likely")
    assert any("is incomplete" in sentence for sentence in result.verdict.counter_evidence)


def test_a_file_with_a_hole(whole: Path, tmp_path: Path):
    """Zeros where a part of the file was never written, over 16 of 200 steps: no verdict."""
    text = whole.read_text("utf-8")
    for first, last in ((50, 57), (80, 89)):
        start, stop = (
            text.index(f"ProfilerStep#{first}") + 20,
            text.index(f"ProfilerStep#{last}") - 30,
        )
        text = text[:start] + "\0" * (stop - start) + text[stop:]
    torn = tmp_path / "torn.json"
    torn.write_text(text, "utf-8")
    trace = read(torn)
    assert trace.origin.incomplete
    verdict = analyze([trace]).verdict
    assert verdict.word == "abstained"
    assert any("steps are left in a damaged file" in reason for reason in verdict.reasons)


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        ("17 activities dropped", 17),
        ("[W] GPU buffers full: 3 records were dropped", 3),
        ("Dropped 12 events", 12),
        ("records were dropped", 1),
        ("all went well", 0),
    ],
)
def test_records_that_kineto_dropped(tmp_path: Path, text: str, dropped: int):
    trace = read(kineto_files.write(tmp_path / "trace.json", _steps(30), WARNING=[text]))
    assert trace.origin.dropped == dropped
    verdict = analyze([trace]).verdict
    assert (verdict.word == "abstained") == bool(dropped)
    assert not dropped or verdict.reasons[0].startswith("The profiler lost")


def test_correlation_ids_that_are_all_equal_in_a_file(tmp_path: Path):
    events = json.loads(json.dumps(_steps(30)))
    for n in range(30):
        events.append(
            kineto_files.event(
                "user_annotation", "enumerate(DataLoader)#_It.__next__", n * 1000 - 20, 60
            )
        )
    for event in events:
        if "correlation" in event.get("args", {}):
            event["args"]["correlation"] = 1
    verdict = analyze([read(kineto_files.write(tmp_path / "equal.json", events))]).verdict
    assert verdict.word == "abstained"
    assert "share their launch" in verdict.reasons[0]


@pytest.mark.parametrize("dialect", ["xplane", "timeline"])
def test_other_files_that_are_cut_off(tmp_path: Path, dialect: str):
    path, *_ = write(ALL["healthy"].make(0), dialect, tmp_path)
    assert read(path).origin.incomplete == ""
    path.write_bytes(path.read_bytes()[:-100])
    assert read(path).origin.incomplete
