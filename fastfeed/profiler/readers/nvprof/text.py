"""What nvprof prints with --print-gpu-trace or --print-api-trace, as text or with --csv.

Columns are found by name. A CSV has a row of units below its header; in the text each value has its own. Start times of
the text have five digits, so they may be rounded to microseconds: a note says so. The output of the program may be
mixed in. A GPU trace has no calls of the host; `merge.combine` joins it with the API trace of the same recording.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.profiler.model.kernel_names import copy_kind, kernel_kind, range_kind, strip_version
from fastfeed.profiler.model.trace import (
    Calls,
    Device,
    Kind,
    Ops,
    Origin,
    Process,
    Ranges,
    Strings,
    Thread,
    Trace,
    table,
)
from fastfeed.profiler.readers import decompress as opened

__all__ = ["knows", "read"]

_SCALES = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_VALUE = re.compile(r"(\d{1,30}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,3})?)\s*([A-Za-z]*)")
_SPOKE = re.compile(r"={2,}(?:(\d+)==|={2,})\s*(.*)")  # ==4242== Warning: ..., ======== Profiling result:
_KNOWN = re.compile(rb'^(={2}\d+== (NVPROF|Profiling)|={8} (NVPROF|Profiling result)|"?Start"?\s*,\s*"?Duration"?,'
                    rb"|\s*Start\s{2,}Duration\s{2,})", re.MULTILINE)  # fmt: skip
_CSV = re.compile(r'"?Start"?\s*,|"Type"|"Device"')  # the first column of a trace, a summary, metrics
_COMMAND = re.compile(r"NVPROF is profiling process (\d+), command: (.*)")
_LOST = re.compile(r"Warning: (\d+) records have invalid timestamps")
_CORR = re.compile(r" \[(\d+)\]\)?$")
_CALL = re.compile(r"cu(?:da)?[A-Z]\w*")
_MARK = re.compile(r"\[(Range start|Range end|Marker)\] (.*)")
_COARSE_NS = 1_000  # start times that are rounded more than this are worth a note
_MOST = 1 << 58


@dataclass(slots=True)
class _Printed:
    """What has been read so far."""

    pid: int = 0
    commands: dict[int, str] = field(default_factory=dict)
    lost: int = 0
    odd: int = 0
    tables: int = 0
    summary: bool = False
    coarse: int = 0  # ns
    columns: list[str] = field(default_factory=list)  # of the table at hand
    units: dict[str, str] = field(default_factory=dict)  # of a CSV
    is_csv: bool = False
    fresh: bool = False  # the next row may be the units
    ops: list[tuple[int, ...]] = field(default_factory=list)
    calls: list[tuple[int, ...]] = field(default_factory=list)
    ranges: list[tuple[int, ...]] = field(default_factory=list)
    open: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    strings: Strings = field(default_factory=Strings)
    devices: dict[str, int] = field(default_factory=dict)
    processes: dict[int, int] = field(default_factory=dict)


def knows(path: Path, head: bytes) -> bool:
    """Whether nvprof announces itself, or there is a table's header."""
    return _KNOWN.search(head) is not None


def read(path: Path) -> Trace:
    """The device ops of a GPU trace, the calls of an API trace, both where both were printed."""
    printed = _Printed()
    with opened.open_stream(path) as stream:
        for line in opened.lines(stream):
            _take(printed, line.decode("utf-8", "replace"))
        cut = stream.cut
    if not printed.tables:
        what = "a summary of nvprof, which has no times" if printed.summary else "no trace that nvprof printed"
        raise TraceError(f"{path} is {what}; record with nvprof --print-gpu-trace --csv, or -o FILE.nvprof")
    notes = [cut] if cut else []
    if printed.lost:
        notes.append(f"{printed.lost} records have no valid times; raise nvprof's --device-buffer-size")
    if printed.odd:
        notes.append(f"{printed.odd} lines among the rows make no sense and are skipped")
    if printed.coarse > _COARSE_NS:
        rounded = f"start times are rounded to {printed.coarse / 1000:g} us, shorter gaps are not real"
        notes.append(f"{rounded}; nvprof -o keeps them exact")
    if not printed.ops:
        notes.append("no device activity is in this file")
    return _trace(path, printed, notes)


def _take(printed: _Printed, line: str) -> None:
    spoke = _SPOKE.match(line)
    if spoke:
        _hear(printed, spoke)
        return
    cells = _cells(printed, line)
    if cells[:2] == ["Start", "Duration"] and "Name" in cells:
        printed.columns, printed.units, printed.fresh = cells, {}, True
        printed.is_csv = "," in line
        printed.tables += 1
        printed.processes.setdefault(printed.pid, len(printed.processes))
    elif {"Time(%)", "Calls"} <= set(cells) or "Invocations" in cells:
        printed.summary, printed.columns = True, []
    elif not line.strip() or not printed.columns:
        if not printed.is_csv:
            printed.columns = []  # a blank line ends a table of text
    elif printed.is_csv and printed.fresh and cells[0] in _SCALES:
        printed.units = dict(zip(printed.columns, cells, strict=False))
        printed.fresh = False
    else:
        printed.fresh = False
        _row(printed, dict(zip(printed.columns, cells, strict=False)))


def _hear(printed: _Printed, spoke: re.Match[str]) -> None:
    """What nvprof says between its tables."""
    printed.pid = int(spoke[1]) % _MOST if spoke[1] else printed.pid
    printed.columns = []
    if command := _COMMAND.match(spoke[2]):
        printed.commands[int(command[1]) % _MOST] = command[2]
    if lost := _LOST.match(spoke[2]):
        printed.lost += int(lost[1])


