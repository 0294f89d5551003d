"""Turns rows of events into columns, by the categories of every writer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.profiler.model.kernel_names import kernel_kind, strip_version
from fastfeed.profiler.model.trace import Kind, Strings
from fastfeed.profiler.readers.chrome.args import (
    DEVICE_ARGS,
    collective,
    correlation,
    number,
    parse_copy,
    parse_launch,
    parse_size,
    parsed,
    printable,
    step_name,
    unquoted,
)
from fastfeed.profiler.readers.chrome.lenient_json import loads

_MAX_CATEGORIES = 10_000  # writers have some dozens
# lower case; other categories are recognized by their process (JAX, TensorFlow) or thread
CATEGORIES = {
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "memcpy": "copy",
    "gpu_memcpy": "copy",
    "memset": "memset",
    "gpu_memset": "memset",
    "runtime": "call",
    "cuda_runtime": "call",
    "driver": "call",
    "cuda_driver": "call",
    "hip_runtime": "call",
    "hip_driver": "call",
    "xpu_runtime": "call",
    "xpu_driver": "call",
    "privateuse1_runtime": "call",
    "privateuse1_driver": "call",
    "operator": "op",
    "cpu_op": "op",
    "op": "op",
    "python_function": "python",
    "python": "python",
    "user_annotation": "annotation",
    "nvtx": "annotation",
    "overhead": "overhead",
    "cuda_sync": "sync",
    "gpu_user_annotation": "",
    "trace": "",
    "cuda_profiler_range": "",
    "cpu_instant_event": "",
    "cuda_event": "",
    "xpu_scope_profiler": "",
}
# of category "overhead"; other rows there are the driver's work for the program: compiling, loading
# a module
OWN_OVERHEAD = re.compile(
    r"buffer flush|buffer request|instrumentation|resource|uvm activity init|profil", re.I
)

FAMILIES_OF_DEVICE = {"kernel": 0, "copy": 1, "memset": 2}


def event_family(cat: bytes) -> str:
    """Family of a category's events: a value of CATEGORIES, or `uncategorized`."""
    return CATEGORIES.get(cat.decode("utf-8", "replace").lower(), "uncategorized")


class NameIndex(dict[Any, int]):
    """JSON text between quotes, or a parsed text, to its index in `strings`."""

    def __init__(self, strings: Strings, calls: bool = False) -> None:
        super().__init__()
        self._strings = strings
        self._calls = calls

    def __missing__(self, text: Any) -> int:
        name = text
        if isinstance(text, bytes):
            name = text.decode("utf-8", "replace")
            if "\\" in name:
                with suppress(ValueError):  # an escape that JSON does not have
                    name = json.loads(f'"{name}"', strict=False)
        name = printable(name)
        index = self[text] = self._strings[strip_version(name) if self._calls else name]
        return index


class PairIndex(dict[Any, int]):
    """Text like b'"pid": 1, "tid": 2', or a tuple, to an index in `all`, the distinct pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[Any, Any]] = []
        self._index: dict[tuple[Any, Any], int] = {}

    def __missing__(self, key: Any) -> int:
        values = key
        if isinstance(key, bytes):
            try:
                fields = loads(b"{%b}" % key)
                values = (
                    [fields["pid"], fields["tid"]]
                    if {"pid", "tid"} <= fields.keys()
                    else list(fields.values())
                )
            except ValueError:
                values = re.findall(r":\s*(-?\d{1,18})", key.decode("utf-8", "replace"))
        thread_key = (
            (unquoted(values[0]), unquoted(values[-1])) if len(values) > 1 else (str(key), -1)
        )
        if thread_key not in self._index:
            self._index[thread_key] = len(self.all)
            self.all.append(thread_key)
        index = self[key] = self._index[thread_key]
        return index


class ColumnBuilder:
    """Columns that grow by pieces: `add(start=..., corr=-1)`; `take("start")` removes a column."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[np.ndarray]] = {}
        self.rows = 0

    def add(self, start: np.ndarray, **more: Any) -> None:
        for name, column in (more | {"start": start}).items():
            self._pieces.setdefault(name, []).append(np.broadcast_to(column, start.shape))
        self.rows += len(start)

    def pieces(self, name: str) -> list[np.ndarray]:
        return self._pieces.get(name, [])

    def take(self, name: str) -> np.ndarray:
        """Take a column; empty if it has no rows or was taken before."""
        pieces = self._pieces.pop(name, ())
        return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


