"""Chrome trace JSON: Kineto (torch.profiler) of every age, on NVIDIA and AMD, and trace.json.gz of JAX and TensorFlow.

chrome_stream  bytes -> rows of events
chrome_times   decimal microseconds -> integer nanoseconds
chrome_events  rows -> columns; what each category means
chrome_hosts   which pid is a process, which a GPU
chrome_jax     events without category
chrome_tables  columns -> tables
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from fastfeed.errors import TraceError
from fastfeed.profiler.model.trace import Device, Origin, Trace
from fastfeed.profiler.readers import decompress
from fastfeed.profiler.readers.chrome import hosts as chrome_hosts
from fastfeed.profiler.readers.chrome import jax as chrome_jax
from fastfeed.profiler.readers.chrome import tables as chrome_tables
from fastfeed.profiler.readers.chrome.args import STEP, printable, whole
from fastfeed.profiler.readers.chrome.events import Events
from fastfeed.profiler.readers.chrome.stream import BEGIN, Stream

__all__ = ["knows", "read"]

_EPOCH = 10**15 * 1000  # nanoseconds; a clock that shows more than the year 2001 counts from 1970
_KEYS = re.compile(  # where so much is before the events that they are not in the head
    rb'"(schemaVersion|deviceProperties|displayTimeUnit|baseTimeNanoseconds|distributedInfo|record_shapes|with_stack|'
    rb'with_flops|with_modules|profile_memory|traceName|trace_id|\w+_runtime_version|\w+_driver_version)"\s*:'
)
_ABOUT = ("world_size", "backend", "nccl_version")


def knows(path: Path, head: bytes) -> bool:
    begin = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if begin.startswith(b"["):
        return re.match(rb"\[\s*\{", begin) is not None and re.search(rb'"ph"\s*:\s*"', begin) is not None
    return begin.startswith(b"{") and (BEGIN.search(begin) is not None or len(_KEYS.findall(begin)) > 1)


def read(path: Path) -> Trace:
    """The trace in a file. Its content may have any of the compressions that `opened` knows."""
    events = Events()
    with decompress.open_stream(path) as source:
        stream = Stream(source)
        try:
            for groups in stream:
                events.add(groups)
        except TraceError as error:
            raise TraceError(f"{path}: {error}") from None
    last = Decimal(events.last) / 1000
    for row in stream.open:
        events.add({row.cat: [row._replace(dur=_until(last, row.ts))]})
    names = chrome_hosts.meta(stream.meta)
    exported = chrome_jax.devices(names)
    total = sum(events.categories.values())
    if exported:
        chrome_jax.sort_out(events, names)
    elif not (events.device.rows or events.calls.rows or events.ranges.rows or events.waits.rows):
        raise TraceError(f"{path} {_nothing(events, stream)}")
    return _trace(path, events, stream, names, exported, total)


def _trace(
    path: Path, events: Events, stream: Stream, names: chrome_hosts.Meta, exported: tuple[str, ...], total: int
) -> Trace:
    about = stream.about
    distributed = about.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    host = about.get("host_name") or about.get("hostname") or ""
    hosts = chrome_hosts.hosts(
        events.places.all, chrome_tables.counts(events, "calls"), chrome_tables.counts(events, "ranges"), names,
        printable(host), _integer(distributed.get("rank")),
    )  # fmt: skip
    calls = chrome_tables.calls(events, hosts)
    ops, ordinals, twice = chrome_tables.ops(events, hosts, calls)
    ranges, overheads = chrome_tables.ranges(events, hosts)
    gpus = _gpus(about)
    alike = next(iter(gpus.values())) if len(set(gpus.values())) == 1 else ""  # ROCm counts by another number
    sole = 0 if len(hosts.processes) == 1 else -1
    cut = bool(exported) and total >= chrome_jax.MOST
    notes = [*stream.notes, *_notes(events, twice, len(ops.start), names, about)]
    if exported:
        notes.append(chrome_jax.CUT if cut else chrome_jax.NOTE)
    return Trace(
        Origin(
            str(path), "chrome", _version(about, exported), _wall(about, events.last), len(calls.start) > 0,
            sampled=cut, notes=tuple(notes),
        ),
        tuple(text.removeprefix(STEP) for text in events.strings.all), hosts.processes, hosts.threads,
        tuple(Device(ordinal, gpus.get(ordinal, alike), process=sole) for ordinal in ordinals),
        ops, calls, ranges, chrome_tables.waits(events, hosts), overheads,
        metadata={key: distributed[key] for key in _ABOUT if key in distributed} | {"gpus": tuple(gpus.values())},
    )  # fmt: skip


def _until(last: Decimal, ts: bytes) -> bytes:
    try:
        return f"{max(Decimal(0), last - Decimal(ts.decode('ascii'))):f}".encode()
    except (ArithmeticError, ValueError):
        return b"?"


def _nothing(events: Events, stream: Stream) -> str:
    most = sorted(events.categories, key=lambda cat: -events.categories[cat])[:3]
    if not most:
        lost = f" ({stream.notes[0]})" if stream.notes else ""
        return f"is a Chrome trace without events{lost}; record again, and export after the profiler has stopped"
    called = ", ".join(repr(cat.decode("utf-8", "replace")) if cat else "no category" for cat in most)
    return (
        f"is a Chrome trace of something else, its events are of {called}; "
        "give what torch.profiler, JAX or TensorFlow wrote"
    )


def _notes(events: Events, twice: int, ops: int, names: chrome_hosts.Meta, about: Mapping[str, Any]) -> list[str]:
    notes = []
    if events.bad:
        notes.append(f"Events whose times are no numbers, skipped: {events.bad}.")
    if events.negative:
        notes.append(f"Events that end before they begin, taken as empty: {events.negative}.")
    if twice:
        notes.append(f"Device events that are in the file twice, counted once: {twice}.")
    if not ops and any("TPU" in name for name in names.processes.values()):
        notes.append("The devices of this trace are TPUs, and only GPUs can be analyzed.")
    elif not ops:
        notes.append(
            "The trace has no device work: the program used no GPU, or its activities were not recorded; "
            "give the profiler ProfilerActivity.CUDA, and nothing else that traces the GPU at the same time."
        )
    for key in ("WARNING", "ERROR"):
        texts = about.get(key)
        lost = [str(text) for text in texts if "dropped" in str(text).lower()] if isinstance(texts, list) else []
        if lost:
            notes.append(f"The profiler says: {lost[0].split('] ', 1)[-1]}")
    return notes


def _gpus(about: Mapping[str, Any]) -> dict[int, str]:
    said = about.get("deviceProperties")
    return {
        number: printable(one.get("name", ""))
        for one in (said if isinstance(said, list) else [])
        if isinstance(one, dict) and (number := _integer(one.get("id"))) is not None
    }


def _version(about: Mapping[str, Any], exported: tuple[str, ...]) -> str:
    if exported:
        return "XLA or TensorFlow"
    return f"Kineto schema {about['schemaVersion']}" if "schemaVersion" in about else ""


def _wall(about: Mapping[str, Any], last: int) -> int | None:
    base = _integer(about.get("baseTimeNanoseconds"))
    return base if base is not None else 0 if last > _EPOCH else None


def _integer(value: Any) -> int | None:
    value = whole(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
