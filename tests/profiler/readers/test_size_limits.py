"""Small files that unpack to a lot: what is unpacked and held has a bound, and the sentence says
which.
"""

from __future__ import annotations

import gzip
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.commands import CliRunner
from helpers.profiler.kineto_files import kernel, launch, write
from helpers.profiler.nsys_databases import Export
from helpers.traces import DIALECTS, steady

from fastfeed.cli import app
from fastfeed.errors import TraceError
from fastfeed.profiler.readers import decompress, limits, read
from fastfeed.profiler.readers.chrome import events, native_scan, stream
from fastfeed.profiler.readers.chrome import reader as chrome

pytestmark = pytest.mark.usefixtures("both_ways")

EVENT = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2,"args":{"device":0,"stream":7}}'
BLANKS = {  # what is around them
    "before the object": (b"", b'{"traceEvents":[' + EVENT + b"]}"),
    "before the list": (
        b'{"schemaVersion":1,"displayTimeUnit":"ms",',
        b'"traceEvents":[' + EVENT + b"]}",
    ),
    "before an event": (b'{"schemaVersion":1,"traceEvents":[', EVENT + b"]}"),
    "between events": (b'{"schemaVersion":1,"traceEvents":[' + EVENT + b",", EVENT + b"]}"),
    "in a name": (b'{"schemaVersion":1,"traceEvents":[{"ph":"X","name":"', b'","ts":1,"dur":1}]}'),
    "after the list": (b'{"schemaVersion":1,"traceEvents":[' + EVENT + b"]", b"}"),
}


@pytest.fixture(autouse=True)
def _little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PIECE", 1 << 12)
    monkeypatch.setattr(stream, "_MAX_BYTES", 1 << 16)
    monkeypatch.setattr(stream, "_MAX_EVENT", 1 << 16)


@pytest.mark.parametrize("where", BLANKS)
def test_blanks_are_refused_or_passed_over(tmp_path: Path, where: str):
    before, after = BLANKS[where]
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(before + b" " * (1 << 20) + after))
    try:
        trace = chrome.read(path)
    except TraceError as error:
        assert "64 KiB" in str(error) or "0 MiB" in str(error)
    else:
        assert len(trace.ops.start) >= 1
    short = tmp_path / "b.json.gz"
    short.write_bytes(gzip.compress(before + b" \n" * 10_000 + after))  # five pieces
    if where != "in a name":
        assert len(chrome.read(short).ops.start) >= 1


def test_blanks_before_the_first_event_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Searching all that was read so far again with each piece would take a time that grows with
    the square.
    """
    monkeypatch.setattr(stream, "PIECE", 1 << 20)
    monkeypatch.setattr(stream, "_MAX_BYTES", 1 << 40)
    path = tmp_path / "a.json.gz"
    before, after = BLANKS["before an event"]
    with gzip.open(path, "wb", 1) as file:
        file.write(before)
        for _ in range(128):
            file.write(b" " * (1 << 20))
        file.write(after)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(chrome.read(path).ops.start) == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 64_000  # KiB


@pytest.mark.parametrize("dialect", ["chrome", "timeline", "nvprof_text"])
def test_more_events_than_allowed(tmp_path: Path, dialect: str):
    path = tmp_path / "trace"
    DIALECTS[dialect](path, steady(40))
    whole = read(path)
    with (
        limits.max_events(10),
        pytest.raises(TraceError, match=r"holds more than 10 events, .*--max-events"),
    ):
        read(path)
    with limits.max_events(1_000):
        again = read(path)
    assert len(again.ops.start) == len(whole.ops.start)


BROKEN = {
    "a word": b'{"ph":X,"ts":}',
    "no end": b'{"ph":"X","args":{"b":1,"x":}',
    "ends of lists": b'{"ph":X,"a":[{}],"ts":}',
    "open lists": b'{"ph":"X","a":[{"b":1}',
    "open strings": b'{"ph":"X","name":"a}',
}


@pytest.mark.parametrize("what", BROKEN)
def test_events_that_are_no_json_have_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
):
    """Millions fit into a few kilobytes."""
    path = tmp_path / "a.json.gz"
    path.write_bytes(
        gzip.compress(
            b'{"schemaVersion":1,"traceEvents":[' + (BROKEN[what] + b",") * 3_000 + EVENT + b"]}"
        )
    )
    with limits.max_events(100), pytest.raises(TraceError, match=r"holds more than 100 events"):
        chrome.read(path)
    monkeypatch.setattr(stream, "_MAX_DROPPED", 500)
    with pytest.raises(
        TraceError,
        match=r"a.json.gz: more than 500 of its events are not JSON; copy the file again",
    ):
        chrome.read(path)


@pytest.mark.parametrize(
    "event", [b"{}", b'{"ts":1}', b'{"ph":"X"}', b'{"ph":"X","name":"a","pid":1,"tid":1,"ts":1}']
)
def test_events_that_say_nothing_have_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: bytes
):
    monkeypatch.setattr(stream, "_MAX_DROPPED", 500)
    path = tmp_path / "a.json.gz"
    path.write_bytes(
        gzip.compress(b'{"schemaVersion":1,"traceEvents":[' + (event + b",") * 400 + EVENT + b"]}")
    )
    assert len(chrome.read(path).ops.start) == 1
    path.write_bytes(
        gzip.compress(
            b'{"schemaVersion":1,"traceEvents":[' + (event + b",") * 40_000 + EVENT + b"]}"
        )
    )
    if event == b'{"ts":1}' and native_scan.extension():
        assert len(chrome.read(path).ops.start) == 1, "the kernel passes them over"
        return
    with pytest.raises(
        TraceError, match=r"0 MiB of it have no event|more than 500 of its events have no phase"
    ):
        chrome.read(path)


def test_categories_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each takes memory, and time."""
    monkeypatch.setattr(events, "_MAX_CATEGORIES", 100)
    path = tmp_path / "a.json"
    rows = b",".join(EVENT.replace(b'"kernel"', b'"c%d"' % n) for n in range(99))
    path.write_bytes(b'{"schemaVersion":1,"traceEvents":[' + rows + b"," + EVENT + b"]}")
    assert len(chrome.read(path).ops.start) == 1
    more = b",".join(EVENT.replace(b'"kernel"', b'"d%d"' % n) for n in range(9))
    path.write_bytes(b'{"schemaVersion":1,"traceEvents":[' + rows + b"," + more + b"]}")
    with pytest.raises(
        TraceError, match=r"more than 100 categories of events, this is not a trace"
    ):
        chrome.read(path)


