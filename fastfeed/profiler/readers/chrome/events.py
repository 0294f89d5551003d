"""What the categories of every writer mean, and rows of events as columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fastfeed.profiler.model.kernel_names import kernel_kind, strip_version
from fastfeed.profiler.model.trace import Kind, Strings
from fastfeed.profiler.readers.chrome import times as chrome_times
from fastfeed.profiler.readers.chrome.args import (
    PLACED,
    collective,
    copy_of,
    correlation,
    number,
    numbered,
    parsed,
    placed,
    printable,
    size_of,
    whole,
)
from fastfeed.profiler.readers.chrome.stream import loads

__all__ = ["CATEGORIES", "OWN_OVERHEAD", "Columns", "Events", "Names", "Places"]

# lower case; what is not here is told by its process (JAX, TensorFlow) or thread
CATEGORIES = {
    "kernel": "kernel", "concurrent_kernel": "kernel",
    "memcpy": "copy", "gpu_memcpy": "copy",
    "memset": "memset", "gpu_memset": "memset",
    "runtime": "call", "cuda_runtime": "call", "driver": "call", "cuda_driver": "call", "hip_runtime": "call",
    "hip_driver": "call", "xpu_runtime": "call", "xpu_driver": "call",
    "privateuse1_runtime": "call", "privateuse1_driver": "call",
    "operator": "op", "cpu_op": "op", "op": "op",
    "python_function": "python", "python": "python",
    "user_annotation": "range_kind", "nvtx": "range_kind",
    "overhead": "overhead",
    "cuda_sync": "sync",
    "gpu_user_annotation": "", "trace": "", "cuda_profiler_range": "", "cpu_instant_event": "",
}  # fmt: skip
# of category "overhead"; other rows there are the driver's work for the program: compiling, loading a module
OWN_OVERHEAD = re.compile(r"buffer flush|buffer request|instrumentation|resource|uvm activity init|profil", re.I)

_DEVICE = {"kernel": 0, "copy": 1, "memset": 2}


class Names(dict[Any, int]):
    """JSON text between quotes, or a parsed text, to its index in `strings`."""

    def __init__(self, strings: Strings, calls: bool = False) -> None:
        super().__init__()
        self._strings, self._calls = strings, calls

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


class Places(dict[Any, int]):
    """Text like b'"pid": 1, "tid": 2', or a tuple, to an index in `all`: pairs of its first and last, each once."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[Any, Any]] = []
        self._index: dict[tuple[Any, Any], int] = {}

    def __missing__(self, key: Any) -> int:
        values = key
        if isinstance(key, bytes):
            try:
                said = loads(b"{%b}" % key)
                values = [said["pid"], said["tid"]] if "pid" in said and "tid" in said else list(said.values())
            except ValueError:
                values = re.findall(r":\s*(-?\d{1,18})", key.decode("utf-8", "replace"))
        place = (whole(values[0]), whole(values[-1])) if len(values) > 1 else (str(key), -1)
        if place not in self._index:
            self._index[place] = len(self.all)
            self.all.append(place)
        index = self[key] = self._index[place]
        return index


class Columns:
    """Grows by pieces: `add(start=..., corr=-1)`; `take("start")` is the whole column, and forgets its pieces."""

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
        """Empty where there are no rows, or where it was taken before."""
        pieces = self._pieces.pop(name, ())
        return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