class EventTable:
    """Rows of events by kind: device work, calls, other host ranges, waits of streams, unknown."""

    def __init__(self) -> None:
        self.strings = Strings()
        self.names = NameIndex(self.strings)
        self.calls_names = NameIndex(self.strings, calls=True)
        self.thread_keys = PairIndex()  # (pid, tid)
        self.stream_keys = PairIndex()  # (device, stream)
        self.device, self.calls, self.ranges, self.waits, self.uncategorized = (
            ColumnBuilder() for _ in range(5)
        )
        self.categories: dict[bytes, int] = {}  # how many rows of each
        self.invalid_times = 0  # rows whose times are not numbers
        self.impossible_times = 0  # rows whose times int64 nanoseconds cannot hold
        self.negative = 0
        self.last = 0  # nanoseconds, the end of the latest
        self._kinds: dict[int, int] = {}

    def add(self, groups: Mapping[bytes, list[Any]]) -> None:
        """Rows by category, as `EventStream` yields them."""
        for cat, group in groups.items():
            self.count(cat, len(group))
            family = event_family(cat)
            if family:
                self._group(cat, family, group)

    def count(self, cat: bytes, rows: int) -> None:
        """Count rows; TraceError for more categories than kinds of events."""
        self.categories[cat] = self.categories.get(cat, 0) + rows
        if len(self.categories) > _MAX_CATEGORIES:
            raise TraceError(
                f"it has more than {_MAX_CATEGORIES:,} categories of events, this is not a trace;"
                " record it again"
            )

    @property
    def held(self) -> int:
        """Number of rows in memory."""
        return sum(
            part.rows
            for part in (self.device, self.calls, self.ranges, self.waits, self.uncategorized)
        )

    def _group(self, cat: bytes, family: str, rows: list[Any]) -> None:
        start, end, ok = spans([row[3] for row in rows], [row[4] for row in rows])
        if not ok.all():
            impossible = sum(
                is_number(rows[at][3]) and is_number(rows[at][4])
                for at in np.flatnonzero(~ok).tolist()
            )
            self.impossible_times += impossible
            self.invalid_times += int((~ok).sum()) - impossible
            rows = [row for row, fine in zip(rows, ok, strict=True) if fine]
            start = start[ok]
            end = end[ok]
        self.negative += int((end < start).sum())
        names, thread_keys, args = ([row[at] for row in rows] for at in (1, 2, 5))
        thread_key = _ints(map(self.thread_keys.__getitem__, thread_keys), np.int32)
        columns: dict[str, Any] = {
            "start": start,
            "end": np.maximum(start, end),
            "thread_key": thread_key,
        }
        if family == "uncategorized":
            names = [step_name(name, arg) for name, arg in zip(names, args, strict=True)]
        index = self.calls_names if family == "call" else self.names
        columns["name"] = _ints(map(index.__getitem__, names), np.int32)
        if family in ("call", "uncategorized"):
            columns["corr"] = _ints(map(correlation, args))
        elif family in FAMILIES_OF_DEVICE:
            keys = [
                self.find_stream(arg, at) for arg, at in zip(args, thread_key.tolist(), strict=True)
            ]
            columns["stream_key"] = _ints((key for key, _ in keys), np.int32)
            columns["corr"] = _ints(launch for _, launch in keys)
            columns["bytes"] = _ints(map(parse_size, args))
        self.add_columns(cat, family, columns, args)

    def add_columns(
        self, cat: bytes, family: str, columns: dict[str, Any], args: Sequence[Any]
    ) -> None:
        """Add rows of one category.

        Columns are start, end, thread_key and name; for calls and uncategorized events also corr;
        for device work also stream_key, corr and bytes. `args` are read for the families that
        record more than these.
        """
        self.last = max(self.last, int(columns["end"].max(initial=0)))
        if family == "call":
            self.calls.add(**columns)
        elif family in FAMILIES_OF_DEVICE:
            self._device(family, columns, args)
        elif family == "sync":
            self._waits(columns, args)
        elif family == "uncategorized":
            copies = [parse_copy(arg) for arg in args]
            self.uncategorized.add(
                **columns,
                cat=np.int32(self.names[cat]),
                bytes=_ints(size for size, _ in copies),
                pageable=_ints((paged for _, paged in copies), np.int8),
            )
        else:
            self.ranges.add(**columns, cat=np.int32(self.names[cat]))

    def find_stream(self, args: Any, thread_key: int) -> tuple[int, int]:
        """(index of the stream, correlation) of device work."""
        match = DEVICE_ARGS.search(args) if args.__class__ is bytes else None
        if match:
            return self.stream_keys[match[1]], int(match[2])
        stream_key, launch = parse_launch(parsed(args), self.thread_keys.all[thread_key])
        return self.stream_keys[stream_key], launch

    def _device(self, family: str, columns: dict[str, Any], args: Sequence[Any]) -> None:
        count = len(columns["start"])
        columns |= {"what": np.uint8(FAMILIES_OF_DEVICE[family]), "pageable": np.int8(-1)}
        columns |= {"group": np.full(count, -1, np.int32), "seq": np.full(count, -1)}
        if family == "kernel":
            columns["bytes"] = np.full(count, -1)
            for at in np.flatnonzero(self._is_comm(columns["name"])).tolist():
                group, columns["seq"][at], columns["bytes"][at] = collective(parsed(args[at]))
                columns["group"][at] = self.names[group] if group else -1
        self.device.add(**columns)

    def _is_comm(self, names: np.ndarray) -> np.ndarray:
        values, where = np.unique(names, return_inverse=True)
        for name in set(values.tolist()) - self._kinds.keys():
            self._kinds[name] = kernel_kind(self.strings.all[name])
        return (_ints(map(self._kinds.__getitem__, values.tolist())) == Kind.COMM)[where]

    def _waits(self, columns: dict[str, Any], args: Sequence[Any]) -> None:
        for at, arg in enumerate(map(parsed, args)):
            if (
                "wait"
                not in f"{self.strings.all[columns['name'][at]]}{arg.get('cuda_sync_kind')}".lower()
            ):
                continue  # the host waits: its call says so too
            keys = ("correlation", "stream", "wait_on_stream", "wait_on_cuda_event_record_corr_id")
            corr, stream, on_stream, on_corr = (number(arg.get(key), -1) for key in keys)
            row = {"corr": corr, "stream": stream, "on_stream": on_stream, "on_corr": on_corr}
            self.waits.add(
                columns["start"][at : at + 1],
                **{key: np.int64(value) for key, value in row.items()},
            )


