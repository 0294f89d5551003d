"""Chrome traces that cannot be analyzed, and what is skipped of others: each is called by its own
reason.
"""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from helpers.profiler.kineto_files import event, kernel, launch, meta, write

from fastfeed.errors import TraceError
from fastfeed.profiler.readers import detect, read
from fastfeed.profiler.readers.chrome import reader as chrome

pytestmark = pytest.mark.usefixtures("both_ways")

PAIRS = [row for n in range(1, 9) for row in (launch(n, 10 * n - 5), kernel(n, 10 * n, 5))]


def notes(path: Path) -> tuple[str, ...]:
    return chrome.read(path).origin.notes


@pytest.mark.parametrize("ts", ["9300000000000000.5", "1e19", "9" * 5000])
def test_times_that_int64_nanoseconds_cannot_hold(tmp_path: Path, ts: str):
    beyond = json.dumps(kernel(9, 0, 5)).replace('"ts": 0', f'"ts": {ts}')
    path = tmp_path / "a.json"
    path.write_text(f'{{"traceEvents": [{", ".join([*map(json.dumps, PAIRS), beyond])}]}}')
    assert notes(path) == ("Events whose times are before 1684 or after 2255, skipped: 1.",)
    path.write_text(f'{{"traceEvents": [{", ".join([beyond] * 3)}]}}')
    with pytest.raises(
        TraceError, match=r"a.json has 3 events and no time .*microseconds between 1684 and 2255"
    ):
        chrome.read(path)


def test_a_number_of_thousands_of_digits_costs_nothing(tmp_path: Path):
    rows = [json.dumps(row) for row in PAIRS]
    # in no known order of keys
    rows[3] = rows[3].replace('"args": {', f'"x": {"7" * 5000}, "args": {{')
    path = tmp_path / "a.json"
    path.write_text(
        f'{{"schemaVersion": 1, "big": -{"7" * 5000}, "traceEvents": [{", ".join(rows)}]}}'
    )
    trace = chrome.read(path)
    assert sorted(trace.ops.corr.tolist()) == [*range(1, 9)] and trace.origin.notes == ()
    assert trace.origin.version == "Kineto schema 1"


def test_arguments_that_nest_too_deeply(tmp_path: Path, both_ways: str):
    """Python's parser takes a thousand levels; the kernel, which looks at the first alone, loses
    nothing.
    """
    deep = '{"a":' * 3000 + "1" + "}" * 3000
    rows = [json.dumps(row) for row in PAIRS]
    rows[3] = rows[3].replace('"args": {', f'"args": {{"x": {deep}, ')
    path = tmp_path / "a.json"
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{", ".join(rows)}]}}')
    trace = chrome.read(path)
    if both_ways == "python":
        assert trace.origin.notes == ("Events whose values nest too deeply, skipped: 1.",)
        assert trace.ops.corr.tolist() == [1, 3, 4, 5, 6, 7, 8]
    else:
        assert trace.origin.notes == () and len(trace.ops.corr) == 8


@pytest.mark.parametrize("levels", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "more", ["}", ', "deviceProperties": [{"id": 0, "name": "V100"}, {"id": 1}]}']
)
@pytest.mark.parametrize("place", ["last", "only"])
def test_the_last_event_nests_too_deeply(
    tmp_path: Path, both_ways: str, place: str, more: str, levels: int
):
    """The file is whole, and the kernel minds no levels."""
    deep = json.dumps(PAIRS[1]).replace(
        '"args": {', '"args": {"x": [' + '{"a":' * levels + "1" + "}" * levels + "], "
    )
    rows = [deep] if place == "only" else [*map(json.dumps, PAIRS[2:]), deep]
    path = tmp_path / "a.json"
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{", ".join(rows)}]{more}')
    skipped = "Events whose values nest too deeply, skipped: 1."
    if both_ways == "python" and place == "only":
        with pytest.raises(TraceError, match=re.escape(f"without events ({skipped})")):
            chrome.read(path)
        return
    trace = chrome.read(path)
    assert trace.origin.notes == ((skipped,) if both_ways == "python" else ())
    assert len(trace.ops.corr) == len(rows[::2]) - (both_ways == "python" and place == "last")
    assert trace.origin.version == "Kineto schema 1"
    assert [device.name for device in trace.devices] == (["V100"] if "V100" in more else [""])
    path.write_text(path.read_text()[: -len(more) - 60])
    with pytest.raises(TraceError) if place == "only" else nullcontext():
        assert (
            chrome.read(path)
            .origin.notes[0]
            .startswith("The file ends in the middle of its events")
        )


BROKEN = [
    '{"ph":X,"ts":}',
    '{"ph":"X","args":{"x":[{"a":1},{"b":2}]},"ts":}',
    '{"ph":"X,"ts":1,"a":{"b":1}}',
    "{]}",
]


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize(
    "end", ["]}", "]\n}\n", ",\n]}", '],"displayTimeUnit":"ms"}', '],"a":[{"b":1},{"c":2}]}']
)
def test_a_closed_list_whose_last_event_is_no_json(tmp_path: Path, broken: str, end: str):
    path = tmp_path / "a.json"
    rows = [*map(json.dumps, PAIRS), broken]
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{", ".join(rows)}{end}')
    assert notes(path) == ("Places in the file that are not JSON, skipped: 1.",)
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{", ".join(rows)}')
    assert notes(path)[0] == "The file ends in the middle of its events: what came before was read."
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{", ".join([broken] * 3)}{end}')
    with pytest.raises(
        TraceError, match=r"without events \(Places in the file that are not JSON, skipped: \d\.\)"
    ):
        chrome.read(path)


