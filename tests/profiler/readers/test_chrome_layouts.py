"""Chrome traces as files: every layout of JSON, and everything that can be wrong with it."""

from __future__ import annotations

import json
import lzma
import random
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.profiler.kineto_files import (
    device_rows,
    event,
    flows,
    host_rows,
    kernel,
    large,
    launch,
    meta,
    training,
    write,
)
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import TraceError
from fastfeed.profiler.readers import decompress
from fastfeed.profiler.readers.chrome import reader as chrome

pytestmark = pytest.mark.usefixtures("both_ways")


def backwards(event: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(event.items()))


LAYOUTS = {
    "as Kineto": lambda doc: json.dumps(doc, indent=2),
    "one line": json.dumps,
    "no blanks": lambda doc: json.dumps(doc, separators=(",", ":")),
    "keys sorted": lambda doc: json.dumps(doc, sort_keys=True),
    "keys reversed": lambda doc: json.dumps(
        doc | {"traceEvents": [backwards(one) for one in doc["traceEvents"]]}
    ),
    "bare list": lambda doc: json.dumps(doc["traceEvents"]),
    "events first": lambda doc: json.dumps({"traceEvents": doc["traceEvents"], **doc}),
    "byte order mark": lambda doc: "\ufeff" + json.dumps(doc),
    "garbage at the end": lambda doc: json.dumps(doc) + "\n}]garbage\x00",
    "comma too many": lambda doc: json.dumps(doc["traceEvents"])[:-1] + ",\n]",
    "list not closed": lambda doc: json.dumps(doc["traceEvents"])[:-1] + ",",
}


