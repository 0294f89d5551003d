"""Reads the printed output of nvprof's --print-gpu-trace or --print-api-trace, text or --csv.

Columns are found by name. A CSV has a row of units below its header; in the text each value has its
own. Start times of the text have five digits, so they may be rounded to microseconds: a note says
so. The output of the program may be mixed in. A GPU trace has no calls of the host; `merge.combine`
joins it with the API trace of the same recording.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
)
from fastfeed.profiler.readers import decompress, limits
from fastfeed.profiler.readers.nvprof.reader import columns_of

_OPS = ("start", "end", "device", "process", "stream", "kind", "name", "corr", "bytes", "pageable")

_SCALES = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_VALUE = re.compile(r"(\d{1,30}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,3})?)\s*([A-Za-z]*)")
# ==4242== Warning: ..., ======== Profiling result:
_MESSAGE = re.compile(r"={2,}(?:(\d{1,18})==|={2,})\s*(.*)")
_HEADERS = re.compile(
    rb'^(={2}\d+== (NVPROF|Profiling)|={8} (NVPROF|Profiling result)|"?Start"?\s*,\s*"?Duration"?,'
    rb"|\s*Start\s{2,}Duration\s{2,})",
    re.MULTILINE,
)
_COMMAND = re.compile(r"NVPROF is profiling process (\d{1,18}), command: (.*)")
_LOST = re.compile(r"Warning: (\d{1,18}) records have invalid timestamps")
_CORR = re.compile(r" \[(\d+)\]\)?$")
_CALL = re.compile(r"cu(?:da)?[A-Z]\w*")
_MARKER = re.compile(r"\[(Range start|Range end|Marker)\] (.*)")
_ROUNDED_NS = 1_000  # start times that are rounded more than this are worth a note
_MAX_NS = 1 << 58


@dataclass(slots=True)
class _PrintedTables:
    """The rows read so far."""

    pid: int = 0
    commands: dict[int, str] = field(default_factory=dict)
    lost: int = 0
    skipped: int = 0
    tables: int = 0
    summary: bool = False
    resolution: int = 0  # ns
    columns: list[str] = field(default_factory=list)  # of the current table
    units: dict[str, str] = field(default_factory=dict)  # of a CSV
    is_csv: bool = False
    after_header: bool = False  # the next row may be the units
    ops: list[tuple[int, ...]] = field(default_factory=list)
    calls: list[tuple[int, ...]] = field(default_factory=list)
    ranges: list[tuple[int, ...]] = field(default_factory=list)
    open: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    strings: Strings = field(default_factory=Strings)
    devices: dict[str, int] = field(default_factory=dict)
    processes: dict[int, int] = field(default_factory=dict)


def knows(path: Path, head: bytes) -> bool:
    """True if the text has nvprof's banner or the header of one of its tables."""
    return _HEADERS.search(head) is not None


def read(path: Path) -> Trace:
    """The device ops of a GPU trace, the calls of an API trace, both where both were printed."""
    printed = _PrintedTables()
    with decompress.open_stream(path) as stream:
        for count, line in enumerate(decompress.lines(stream)):
            limits.check(path, count)
            _add_line(printed, line.decode("utf-8", "replace"))
        damage = stream.damage
    if not printed.tables:
        what = "no trace that nvprof printed"
        if printed.summary:
            what = "a summary of nvprof, which has no times"
        raise TraceError(
            f"{path} is {what}; record with nvprof --print-gpu-trace --csv, or -o FILE.nvprof"
        )
    notes = [damage] if damage else []
    incomplete = damage or (f"{printed.skipped} lines are invalid" if printed.skipped else "")
    if printed.lost:
        notes.append(
            f"{printed.lost} records have no valid times; raise nvprof's --device-buffer-size"
        )
    if printed.skipped:
        notes.append(f"{printed.skipped} lines among the rows are invalid and are skipped")
    if printed.resolution > _ROUNDED_NS:
        notes.append(
            f"start times are rounded to {printed.resolution / 1000:g} us, shorter gaps are not"
            " real; nvprof -o keeps them exact"
        )
    if not printed.ops:
        notes.append("no device activity is in this file")
    trace = _trace(path, printed, notes)
    return replace(trace, origin=replace(trace.origin, incomplete=incomplete))


def _add_line(printed: _PrintedTables, line: str) -> None:
    message = _MESSAGE.match(line)
    if message:
        _add_message(printed, message)
        return
    cells = _cells(printed, line)
    if cells[:2] == ["Start", "Duration"] and "Name" in cells:
        printed.columns = cells
        printed.units = {}
        printed.after_header = True
        printed.is_csv = "," in line
        printed.tables += 1
        printed.processes.setdefault(printed.pid, len(printed.processes))
    elif {"Time(%)", "Calls"} <= set(cells) or "Invocations" in cells:
        printed.summary = True
        printed.columns = []
    elif not line.strip() or not printed.columns:
        if not printed.is_csv:
            printed.columns = []  # a blank line ends a table of text
    elif printed.is_csv and printed.after_header and cells[0] in _SCALES:
        printed.units = dict(zip(printed.columns, cells, strict=False))
        printed.after_header = False
    else:
        printed.after_header = False
        _add_row(printed, dict(zip(printed.columns, cells, strict=False)))


