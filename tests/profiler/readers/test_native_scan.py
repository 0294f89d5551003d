"""Native extension and Python read the same: simulated runs, real traces, damaged files."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from helpers.profiler.kineto_files import kernel, launch, training, write
from helpers.profiler.mutations import mutate
from helpers.profiler.simulator.judged import run_of
from helpers.profiler.simulator.write import write as write_run
from helpers.profiler.soundness import rows_of

from fastfeed.errors import TraceError
from fastfeed.profiler import readers
from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.readers.chrome import native_scan, stream

pytestmark = pytest.mark.skipif(
    native_scan.extension() is None, reason="the native extension is not built"
)


def read(path: Path) -> Trace | str:
    """The trace, or what the reader says."""
    try:
        return readers.read(path)
    except TraceError as error:
        return str(error)


def read_both(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Trace | str, Trace | str]:
    by_extension = read(path)
    with monkeypatch.context() as patch:
        patch.setattr(native_scan, "extension", lambda: None)
        return by_extension, read(path)


def assert_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_extension, by_python = read_both(path, monkeypatch)
    if isinstance(by_extension, str) or isinstance(by_python, str):
        assert by_extension == by_python
        return
    assert rows_of(by_extension) == rows_of(by_python)
    assert by_extension.origin == by_python.origin


@pytest.mark.parametrize("scenario", ["across_streams", "graphs", "pageable_copy", "no_core"])
def test_simulated_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str) -> None:
    for path in write_run(run_of(scenario), "chrome", tmp_path):
        assert_same(path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("most", [10**6, pytest.param(10**9, marks=pytest.mark.nightly)])
def test_real_traces(data: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Of at most as many bytes, packed."""
    paths = list((data / "traces").rglob("kineto/**/*.*"))
    paths = [path for path in paths if path.stat().st_size <= most]
    assert len(paths) >= 20
    for path in paths:
        assert_same(path, monkeypatch)


@pytest.mark.parametrize("piece", [64, 300, 5_000])
@pytest.mark.parametrize("indent", [None, 1])
def test_pieces_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, indent: int | None
) -> None:
    path = write(tmp_path / "a.json", training(), indent=indent)
    expected = readers.read(path)
    monkeypatch.setattr(stream, "PIECE", piece)
    trace = readers.read(path)
    assert rows_of(trace) == rows_of(expected) and trace.origin.notes == ()


PAIRS = [row for n in range(1, 9) for row in (launch(n, 10 * n - 5), kernel(n, 10 * n, 5))]
ODD = {  # of one event, what makes a scanner stumble; all of it is JSON
    "a brace in a name": ('"name": "gemm"', '"name": "}, {\\"ph\\": \\"X\\""'),
    "an escaped quote at the end": ('"name": "gemm"', '"name": "a\\\\\\""'),
    "a backslash at the end": ('"name": "gemm"', '"name": "a\\\\\\\\"'),
    "an escaped category": ('"cat": "kernel"', '"cat": "k\\u0065rnel"'),
    "keys twice": ('"ts": 80', '"ts": 1, "ts": 80'),
    "numbers as text": ('"ts": 80', '"ts": "80"'),
    "an exponent": ('"ts": 80', '"ts": 8e1'),
    "a negative time": ('"ts": 80', '"ts": -80.5'),
    "picoseconds": ('"ts": 80, "dur": 5', '"ts": 80.0004999, "dur": 5.0000009'),
    "more digits than that": ('"ts": 80', '"ts": 80.00049999999999999999999'),
    "no duration": ('"dur": 5', '"x": 5'),
    "arguments in lists": ('"args": {', '"args": {"a": [{"b": [1, {"correlation": 99}]}, "]}"], '),
    "correlation twice": ('"args": {', '"args": {"correlation": 77, '),
    "correlation as text": ('"correlation": 8', '"correlation": "8"'),
    "correlation with decimals": ('"correlation": 8', '"correlation": 8.0'),
    "no correlation in 32 bits": ('"correlation": 8', '"correlation": 4294967295'),
    "a huge correlation": ('"correlation": 8', '"correlation": 18446744073709551615'),
    "a device that is null": ('"device": 0', '"device": null'),
    "a stream as text": ('"stream": 7', '"stream": "7"'),
    "a thread as text": ('"tid": 7', '"tid": "stream 7"'),
    "a thread that is true": ('"tid": 7', '"tid": true'),
    "arguments that are null": ('"args": {', '"args": null, "x": {'),
    "arguments that are none": ('"args": {', '"args": {}, "x": {'),
    "no name": ('"name": "gemm"', '"x": 1'),
    "a name that is a number": ('"name": "gemm"', '"name": 12'),
    "another phase": ('"ph": "X"', '"ph": "i"'),
    "an event within": ('"ph": "X"', '"x": {"ph": "X", "ts": 1}, "ph": "X"'),
    "blanks": ('"ts": 80', '\t"ts" \n: \r 80 '),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    rows = [json.dumps(row) for row in PAIRS]
    odd = json.dumps(kernel(8, 80, 5, "gemm"))
    old, new = ODD[case]
    assert old in odd, odd
    rows[-1] = odd.replace(old, new)
    path = tmp_path / "a.json"
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{", ".join(rows)}]}}')
    assert_same(path, monkeypatch)


def test_bent_chrome_traces_are_read_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two differ in how much of damaged JSON they can make sense of, and in no sound event."""
    whole, dice = write(tmp_path / "a.json", PAIRS).read_bytes(), random.Random(4)
    sound = set(rows_of(readers.read(tmp_path / "a.json"))["ops"])
    for _ in range(300):
        path = tmp_path / "b.json"
        path.write_bytes(mutate(whole, "json", dice, tmp_path))
        traces = [trace for trace in read_both(path, monkeypatch) if isinstance(trace, Trace)]
        found = [sound & set(rows_of(trace)["ops"]) for trace in traces]
        assert len(found) < 2 or abs(len(found[0]) - len(found[1])) <= 2, path.read_bytes()


def test_a_piece_of_unclosed_strings_takes_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event opens a list that nothing closes: looking for its end in the rest of the piece
    would never be done.
    """
    native = native_scan.extension()
    event = b'"ph":"X","name":"k","args":{"a":[[[[},{'
    columns, others = native.EventScanner().scan(event * 100_000)
    assert len(columns["cat"]) == 0 and len(others) == 100_000


def test_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.json", PAIRS)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert_same(tmp_path / "a.json.gz", monkeypatch)