class Events:
    """Rows of events by what they are: device work, calls, other host ranges, waits of streams, and unknown ones."""

    def __init__(self) -> None:
        self.strings = Strings()
        self.names = Names(self.strings)
        self.calls_names = Names(self.strings, calls=True)
        self.places = Places()  # (pid, tid)
        self.spots = Places()  # (device, stream)
        self.device, self.calls, self.ranges, self.waits, self.loose = (Columns() for _ in range(5))
        self.categories: dict[bytes, int] = {}  # how many rows of each
        self.bad = 0  # rows whose time is no number
        self.negative = 0
        self.last = 0  # nanoseconds, the end of the latest
        self._kinds: dict[int, int] = {}

    def add(self, groups: Mapping[bytes, list[Any]]) -> None:
        """Rows by category, as chrome_stream makes them."""
        for cat, group in groups.items():
            self.categories[cat] = self.categories.get(cat, 0) + len(group)
            family = CATEGORIES.get(cat.decode("utf-8", "replace").lower(), "loose")
            if family:
                self._group(cat, family, group)

    def _group(self, cat: bytes, family: str, rows: list[Any]) -> None:
        start, end, ok = chrome_times.spans([row[3] for row in rows], [row[4] for row in rows])
        if not ok.all():
            self.bad += int((~ok).sum())
            rows = [row for row, fine in zip(rows, ok, strict=True) if fine]
            start, end = start[ok], end[ok]
        self.negative += int((end < start).sum())
        names, places, args = ([row[at] for row in rows] for at in (1, 2, 5))
        columns: dict[str, Any] = {"start": start, "end": np.maximum(start, end)}
        self.last = max(self.last, int(columns["end"].max(initial=0)))
        columns["place"] = _ints(map(self.places.__getitem__, places), np.int32)
        if family == "call":
            columns["name"] = _ints(map(self.calls_names.__getitem__, names), np.int32)
            self.calls.add(**columns, corr=_ints(map(correlation, args)))
            return
        if family == "loose":
            names = [numbered(name, one) for name, one in zip(names, args, strict=True)]
        columns["name"] = _ints(map(self.names.__getitem__, names), np.int32)
        if family in _DEVICE:
            self._device(family, columns, args)
        elif family == "sync":
            self._waits(columns, args)
        elif family == "loose":
            copies = [copy_of(one) for one in args]
            self.loose.add(
                **columns, cat=np.int32(self.names[cat]), corr=_ints(map(correlation, args)),
                bytes=_ints(size for size, _ in copies), pageable=_ints((paged for _, paged in copies), np.int8),
            )  # fmt: skip
        else:
            self.ranges.add(**columns, cat=np.int32(self.names[cat]))

    def _device(self, family: str, columns: dict[str, Any], args: Sequence[Any]) -> None:
        spots, corr, rest = self.spots, [], []
        for one, place in zip(args, columns["place"], strict=True):
            found = PLACED.search(one) if one.__class__ is bytes else None
            if found:
                rest.append(spots[found[1]])
                corr.append(int(found[2]))
            else:
                spot, launch = placed(parsed(one), self.places.all[place])
                rest.append(spots[spot])
                corr.append(launch)
        columns |= {"spot": _ints(rest, np.int32), "corr": _ints(corr)}
        columns |= {
            "what": np.uint8(_DEVICE[family]),
            "pageable": np.int8(-1),
            "group": np.int32(-1),
            "seq": np.int64(-1),
        }
        if family != "kernel":
            self.device.add(**columns, bytes=_ints(map(size_of, args)))
            return
        count = len(columns["start"])
        columns |= {"bytes": np.full(count, -1), "group": np.full(count, -1, np.int32), "seq": np.full(count, -1)}
        for at in np.flatnonzero(self._is_comm(columns["name"])):
            group, columns["seq"][at], columns["bytes"][at] = collective(parsed(args[int(at)]))
            columns["group"][at] = self.names[group] if group else -1
        self.device.add(**columns)

    def _is_comm(self, names: np.ndarray) -> np.ndarray:
        kinds = self._kinds
        for name in set(names.tolist()) - kinds.keys():
            kinds[name] = kernel_kind(self.strings.all[name])
        return _ints(map(kinds.__getitem__, names.tolist())) == Kind.COMM

    def _waits(self, columns: dict[str, Any], args: Sequence[Any]) -> None:
        for at, one in enumerate(map(parsed, args)):
            if "wait" not in f"{self.strings.all[columns['name'][at]]}{one.get('cuda_sync_kind')}".lower():
                continue  # the host waits: its call says so too
            keys = ("correlation", "stream", "wait_on_stream", "wait_on_cuda_event_record_corr_id")
            corr, stream, on_stream, on_corr = (number(one.get(key), -1) for key in keys)
            row = {"corr": corr, "stream": stream, "on_stream": on_stream, "on_corr": on_corr}
            self.waits.add(columns["start"][at : at + 1], **{key: np.int64(value) for key, value in row.items()})


def _ints(values: Any, dtype: Any = np.int64) -> np.ndarray:
    return np.fromiter(values, dtype)