def _add_message(printed: _PrintedTables, message: re.Match[str]) -> None:
    """A message of nvprof between its tables."""
    printed.pid = int(message[1]) % _MAX_NS if message[1] else printed.pid
    printed.columns = []
    if command := _COMMAND.match(message[2]):
        printed.commands[int(command[1]) % _MAX_NS] = command[2]
    if lost := _LOST.match(message[2]):
        printed.lost += int(lost[1])


def _cells(printed: _PrintedTables, line: str) -> list[str]:
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


def _add_row(printed: _PrintedTables, row: dict[str, str]) -> None:
    start = _ns(row, printed.units, "Start")
    end = _ns(row, printed.units, "Duration")
    name = row.get("Name", "")
    if start is None or not name:
        printed.skipped += 1
        return
    printed.resolution = max(
        printed.resolution, _resolution(row["Start"], printed.units.get("Start", ""))
    )
    process = printed.processes.setdefault(printed.pid, len(printed.processes))
    marker = _MARKER.match(name)
    if marker:
        _add_marker(printed, process, start, marker[1], marker[2])
    if end is None or marker:
        return  # a count of page faults
    end += start
    corr_suffix = _CORR.search(name)
    text = row.get("Correlation_ID", "") or row.get("Correlation ID", "")
    text = text or (corr_suffix[1] if corr_suffix else "")
    corr = int(text) % _MAX_NS if text.isascii() and text.isdigit() and len(text) < 20 else -1
    device = row.get("Device", "-")
    if device in ("", "-"):
        if call := _CALL.match(name):
            printed.calls.append(
                (start, end, process, printed.strings[strip_version(call[0])], corr)
            )
        return
    if name.startswith("[Unified Memory") and "emcpy" not in name:
        return
    name = name[: corr_suffix.start()] if corr_suffix else name
    kind = _kind(name)
    memory = row.get({Kind.H2D: "SrcMemType", Kind.D2H: "DstMemType"}.get(kind, ""), "")
    pageable = {"Pageable": 1, "Pinned": 0, "Managed": 0}.get(memory, -1)
    index = printed.devices.setdefault(device, len(printed.devices))
    stream = int(row["Stream"]) if re.fullmatch(r"\d{1,9}", row.get("Stream", "")) else -1
    column = "Unified Memory" if kind == Kind.OTHER else "Size"
    size = _size(row.get(column, ""), printed.units.get(column, ""))
    printed.ops.append(
        (start, end, index, process, stream, kind, printed.strings[name], corr, size, pageable)
    )


def _kind(name: str) -> Kind:
    if name.startswith("[Unified Memory"):
        return Kind.OTHER
    if name.startswith("[CUDA memset"):
        return Kind.MEMSET
    return copy_kind(name) if name.startswith("[CUDA memcpy") else kernel_kind(name)


def _add_marker(printed: _PrintedTables, process: int, time: int, event: str, text: str) -> None:
    """An NVTX range from two rows; of several with one name the innermost ends first."""
    text = text.split(" (Domain:")[0].strip(' "')
    starts = printed.open.setdefault((process, text), [])
    if event == "Range start":
        starts.append(time)
    elif event == "Range end" and starts:
        printed.ranges.append(
            (starts.pop(), time, process, printed.strings[text], range_kind(text))
        )


def _ns(row: dict[str, str], units: dict[str, str], column: str) -> int | None:
    """Exact nanoseconds of a column; None if it has no time."""
    match = _VALUE.fullmatch(row.get(column, ""))
    scale = _SCALES.get((match[2] or units.get(column, "")) if match else "")
    if not match or not scale:
        return None
    value = Decimal(match[1]) * scale
    return int(value.to_integral_value()) if value < _MAX_NS else None


def _resolution(text: str, unit: str) -> int:
    """Nanoseconds of the last printed digit."""
    match = _VALUE.fullmatch(text)
    if not match:
        return 0
    digits = len(match[1].partition(".")[2])
    return _SCALES.get(match[2] or unit, 0) // 10 ** min(digits, 12)


def _size(text: str, unit: str) -> int:
    match = _VALUE.fullmatch(text)
    if not match or (match[2] or unit) not in _BYTES:
        return -1
    size = Decimal(match[1]) * _BYTES[match[2] or unit]
    return int(size) if size < _MAX_NS else -1


def _trace(path: Path, printed: _PrintedTables, notes: Sequence[str]) -> Trace:
    ops = np.array(printed.ops, np.int64).reshape(-1, 10)
    calls = np.array(printed.calls, np.int64).reshape(-1, 5)
    ranges = np.array(printed.ranges, np.int64).reshape(-1, 5)
    has_host = len(calls) or len(ranges)
    devices = []
    for index, text in enumerate(printed.devices):
        match = re.fullmatch(r"(.*?)(?: \((\d{1,4})\)?)?(?: \($)?", text)
        ordinal = int(match[2]) if match and match[2] else index
        process = 0 if len(printed.processes) == 1 else -1
        devices.append(Device(ordinal, match[1] if match else text, process=process))
    return Trace(
        Origin(
            str(path), "nvprof", host_calls=len(calls) > 0, dropped=printed.lost, notes=tuple(notes)
        ),
        tuple(printed.strings.all),
        tuple(Process(pid, name=printed.commands.get(pid, "")) for pid in printed.processes),
        tuple(Thread(process, 0) for process in range(len(printed.processes))) if has_host else (),
        tuple(devices),
        columns_of(Ops, ops, _OPS),
        columns_of(Calls, calls, ("start", "end", "thread", "name", "corr")),
        columns_of(Ranges, ranges, ("start", "end", "thread", "name", "kind")),
    )