@pytest.mark.parametrize("piece", [64, 1000, 4 << 20])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_says_the_same(
    tmp_path: Path, layout: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested = event(
        "cpu_op", "odd", 500, 1, deep=[{"name": "a", "b": {"c": 1}}, {"name": '}, {"ph": 1'}], x={}
    )
    events = [
        *flows(9, 1),
        *training(),
        nested,
        kernel(3, 900, 5, 'a<"}, {\\lambda#1}">'),
        kernel(4, 910, 5),
        *flows(4, 1),
    ]
    expected = chrome.read(
        write(tmp_path / "plain.json", events, deviceProperties=[{"id": 0, "name": "A"}])
    )
    assert len(expected.ops.start) == 4
    document = {
        "deviceProperties": [{"id": 0, "name": "A"}],
        "traceEvents": events,
        "more": [{"a": 1}, {"b": "]}"}],
    }
    (tmp_path / "a.json").write_text(LAYOUTS[layout](document), encoding="utf-8")
    monkeypatch.setattr("fastfeed.profiler.readers.chrome.stream.PIECE", piece)
    trace = chrome.read(tmp_path / "a.json")
    assert sorted(device_rows(trace.ops)) == sorted(device_rows(expected.ops))
    assert sorted(host_rows(trace)) == sorted(host_rows(expected))
    assert sorted(map(trace.name, trace.ops.name)) == sorted(map(expected.name, expected.ops.name))
    listed = layout in ("bare list", "comma too many", "list not closed")
    assert trace.devices[0].name == ("" if listed else "A")
    assert bool(trace.origin.notes) == (layout == "list not closed")


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_keys_reads_alike(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    events = json.loads(large(tmp_path / "a.json", 60, ops=True).read_bytes(), parse_float=str)[
        "traceEvents"
    ]
    keys = sorted({key for one in events for key in one}, key=lambda _: chance.random())
    text = json.dumps([{key: one[key] for key in keys if key in one} for one in events])
    (tmp_path / "b.json").write_text(re.sub(r'("ts"|"dur"): "([\d.]+)"', r"\1: \2", text))
    monkeypatch.setattr("fastfeed.profiler.readers.chrome.stream.PIECE", 5000)
    expected, trace = chrome.read(tmp_path / "a.json"), chrome.read(tmp_path / "b.json")
    assert sorted(device_rows(trace.ops)) == device_rows(expected.ops)
    assert sorted(trace.calls.corr) == list(range(1, 61))
    assert host_rows(trace) == host_rows(expected)
    assert trace.threads == expected.threads


def test_a_file_that_ends_too_early_gives_what_it_has(tmp_path: Path) -> None:
    whole = large(tmp_path / "whole.json", 300).read_bytes()
    for length in (len(whole) // 2, len(whole) // 3, len(whole) - 400):
        (tmp_path / "a.json").write_bytes(whole[:length])
        trace = chrome.read(tmp_path / "a.json")
        begun = whole[:length].count(b'"est. achieved')
        assert begun - 1 <= len(trace.ops.start) <= begun
        assert trace.origin.notes == (
            "The file ends in the middle of its events: what came before was read.",
        )
        assert trace.devices[0].name == "NVIDIA H200"
    packed = lzma.compress(whole)
    (tmp_path / "a.json.xz").write_bytes(packed[: len(packed) * 2 // 3])
    trace = chrome.read(tmp_path / "a.json.xz")
    assert len(trace.ops.start) >= 1
    assert trace.origin.notes[0].startswith("The file is incomplete: the xz data ends too early")


def test_text_that_is_not_quite_json(tmp_path: Path) -> None:
    rows = [kernel(n, 10 * n, 5) for n in range(1, 7)]
    text = json.dumps({"traceEvents": rows}).encode()
    text = text.replace(b'"gemm"', b'"a\tb\x01"', 1).replace(b'"gemm"', b'"\xff\xfe\xc3"', 1)
    text = text.replace(b'"gemm"', b'"\\ud800 \\u00b5 \\x"', 1)
    text = text.replace(b'"ts": 40', b'"ts": NaN').replace(b'"dur": 5', b'"dur": Infinity', 1)
    (tmp_path / "a.json").write_bytes(text)
    trace = chrome.read(tmp_path / "a.json")
    assert [row[0] for row in device_rows(trace.ops)] == [20_000, 30_000, 50_000, 60_000]
    assert trace.origin.notes == ("Events whose times are not numbers, skipped: 2.",)
    assert "\n".join(trace.names).encode().decode() == "\n".join(trace.names)


def test_one_event_that_is_no_json_costs_only_itself(tmp_path: Path) -> None:
    rows = [json.dumps(kernel(n, 10 * n, 5)) for n in range(1, 9)]
    rows[3] = '{"ph": "X", "cat": "kernel", "name": broken", "ts": 1, "dur": 2}'
    (tmp_path / "a.json").write_text(f'{{"traceEvents": [{", ".join(rows)}]}}')
    trace = chrome.read(tmp_path / "a.json")
    assert trace.ops.corr.tolist() == [1, 2, 3, 5, 6, 7, 8]
    assert trace.origin.notes == ("Places in the file that are not JSON, skipped: 1.",)


def test_repairs_are_told(tmp_path: Path) -> None:
    rows = [
        kernel(1, 10, 5),
        kernel(2, 20, -5),
        kernel(1, 10, 5),
        kernel(1, 10, 5, stream=8),
        launch(1, 5),
        launch(1, 5),
    ]
    trace = chrome.read(write(tmp_path / "a.json", rows))
    assert sorted(device_rows(trace.ops)) == [
        (10_000, 15_000, 7, 1),
        (10_000, 15_000, 8, 1),
        (20_000, 20_000, 7, 2),
    ]
    assert len(trace.calls.start) == 2
    assert trace.origin.notes == (
        "Events that end before they begin, taken as empty: 1.",
        "Device events that are in the file twice, counted once: 1.",
    )


@pytest.mark.parametrize(
    ("events", "says"),
    [
        (
            [event("v8", "Compile", 1, 2), event("blink", "Layout", 1, 2)],
            "something else, its events are of 'v8', 'blink'",
        ),
        ([], "without events; record again"),
        ([meta("process_name", 1, "python")], "without events"),
    ],
)
def test_other_traces_are_refused(tmp_path: Path, events: list[Any], says: str) -> None:
    with pytest.raises(TraceError, match=says):
        chrome.read(write(tmp_path / "a.json", events))


def test_knows_its_own(tmp_path: Path, data: Path) -> None:
    for path in sorted((data / "traces" / "kineto").glob("*")):
        assert chrome.knows(path, decompress.head(path))
    plain = write(tmp_path / "a.json", training())
    assert chrome.knows(plain, plain.read_bytes())
    assert chrome.knows(plain, json.dumps(training()).encode())
    assert chrome.knows(plain, b'{"schemaVersion": 1, "deviceProperties": [' + b"1, " * 30_000)
    for other in (
        b"",
        b"[]",
        b"[1, 2]",
        b'{"a": 1}',
        b'{"fastfeed_timeline": 1, "feed": "f3a9"}\n["f3a9"]',
        b"\x00" * 99,
    ):
        assert not chrome.knows(plain, other)


TOKENS = (
    b"{",
    b"}",
    b"]",
    b'"',
    b",",
    b"\\",
    b"\\u",
    b"\xff",
    b"NaN",
    b'}, {"ph": "X"',
    b"9" * 30,
    b'"args": 5',
    b'"pid": [1]',
)


@given(
    st.lists(
        st.tuples(st.floats(0, 0.999), st.integers(0, 60), st.sampled_from((b"", *TOKENS))),
        max_size=4,
    )
)
def test_damage_is_no_crash(
    damaged_file: tuple[Path, bytes], damage: list[tuple[float, int, bytes]]
) -> None:
    path, content = damaged_file
    for at, length, instead in damage:
        begin = int(at * len(content))
        content = content[:begin] + instead + content[begin + length :]
    path.write_bytes(content)
    try:
        trace = chrome.read(path)
    except TraceError as error:
        assert str(path) in str(error)
        return
    assert all((table.end >= table.start).all() for table in (trace.ops, trace.calls, trace.ranges))
    assert damage or len(trace.ops.start) == 8


@pytest.fixture(scope="module")
def damaged_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("damaged") / "a.json"
    return path, large(path, 8, ops=True).read_bytes()
