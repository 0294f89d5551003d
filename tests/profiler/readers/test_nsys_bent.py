"""Values that no export has, in its small tables and in its large ones: findings of
`tests/fuzz/run.sh readers`.
"""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from helpers.products import in_turn
from helpers.profiler.simulator.judged import run_of
from helpers.profiler.simulator.write import write
from helpers.profiler.soundness import assert_sound

from fastfeed.errors import TraceError
from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.readers import read

pytestmark = pytest.mark.usefixtures("both_ways")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write(run_of("no_core"), "nsys", tmp_path_factory.mktemp("export"))[0].read_bytes()


def bent(export: bytes, folder: Path, statement: str, *values: object) -> Path:
    path = folder / "run.sqlite"
    path.write_bytes(export)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute(statement, values).rowcount, "nothing was changed"
        database.commit()
    return path


def sound(path: Path) -> Trace:
    trace = read(path)
    assert_sound(trace)
    analyze([trace])
    return trace


VALUES = ["text", b"\xff\xfe", float("inf"), None, -(2**63), "", b"", "\x1e", 1.5, -1, 2**63 - 1]
COLUMNS = [
    "PROCESSES.globalPid",
    "PROCESSES.name",
    "ThreadNames.globalTid",
    "ThreadNames.nameId",
    "TARGET_INFO_GPU.id",
    "TARGET_INFO_GPU.uuid",
    "TARGET_INFO_CUDA_DEVICE.pid",
    "TARGET_INFO_CUDA_DEVICE.cudaId",
    "TARGET_INFO_CUDA_DEVICE.gpuId",
    "TARGET_INFO_SESSION_START_TIME.utcEpochNs",
    "StringIds.id",
    "StringIds.value",
    "CUPTI_ACTIVITY_KIND_KERNEL.deviceId",
    "META_DATA_EXPORT.value",
    "NVTX_EVENTS.domainId",
]


@pytest.mark.parametrize(("column", "value"), in_turn(COLUMNS, VALUES, pytest.mark.nightly))
def test_any_value_in_any_column(export: bytes, tmp_path: Path, column: str, value: object) -> None:
    table, name = column.split(".")
    path = bent(export, tmp_path, f'UPDATE "{table}" SET "{name}" = ?', value)
    assert len(sound(path).ops.start)


@pytest.mark.parametrize("device", [-2, 2**31, 2**32 - 1, 2**62])
def test_a_device_that_no_machine_has(export: bytes, tmp_path: Path, device: int) -> None:
    where = "WHERE rowid = 3"
    trace = sound(
        bent(
            export, tmp_path, f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = ? {where}", device
        )
    )
    assert sorted(one.ordinal for one in trace.devices) == [-1, 0]


def test_overhead_that_ends_before_it_begins(export: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(export)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE IF EXISTS PROFILER_OVERHEAD")
        database.execute(
            "CREATE TABLE PROFILER_OVERHEAD (start INT, end INT, globalTid INT, nameId INT,"
            " overheadType INT)"
        )
        database.executemany(
            "INSERT INTO PROFILER_OVERHEAD VALUES (?, ?, (SELECT globalTid FROM"
            " CUPTI_ACTIVITY_KIND_RUNTIME), 1, 1)",
            [(2_000, 1_000), (3_000, 4_000)],
        )
        database.commit()
    assert sound(path).overheads.start.tolist() == [3_000]


def test_a_packed_export_is_called_by_its_own_name(export: bytes, tmp_path: Path) -> None:
    path = bent(export, tmp_path, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
    packed = tmp_path / "packed.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()[:30_000]))
    with pytest.raises(TraceError, match="^" + str(packed)) as caught:
        read(packed)
    assert "fastfeed-" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("DIAGNOSTIC_EVENT", "severity INTEGER, text TEXT"),
        ("TARGET_INFO_CUDA_DEVICE", "gpuId, cudaId INTEGER, pid, uuid"),
    ],
)
def test_nulls_where_the_table_promises_none(
    export: bytes, tmp_path: Path, table: str, columns: str
):
    """SQLite believes the promise: `IS NOT NULL` leaves nothing out."""
    path = tmp_path / "run.sqlite"
    path.write_bytes(export)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"DROP TABLE IF EXISTS {table}")
        database.execute(f"CREATE TABLE {table} ({columns})")
        database.execute(f"INSERT INTO {table} DEFAULT VALUES")
        database.execute("PRAGMA writable_schema = ON")
        promised = ", ".join(f"{column} NOT NULL" for column in columns.split(", "))
        database.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = ?",
            (columns, promised, table),
        )
        database.commit()
    sound(path)
