"""What the native kernel reads of a file is what Python reads of it: simulated runs, real traces,
bent files.
"""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from contextlib import closing
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
from fastfeed.profiler.readers import native
from fastfeed.profiler.readers.chrome import stream
from fastfeed.profiler.readers.nsys import database, pages

pytestmark = pytest.mark.skipif(native.kernel() is None, reason="the kernel is not built")


def read(path: Path) -> Trace | str:
    """The trace, or what the reader says."""
    try:
        return readers.read(path)
    except TraceError as error:
        return str(error)


def read_both(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Trace | str, Trace | str]:
    by_kernel = read(path)
    with monkeypatch.context() as patch:
        patch.setattr(native, "kernel", lambda: None)
        return by_kernel, read(path)


def assert_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_kernel, by_python = read_both(path, monkeypatch)
    if isinstance(by_kernel, str) or isinstance(by_python, str):
        assert by_kernel == by_python
        return
    assert rows_of(by_kernel) == rows_of(by_python)
    assert by_kernel.origin == by_python.origin


@pytest.mark.parametrize("scenario", ["across_streams", "graphs", "pageable_copy", "no_core"])
@pytest.mark.parametrize("dialect", ["nsys", "nsys_graph", "chrome"])
def test_simulated_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str, dialect: str
) -> None:
    for path in write_run(run_of(scenario), dialect, tmp_path):
        assert_same(path, monkeypatch)


@pytest.mark.slow
def test_real_traces(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [
        path
        for folder in ("kineto", "nsys_sqlite")
        for path in (data / "traces").rglob(f"{folder}/**/*.*")
    ]
    assert len(paths) > 20
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


def test_bent_databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage is SQLite's to tell: the kernel reads the same, or leaves the table to it."""
    whole = write_run(run_of("pageable_copy"), "nsys", tmp_path)[0].read_bytes()
    dice, agreed = random.Random(5), 0
    for _ in range(150):
        path = tmp_path / "b.sqlite"
        path.write_bytes(mutate(whole, "sqlite", dice, tmp_path))
        by_kernel, by_python = read_both(path, monkeypatch)
        if isinstance(by_kernel, Trace) and isinstance(by_python, Trace):
            assert rows_of(by_kernel) == rows_of(by_python)
            agreed += 1
    assert agreed > 50


def test_wide_rows_on_several_pages(tmp_path: Path) -> None:
    """Columns before a long text are on a row's first page; one behind it is SQLite's to fetch."""
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA page_size = 512")
        made.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, text TEXT, b INT)")
        made.executemany(
            "INSERT INTO t (a, text, b) VALUES (?, ?, ?)",
            [(-n, "x" * n, n << 40) for n in range(900)],
        )
        made.commit()
        assert pages.integer_columns(path, made, "t", ["b"]) is None
        assert pages.integer_columns(path, made, "t", ["id"]) is None
        columns = pages.integer_columns(path, made, "t", ["a"])
        assert columns and columns["a"].tolist() == [-n for n in range(900)]
    with database.open_database(path) as db:
        rows = db.columns("t", ("id", "a", "b", "c"))
        assert (
            rows["b"].tolist() == [n << 40 for n in range(900)]
            and rows["id"][-1] == 900
            and rows["c"][0] == -1
        )


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD COLUMN b INT DEFAULT 5",  # rows lack it
        "UPDATE t SET b = 1.5 WHERE a = 3",
        "UPDATE t SET b = 'text' WHERE a = 3",
        "UPDATE t SET b = '12' WHERE a = 3",
        "UPDATE t SET b = NULL WHERE a = 3",
        "UPDATE t SET b = 9223372036854775807",
        "UPDATE t SET b = -(1 << 47)",
        "ALTER TABLE t ADD COLUMN c INT AS (a + 1)",
        "DELETE FROM t WHERE a % 2",
    ],
)
def test_columns_as_sqlite_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"CREATE TABLE t (a INT{', b' if 'COLUMN b' not in statement else ''})")
        made.executemany("INSERT INTO t (a) VALUES (?)", [(n,) for n in range(3_000)])
        made.execute(statement)
        made.commit()
    with database.open_database(path) as db:
        by_kernel = db.columns("t", ("b", "a", "c"))
        monkeypatch.setattr(native, "kernel", lambda: None)
        by_sqlite = db.columns("t", ("b", "a", "c"))
    assert {name: column.tolist() for name, column in by_kernel.items()} == {
        name: column.tolist() for name, column in by_sqlite.items()
    }


def test_rows_that_are_not_in_the_file_yet(tmp_path: Path) -> None:
    """A journal next to the file holds what its pages do not."""
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE t (a INT)")
        made.execute("INSERT INTO t VALUES (7)")
        made.commit()
        with database.open_database(path) as db:
            assert db.columns("t", ("a",))["a"].tolist() == [7]


def test_pages_that_point_at_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA page_size = 512")
        made.execute("CREATE TABLE t (a INT)")
        made.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(5_000)])
        made.commit()
        whole = bytearray(path.read_bytes())
        root = 512  # the second page: its children become itself
        assert whole[root] == 5
        for cell in range(12, 20, 2):
            at = root + int.from_bytes(whole[root + cell : root + cell + 2], "big")
            whole[at : at + 4] = (2).to_bytes(4, "big")
        path.write_bytes(whole)
        assert pages.integer_columns(path, made, "t", ["a"]) is None


def test_a_piece_of_unclosed_strings_takes_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event opens a list that nothing closes: looking for its end in the rest of the piece
    would never be done.
    """
    kernel = native.kernel()
    event = b'"ph":"X","name":"k","args":{"a":[[[[},{'
    columns, others = kernel.EventScanner().scan(event * 100_000)
    assert len(columns["cat"]) == 0 and len(others) == 100_000


def test_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.json", PAIRS)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert_same(tmp_path / "a.json.gz", monkeypatch)