@pytest.mark.parametrize(
    "event",
    [
        b'{"ph":"M","pid":1,"name":"process_name"}',
        b'{"ph":"B","pid":1,"tid":1,"ts":1}',
        b'{"ph":"E","pid":1,"tid":1,"ts":1}',
    ],
)
def test_events_that_are_no_rows_are_counted(tmp_path: Path, event: bytes):
    path = tmp_path / "a.json.gz"
    path.write_bytes(
        gzip.compress(b'{"schemaVersion":1,"traceEvents":[' + (event + b",") * 500 + EVENT + b"]}")
    )
    assert len(chrome.read(path).ops.start) == 1
    with limits.max_events(100), pytest.raises(TraceError, match=r"holds more than 100 events"):
        chrome.read(path)


def test_the_command_has_the_limit(tmp_path: Path):
    path = write(
        tmp_path / "a.json",
        [row for n in range(1, 9) for row in (launch(n, 10 * n - 5), kernel(n, 10 * n, 5))],
    )
    done = CliRunner().invoke(app, ["analyze", str(path), "--max-events", "10"])
    assert str(done.exception).startswith(f"{path} holds more than 10 events")
    done = CliRunner().invoke(app, ["diff", str(path), str(path), "--max-events", "10"])
    assert isinstance(done.exception, TraceError)
    assert CliRunner().invoke(app, ["analyze", str(path), "--max-events", "16"]).exit_code == 0


@pytest.fixture
def database(tmp_path: Path) -> Iterator[bytes]:
    made = Export(tmp_path / "run.sqlite")
    made.call(1_000, 1_100, "cudaLaunchKernel_v7000", 1)
    made.kernel(1_200, 2_000)
    yield made.done().read_bytes()


def test_a_packed_database_is_unpacked_to_its_own_size(tmp_path: Path, database: bytes):
    path = tmp_path / "run.sqlite.gz"
    path.write_bytes(gzip.compress(database + bytes(1 << 24)))
    with decompress.as_file(path) as plain:
        assert plain.stat().st_size == len(database)
    assert len(read(path).ops.start) == 1


def test_a_packed_database_without_room(tmp_path: Path, database: bytes):
    huge = bytearray(database)
    huge[28:32] = (0xFFFFFF00).to_bytes(4, "big")  # pages
    path = tmp_path / "run.sqlite.gz"
    path.write_bytes(gzip.compress(bytes(huge) + bytes(1 << 20)))
    with pytest.raises(
        TraceError, match=r"cannot unpack .*: its header claims [\d,]+ GB, and .* has"
    ):
        read(path)