@pytest.mark.parametrize(
    "name", ['load "x.jpg"', '"', '"a" and "b"', 'one " quote', 'a \\"b\\"', "a\\\\"]
)
@pytest.mark.parametrize("indent", [None, 1])
def test_quotes_that_the_writer_left_in_a_name(tmp_path: Path, name: str, indent: int | None):
    """PyTorch escapes nothing in names of record_function; the last two are of writers that do."""
    rows = [
        *PAIRS,
        event("user_annotation", "MARK", 100, 5),
        event("user_annotation", "next", 110, 5),
    ]
    path = write(tmp_path / "a.json", rows, indent=indent)
    path.write_text(path.read_text().replace("MARK", name))
    trace = chrome.read(path)
    assert trace.origin.notes == () and len(trace.ops.start) == 8
    expected = name.replace('\\"', '"').replace("\\\\", "\\")
    assert sorted(trace.name(at) for at in trace.ranges.name) == sorted([expected, "next"])


def test_what_comes_before_the_events_may_hide_them(tmp_path: Path):
    path = tmp_path / "a.json"
    path.write_text(f'{{"x": "{"y" * 200_000}", "traceEvents": []}}')
    with pytest.raises(
        TraceError, match=r"is JSON without trace events in its first 64 KiB \(it has \"x\"\)"
    ):
        detect(path)


OTHERS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "MTIA": (
        [event("mtia_ccp_events", "fc", 10, 5, pid=3), event("mtia_runtime", "launch", 5, 5)],
        "MTIA of Meta",
    ),
    "Habana": (
        [event("hpu_op", "gemm", 10, 5, pid=3), event("cpu_op", "aten::mm", 5, 5)],
        "Gaudi of Intel",
    ),
    "Ascend": (
        [
            meta("process_name", 7, "Ascend Hardware"),
            event("", "MatMul", 10, 5, pid=7),
            event("cpu_op", "mm", 5, 5),
        ],
        "NPUs of Huawei Ascend",
    ),
    "TensorFlow 1": (
        [
            meta("process_name", 1, "/job:localhost/replica:0/task:0/device:GPU:0 Compute"),
            meta("process_name", 2, "/device:GPU:0/stream:all Compute"),
            event("Op", "MatMul", 10, 5, pid=2, tid=0),
        ],
        "timeline of TensorFlow 1",
    ),
    "TensorFlow 1 of 2016": (
        [
            meta("process_name", 1, "/job:localhost/replica:0/task:0/cpu:0 Compute"),
            meta("process_name", 3, "/job:localhost/replica:0/task:0/gpu:7 Compute"),
            event("Op", "MatMul", 10, 5, pid=3, tid=0),
        ],
        "timeline of TensorFlow 1",
    ),
}


@pytest.mark.parametrize("maker", OTHERS)
def test_what_is_not_read_is_named(tmp_path: Path, maker: str):
    events, name = OTHERS[maker]
    path = write(tmp_path / "a.json", events)
    with pytest.raises(TraceError, match=rf"a.json is a .*{name}.*; "):
        read(path)
    if not maker.startswith("TensorFlow 1"):  # next to a GPU's work they are left out
        assert len(read(write(path, [*events, *PAIRS])).ops.start) == 8


def test_intel_gpus_are_read(tmp_path: Path):
    """In the words of PyTorch 2.13: no stream, but a queue, which is the thread of the row."""
    events = []
    for n in range(1, 9):
        events.append(
            event("xpu_runtime", "zeCommandListAppendLaunchKernel", 10 * n - 5, 4, correlation=n)
        )
        events.append(
            event(
                "kernel", "gemm_kernel", 10 * n, 5, pid=0, tid=1, device=0, context=1, correlation=n
            )
        )
    trace = read(write(tmp_path / "a.json", events))
    assert trace.ops.corr.tolist() == trace.calls.corr.tolist() == [*range(1, 9)]
    assert set(trace.ops.stream.tolist()) == {1} and not trace.origin.notes


def test_the_newest_categories_of_pytorch_are_no_host_ranges(tmp_path: Path):
    """PyTorch 2.13 writes recorded events and the scopes of Intel's profiler in categories of their
    own.
    """
    events = [event("cuda_event", "cudaEventRecord", 10, 0, pid=0, tid=7, stream=7), *PAIRS]
    events.append(event("xpu_scope_profiler", "gemm", 10, 40))
    assert not len(read(write(tmp_path / "a.json", events)).ranges.start)


def test_a_real_trace_of_an_mtia(data: Path):
    with pytest.raises(TraceError, match="MTIA of Meta, and only GPUs can be analyzed"):
        read(data / "traces" / "more" / "kineto" / "hta_mtia_inf.json.gz")
