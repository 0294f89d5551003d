"""--perfetto: Chrome JSON with four tracks for each device, exact to the nanosecond."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import pytest
from helpers.profiler import results_made
from helpers.profiler.results_made import EVERY

from fastfeed.profiler.model.result import Result
from fastfeed.profiler.reports import perfetto


def written(result: Result, path: Path) -> dict:
    perfetto.write(result, path)
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(data, parse_float=Decimal)


@pytest.mark.parametrize("name", EVERY)
def test_is_json_whatever_the_names(name: str, tmp_path: Path) -> None:
    tracks = written(EVERY[name](), tmp_path / "trace.json")
    assert isinstance(tracks["traceEvents"], list)


@pytest.mark.parametrize("file", ["trace.json", "trace.json.gz"])
def test_gap_causes_sum_to_the_idle_time_exactly(file: str, tmp_path: Path) -> None:
    result = results_made.many()
    events = written(result, tmp_path / file)["traceEvents"]
    for index, device in enumerate(result.devices):
        mine = [e for e in events if e["pid"] == index + 1 and e["tid"] == 2 and e["ph"] == "X"]
        total: dict[str, Decimal] = {}
        for event in mine:
            total[event["args"]["cause"]] = (
                total.get(event["args"]["cause"], Decimal(0)) + event["dur"] * 1000
            )
        assert total == {cause.key: ns for cause, ns in device.whole.causes.items()}


def test_every_device_has_its_tracks_by_name(tmp_path: Path) -> None:
    events = written(results_made.many(2 + 2), tmp_path / "trace.json")["traceEvents"]
    names = [(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"]
    assert names == [
        (pid, track)
        for pid in (1, 2, 3, 4)
        for track in ("device", "gap cause", "steps", "input waits")
    ]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"][
        3
    ] == "rank 3, GPU 3 (NVIDIA H100 80GB HBM3)"


def test_times_begin_at_zero_and_the_zero_is_told(tmp_path: Path) -> None:
    result = results_made.one()
    tracks = written(result, tmp_path / "trace.json")
    assert min(e["ts"] for e in tracks["traceEvents"] if e["ph"] == "X") == 0
    assert list(tracks["otherData"]["zero_ns"].values()) == [str(results_made.START)]


def test_clocks_of_ranks_are_shifted_by_their_offsets(tmp_path: Path) -> None:
    events = written(results_made.many(4), tmp_path / "trace.json")["traceEvents"]
    first = {}
    for event in (e for e in events if e["ph"] == "X" and e["tid"] == 2):
        first[event["pid"]] = min(first.get(event["pid"], event["ts"]), event["ts"])
    # all begin at one time of their own clocks, and each clock is 1.7 us ahead of the one before
    assert [first[pid] - first[4] for pid in (1, 2, 3, 4)] == [
        Decimal(n) for n in ("5.1", "3.4", "1.7", "0")
    ]