def _cells(printed: _Printed, line: str) -> list[str]:
    if (
        re.match(r'"?Start"?\s*,', line)
        or (printed.columns and printed.is_csv)
        or line.startswith(('"Type"', '"Device"'))
    ):
        try:
            return [cell.strip() for cell in next(csv.reader([line.strip()]), [""])]
        except csv.Error:  # a field of more than 128 KiB, or a NUL
            return [""]
    return re.split(r"\s{2,}", line.strip(), maxsplit=max(len(printed.columns) - 1, 0))


def _row(printed: _Printed, row: dict[str, str]) -> None:
    start, end = _ns(row, printed.units, "Start"), _ns(row, printed.units, "Duration")
    name = row.get("Name", "")
    if start is None or not name:
        printed.odd += 1
        return
    printed.coarse = max(printed.coarse, _step(row["Start"], printed.units.get("Start", "")))
    process = printed.processes.setdefault(printed.pid, len(printed.processes))
    mark = _MARK.match(name)
    if mark:
        _marked(printed, process, start, mark[1], mark[2])
    if end is None or mark:
        return  # a count of page faults and the like
    end += start
    given = _CORR.search(name)
    text = row.get("Correlation_ID", "") or row.get("Correlation ID", "") or (given[1] if given else "")
    corr = int(text) % _MOST if text.isascii() and text.isdigit() else -1
    device = row.get("Device", "-")
    if device in ("", "-"):
        if call := _CALL.match(name):
            printed.calls.append((start, end, process, printed.strings[strip_version(call[0])], corr))
        return
    if name.startswith("[Unified Memory") and "emcpy" not in name:
        return
    name = name[: given.start()] if given else name
    kind = _kind(name)
    side = row.get({Kind.H2D: "SrcMemType", Kind.D2H: "DstMemType"}.get(kind, ""), "")
    pageable = {"Pageable": 1, "Pinned": 0, "Managed": 0}.get(side, -1)
    index = printed.devices.setdefault(device, len(printed.devices))
    stream = int(row["Stream"]) if re.fullmatch(r"\d{1,9}", row.get("Stream", "")) else -1
    column = "Unified Memory" if kind == Kind.OTHER else "Size"
    size = _size(row.get(column, ""), printed.units.get(column, ""))
    printed.ops.append((start, end, index, process, stream, kind, printed.strings[name], corr, size, pageable))


def _kind(name: str) -> Kind:
    if name.startswith("[Unified Memory"):
        return Kind.OTHER
    if name.startswith("[CUDA memset"):
        return Kind.MEMSET
    return copy_kind(name) if name.startswith("[CUDA memcpy") else kernel_kind(name)


def _marked(printed: _Printed, process: int, at: int, what: str, text: str) -> None:
    """An NVTX range: its start and its end are rows of their own, and the innermost of a name ends first."""
    text = text.split(" (Domain:")[0].strip(' "')
    opened_at = printed.open.setdefault((process, text), [])
    if what == "Range start":
        opened_at.append(at)
    elif what == "Range end" and opened_at:
        printed.ranges.append((opened_at.pop(), at, process, printed.strings[text], range_kind(text)))


def _ns(row: dict[str, str], units: dict[str, str], column: str) -> int | None:
    """Nanoseconds, exactly; None where there is no time."""
    found = _VALUE.fullmatch(row.get(column, ""))
    scale = _SCALES.get((found[2] or units.get(column, "")) if found else "")
    if not found or not scale:
        return None
    value = Decimal(found[1]) * scale
    return int(value.to_integral_value()) if value < _MOST else None


def _step(text: str, unit: str) -> int:
    """Nanoseconds of the last digit that is printed."""
    found = _VALUE.fullmatch(text)
    if not found:
        return 0
    digits = len(found[1].partition(".")[2])
    return _SCALES.get(found[2] or unit, 0) // 10 ** min(digits, 12)


def _size(text: str, unit: str) -> int:
    found = _VALUE.fullmatch(text)
    if not found or (found[2] or unit) not in _BYTES:
        return -1
    size = Decimal(found[1]) * _BYTES[found[2] or unit]
    return int(size) if size < _MOST else -1


def _trace(path: Path, printed: _Printed, notes: Sequence[str]) -> Trace:
    ops = np.array(printed.ops, np.int64).reshape(-1, 10)
    calls = np.array(printed.calls, np.int64).reshape(-1, 5)
    ranges = np.array(printed.ranges, np.int64).reshape(-1, 5)
    used = len(calls) or len(ranges)
    devices = []
    for index, text in enumerate(printed.devices):
        named = re.fullmatch(r"(.*?)(?: \((\d{1,4})\)?)?(?: \($)?", text)
        ordinal = int(named[2]) if named and named[2] else index
        devices.append(Device(ordinal, named[1] if named else text, process=0 if len(printed.processes) == 1 else -1))
    return Trace(
        Origin(str(path), "nvprof", host_calls=len(calls) > 0, dropped=printed.lost, notes=tuple(notes)),
        tuple(printed.strings.all),
        tuple(Process(pid, name=printed.commands.get(pid, "")) for pid in printed.processes),
        tuple(Thread(process, 0) for process in range(len(printed.processes))) if used else (),
        tuple(devices),
        table(
            Ops, start=ops[:, 0], end=ops[:, 1], device=ops[:, 2], process=ops[:, 3], stream=ops[:, 4], kind=ops[:, 5],
            name=ops[:, 6], corr=ops[:, 7], bytes=ops[:, 8], pageable=ops[:, 9],
        ),
        table(
            Calls, start=calls[:, 0], end=calls[:, 1], thread=calls[:, 2], name=calls[:, 3], corr=calls[:, 4],
        ),
        table(
            Ranges, start=ranges[:, 0], end=ranges[:, 1], thread=ranges[:, 2], name=ranges[:, 3], kind=ranges[:, 4],
        ),
    )  # fmt: skip