def _ints(values: Any, dtype: Any = np.int64) -> np.ndarray:
    return np.fromiter(values, dtype)


_WIDEST = 32  # characters; longer texts are rare and take the slow way


_MAX_US = 9_000_000_000_000_000  # microseconds that fit int64 nanoseconds: the year 2255


def spans(ts: Sequence[bytes], dur: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(start, end, ok): int64 nanoseconds and bool, each shape (n,).

    Not ok is what is not a number, or out of range.

    Picoseconds are added before they are rounded, so events that touch in the file touch here.
    """
    whole, part, ok = _microseconds(ts)
    duration, duration_part, duration_ok = _microseconds(dur)
    return (
        whole * 1000 + (part + 500) // 1000,
        (whole + duration) * 1000 + (part + duration_part + 500) // 1000,
        ok & duration_ok,
    )


def is_number(text: bytes) -> bool:
    """True for the text of a finite number, however large."""
    try:
        return Decimal(text.decode("ascii")).is_finite()
    except (InvalidOperation, UnicodeDecodeError):
        return False


def _microseconds(texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whole microseconds, and the picoseconds after them."""
    raw = np.array(texts, "S")
    if raw.itemsize > _WIDEST:
        raw = raw.astype(f"S{_WIDEST}")
    characters = np.ascontiguousarray(raw.view(np.uint8).reshape(len(raw), -1).T)
    whole, part, places = (np.zeros(len(raw), np.int64) for _ in range(3))
    after = np.zeros(len(raw), bool)
    slow = (characters[-1] != 0) if len(characters) == _WIDEST else np.zeros(len(raw), bool)
    slow |= characters[0] == 0
    for column in characters:
        digit = column - np.uint8(48)  # of anything but a digit this is 10 or more
        number = digit < 10
        if number.all() and not after.any():
            whole = whole * 10 + digit
            continue
        dot = column == 46
        slow |= ~(number | dot | (column == 0)) | (dot & after)
        whole = np.where(number & ~after, whole * 10 + digit, whole)
        is_fraction = number & after & (places < 6)
        part = np.where(is_fraction, part * 10 + digit, part)
        places += is_fraction
        after |= dot
    part *= 10 ** (6 - places)
    slow |= (whole < 0) | (whole > _MAX_US)
    ok = np.ones(len(raw), bool)
    for at in np.flatnonzero(slow).tolist():
        value = _parse_decimal(texts[at])
        ok[at] = value is not None
        whole[at], part[at] = value or (0, 0)
    return whole, part, ok


def _parse_decimal(text: bytes) -> tuple[int, int] | None:
    try:
        value = Decimal(text.decode("ascii"))
        if not value.is_finite() or abs(value) > _MAX_US:
            return None
        whole = int(value // 1) - (value < 0 and value % 1 != 0)
        return whole, int((value - whole) * 1_000_000)
    except (InvalidOperation, UnicodeDecodeError):
        return None
