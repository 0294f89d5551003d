"""Exports of Nsight Systems that are damaged, locked, of something else, or hold what cannot be."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from helpers.profiler.nsys_databases import Export, gid, million

from fastfeed.errors import TraceError
from fastfeed.profiler.readers.nsys import reader as nsys

pytestmark = pytest.mark.usefixtures("both_ways")


def good(path):
    export = Export(path)
    export.call(1_000, 1_100, "cudaLaunchKernel_v7000", 1)
    export.kernel(1_200, 2_000)
    return export.done()


def refused(path) -> str:
    with pytest.raises(TraceError) as error:
        nsys.read(path)
    text = str(error.value)
    assert str(path) in text and ";" in text  # what it is; what to do
    return text


@pytest.mark.parametrize("keep", [18, 100, 4_096, 30_000, 0.5, 0.99])
def test_cut_off(tmp_path, keep):
    path = million(tmp_path / "run.sqlite", 20_000)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    assert "damaged or unfinished SQLite database" in refused(path)


def test_overwritten_in_the_middle(tmp_path):
    path = million(tmp_path / "run.sqlite", 20_000)
    content = bytearray(path.read_bytes())
    content[8_192:-8_192] = b"\xff" * (len(content) - 16_384)
    path.write_bytes(bytes(content))
    assert "damaged or unfinished SQLite database" in refused(path)


def test_a_damaged_schema_of_several_lines_is_refused_in_one(tmp_path):
    path = good(tmp_path / "run.sqlite")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE odd (a TEXT NOT NULL\n  -- a comment\n)")
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'TEXT NOT NULL', '\"TEXT') WHERE name ="
            " 'odd'"
        )
    assert "malformed" in (text := refused(path)) and "\n" not in text


def test_a_number_of_thousands_of_digits_is_none(tmp_path):
    export = Export(tmp_path / "run.sqlite")
    export.kernel(1_200, 2_000)
    path = export.done()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)"
        )
        database.execute(
            "INSERT INTO TARGET_INFO_SYSTEM_ENV (name, value) VALUES ('CpuCores', ?)", ["9" * 5000]
        )
    assert len(nsys.read(path).ops.start) == 1


def test_a_schema_that_is_no_text(tmp_path):
    path = good(tmp_path / "run.sqlite")
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE\xff\xc8\x80\x9f\xb2\xf0"))
    assert nsys.knows(
        path, path.read_bytes()
    ) and "damaged or unfinished SQLite database" in refused(path)


def test_a_locked_file_is_read_as_it_lies(tmp_path):
    path = good(tmp_path / "run.sqlite")
    other = sqlite3.connect(path)
    other.execute("BEGIN EXCLUSIVE")
    try:
        assert len(nsys.read(path).ops.start) == 1
    finally:
        other.close()


def test_a_journal_that_is_missing_is_not_made(tmp_path):
    path = good(tmp_path / "run.sqlite")
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("INSERT INTO StringIds VALUES (99, 'late')")
    other.close()
    content = path.read_bytes()
    folder = tmp_path / "medium"
    folder.mkdir()
    (folder / "run.sqlite").write_bytes(content)
    (folder / "run.sqlite").chmod(0o444)
    folder.chmod(0o555)
    try:
        assert len(nsys.read(folder / "run.sqlite").ops.start) == 1
        assert [one.name for one in folder.iterdir()] == ["run.sqlite"]
    finally:
        folder.chmod(0o755)


def test_names_of_files_with_signs_of_urls(tmp_path):
    assert len(nsys.read(good(tmp_path / "50% #1 ? ü.sqlite")).ops.start) == 1


def test_without_cuda_it_says_how_to_record(tmp_path):
    export = Export(tmp_path / "run.sqlite")
    export.nvtx(10, 20, "step")
    text = refused(export.done())
    assert "has no CUDA activity: it was recorded without -t cuda" in text
    assert "--trace-fork-before-exec=true" in text


def test_calls_without_work(tmp_path):
    export = Export(tmp_path / "run.sqlite")
    export.call(10, 20, "cudaMalloc_v3020", 1)
    assert "has 1 CUDA calls and no kernel or copy" in refused(export.done())


def test_rows_that_cannot_be(tmp_path):
    export = Export(tmp_path / "run.sqlite")
    export.kernel(1_000, 2_000)
    for start, end in ((None, 5), (0, 10), (-3, 10), (900, 800), (700, None)):
        export.kernel(start, end)
    export.kernel(3_000, 3_000)  # of no length, and not wrong
    export.call(500, 400, "cudaFree_v3020", 9)
    export.nvtx(100, 90, "turned")
    trace = nsys.read(export.done())
    assert sorted(trace.ops.start.tolist()) == [1_000, 3_000]
    assert trace.origin.notes == (
        "5 device operations without a valid start and end are left out",
        "1 API call without a valid start and end is left out",
        "1 range with an end before the start is left out",
    )


def test_nothing_but_rows_that_cannot_be(tmp_path):
    export = Export(tmp_path / "run.sqlite")
    export.kernel(900, 800)
    text = refused(export.done())
    assert (
        "has no usable device work (1 device operation without a valid start and end is left out)"
        in text
    )


def test_texts_that_are_no_utf8_or_missing(tmp_path):
    export = Export(tmp_path / "run.sqlite")
    export.kernel(1_000, 2_000, "gemm")
    export.kernel(3_000, 4_000, demangledName=777)
    export.db.execute("UPDATE StringIds SET value = CAST(x'47656923ff' AS TEXT)")
    export.row("PROCESSES", globalPid=gid(100), pid=100, name="x")
    export.db.execute("UPDATE PROCESSES SET name = CAST(x'ff' AS TEXT)")
    trace = nsys.read(export.done())
    assert set(trace.names) == {"Gei#\ufffd", "kernel 777"} and trace.processes[0].name == "\ufffd"


def test_values_of_wrong_types(tmp_path):
    export = Export(tmp_path / "run.sqlite")
    export.kernel(1_000, 2_000, streamId="7", deviceId=None)
    export.kernel(2_000, 3_000.0, corr=None)  # type: ignore[arg-type]
    export.kernel("text", 3_000)
    trace = nsys.read(export.done())
    assert trace.ops.start.tolist() == [1_000, 2_000] and trace.ops.stream.tolist() == [7, 7]
    assert trace.ops.corr.tolist() == [1, -1]


def test_knows_its_own(tmp_path):
    ours = good(tmp_path / "ours.sqlite")
    nvprof, other = tmp_path / "nvprof.db", tmp_path / "other.db"
    for path, tables in (
        (nvprof, ("StringTable", "CUPTI_ACTIVITY_KIND_RUNTIME")),
        (other, ("users",)),
    ):
        with sqlite3.connect(path) as db:
            for table in tables:
                db.execute(f"CREATE TABLE {table} (id INTEGER)")
        db.close()
    known = {
        path.name: nsys.knows(path, path.read_bytes()[:65_536]) for path in (ours, nvprof, other)
    }
    assert known == {"ours.sqlite": True, "nvprof.db": False, "other.db": False}
    ours.write_bytes(ours.read_bytes()[:9_000])  # cut off, and still to be told from its schema
    assert nsys.knows(ours, ours.read_bytes())
    assert not nsys.knows(ours, b'{"traceEvents"')
