"""What nvprof prints: columns by name, units per column or per value, lines of others in
between.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.profiler.nvprof_prints import CALLS, CSV, TEXT

from fastfeed.errors import TraceError
from fastfeed.profiler.model.trace import Kind, RangeKind, Trace
from fastfeed.profiler.readers import detect
from fastfeed.profiler.readers.nvprof import text as nvprof_text


def read(folder: Path, text: str) -> Trace:
    path = folder / "printed"
    path.write_text(text)
    assert detect(path) == "nvprof_text"
    return nvprof_text.read(path)


def ops(trace: Trace) -> list[tuple[int, int, str]]:
    rows = zip(
        trace.ops.start.tolist(), trace.ops.end.tolist(), trace.ops.name.tolist(), strict=True
    )
    return [(start, end, trace.name(name)) for start, end, name in rows]


def test_a_correlation_of_thousands_of_digits_is_none(tmp_path: Path) -> None:
    lines = CSV.splitlines()
    rows = [n for n, line in enumerate(lines) if line.rpartition(",")[2].isdigit()]
    lines[rows[0]] = lines[rows[0]].rpartition(",")[0] + "," + "9" * 5000
    trace, whole = read(tmp_path, "\n".join(lines) + "\n"), read(tmp_path, CSV)
    assert ops(trace) == ops(whole)
    assert trace.ops.corr.tolist().count(-1) == whole.ops.corr.tolist().count(-1) + 1


@pytest.mark.parametrize(
    "line", ["=={}== Profiling result:", "==411== NVPROF is profiling process {}, command: a"]
)
def test_messages_with_thousands_of_digits_are_none(tmp_path: Path, line: str) -> None:
    lost = (
        "==411== Warning: {} records have invalid timestamps due to insufficient device buffer"
        " space."
    )
    made = read(tmp_path, "".join(f"{one.format('9' * 5000)}\n" for one in (line, lost)) + TEXT)
    assert ops(made) == ops(read(tmp_path, TEXT)) and made.origin.dropped == 2


def test_text(tmp_path: Path) -> None:
    trace = read(tmp_path, TEXT)
    assert ops(trace) == [
        (326_630_000, 328_308_200, "void init<double>(double*, double)"),
        (335_790_000, 335_791_760, "[CUDA memcpy DtoH]"),
        (1_182_120_000, 1_182_125_792, "[Unified Memory Memcpy HtoD]"),
        (1_200_000_000, 1_200_000_544, "[CUDA memset]"),
    ]
    assert trace.ops.kind.tolist() == [Kind.COMPUTE, Kind.D2H, Kind.OTHER, Kind.MEMSET]
    assert trace.ops.corr.tolist() == [128, -1, -1, -1] and trace.ops.stream.tolist() == [
        7,
        7,
        -1,
        13,
    ]
    assert trace.ops.bytes.tolist() == [-1, 2048, -1, 4] and trace.ops.pageable.tolist() == [
        -1,
        1,
        -1,
        -1,
    ]
    assert [(device.name, device.ordinal) for device in trace.devices] == [
        ("TITAN Xp", 0),
        ("TITAN Xp", 1),
    ]
    assert [(process.pid, process.name) for process in trace.processes] == [
        (411, "python train.py")
    ]
    assert not trace.origin.host_calls and trace.origin.dropped == 2
    assert "rounded to 10 us" in trace.origin.notes[1]


def test_csv(tmp_path: Path) -> None:
    trace = read(tmp_path, CSV)
    assert ops(trace) == [
        (326_630_123, 328_308_323, 'void init<double>(double*, "x")'),
        (335_790_000, 335_791_760, "[CUDA memcpy HtoD]"),
    ]
    assert trace.ops.corr.tolist() == [128, 135] and trace.ops.pageable.tolist() == [-1, 0]
    assert trace.devices[0].name == "Tesla V100-SXM2-16GB"
    assert trace.origin.notes == (
        "2 records have no valid times; raise nvprof's --device-buffer-size",
    )


def test_columns_by_name(tmp_path: Path) -> None:
    """In another order, without most, and in other units."""
    rows = (
        'Duration,Name,Stream,Device,Start\nStart,Duration,Name,Stream,Device\nms,ns,,,\n5,10,"k",3,"G'
        ' (2)"\n'
    )
    trace = read(tmp_path, rows)
    assert ops(trace) == [(5_000_000, 5_000_010, "k")] and trace.devices[0].ordinal == 2


def test_calls(tmp_path: Path) -> None:
    trace = read(tmp_path, CALLS)
    calls = trace.calls
    assert [trace.name(name) for name in calls.name] == ["cudaLaunchKernel", "cudaMemcpyAsync"]
    assert calls.start.tolist() == [326_620_001, 330_000_000] and calls.end.tolist() == [
        326_625_501,
        330_001_000,
    ]
    assert calls.corr.tolist() == [128, 135] and trace.origin.host_calls
    ranges = trace.ranges
    assert [
        (
            trace.name(int(ranges.name[0])),
            int(ranges.start[0]),
            int(ranges.end[0]),
            int(ranges.kind[0]),
        )
    ] == [("epoch 1", 327_000_000, 327_500_000, RangeKind.NVTX)]
    assert "no device activity" in trace.origin.notes[-1]


def test_both_in_one(tmp_path: Path) -> None:
    """--print-gpu-trace --print-api-trace: calls have no device; two processes follow each
    other.
    """
    call = "500.0us  1.0000us  " + "-  " * 12 + "cudaLaunch (k [7])\n"
    text = TEXT.replace("335.79ms", call + "335.79ms")
    again = TEXT.replace("411", "412")
    trace = read(tmp_path, text + again)
    assert [process.pid for process in trace.processes] == [411, 412]
    assert trace.ops.process.tolist() == [0] * 4 + [1] * 4
    assert [trace.name(name) for name in trace.calls.name] == [
        "cudaLaunch"
    ] and trace.calls.corr.tolist() == [7]


def test_lines_that_make_no_sense(tmp_path: Path) -> None:
    kernel = ',5,,,,,,"V (0)","1","7","k",1\n'
    trace = read(tmp_path, f'{CSV}loss 3.1\nx,y,"z\n1e99{kernel}0.400000{kernel}')
    assert len(trace.ops.start) == 3
    assert "3 lines among the rows are invalid and are skipped" in trace.origin.notes


ACTIVITIES = "            Type  Time(%)      Time     Calls       Avg       Min       Max  Name\n"
ACTIVITIES += " GPU activities:  100.00%  1.2ms         1     1.2ms     1.2ms     1.2ms  k\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "==4== NVPROF is profiling process 4, command: a\n==4== Profiling result:\n"
            + ACTIVITIES,
            "a summary",
        ),
        (
            '==4== Profiling result:\n"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n',
            "a summary",
        ),
        ("==4== NVPROF is profiling process 4, command: a\n", "no trace that nvprof printed"),
    ],
)
def test_refusals(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "printed").write_text(text)
    with pytest.raises(
        TraceError, match=f"printed is {what}.*record with nvprof --print-gpu-trace"
    ):
        nvprof_text.read(tmp_path / "printed")


def test_real_files(data: Path) -> None:
    """Against what grep and awk count in them."""
    folder = data / "traces" / "nvprof"
    if not folder.is_dir():
        pytest.skip(f"no {folder}; set FASTFEED_TEST_DATA to the folder that holds traces/")
    for path in sorted(folder.glob("*.txt")):
        trace = nvprof_text.read(path)
        rows = [line.split() for line in path.read_text().splitlines() if line[:1].isdigit()]
        timed = [row for row in rows if row[1] != "-" and "faults]" not in row]
        assert len(timed) > 10 and len(trace.ops.start) == len(timed)
        assert trace.ops.kind.tolist().count(Kind.D2H) == sum(
            row[-2:] == ["memcpy", "DtoH]"] for row in rows
        )
        scale = {"ns": 1, "us": 1e3, "ms": 1e6}
        spent = sum(float(row[1][:-2]) * scale[row[1][-2:]] for row in timed)
        assert int((trace.ops.end - trace.ops.start).sum()) == round(spent)
