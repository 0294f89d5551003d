"""Chrome trace JSON: Kineto of every age, on NVIDIA and AMD, and exports of JAX and TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.printable import plural
from fastfeed.profiler.model.trace import Device, Origin, Trace
from fastfeed.profiler.readers import decompress, limits
from fastfeed.profiler.readers.chrome import native_scan, tables
from fastfeed.profiler.readers.chrome.args import STEP, printable, unquoted
from fastfeed.profiler.readers.chrome.events import ColumnBuilder, EventTable
from fastfeed.profiler.readers.chrome.stream import BEGIN, CompleteEvent, EventStream
from fastfeed.profiler.readers.chrome.tables import TraceNames, assign_hosts, parse_names

_EPOCH = 10**15 * 1000  # nanoseconds; a clock that shows more than the year 2001 counts from 1970
_KEYS = re.compile(  # for files where the events begin behind the head
    rb'"(schemaVersion|deviceProperties|displayTimeUnit|baseTimeNanoseconds|distributedInfo|record_shapes|with_stack|'
    rb'with_flops|with_modules|profile_memory|traceName|trace_id|\w+_runtime_version|\w+_driver_version)"\s*:'
)
_LOST = re.compile(r"(\d{1,15})(?:\s+\w+){0,4}\s+(?:were |was )?dropped|dropped\s+(\d{1,15})", re.I)
_ONLY_GPUS = "and only GPUs can be analyzed; use the profiler of its maker"
_CATEGORIES = (  # how those of its device begin
    ("mtia_", f"is a trace of an MTIA of Meta, {_ONLY_GPUS}"),
    ("hpu_", f"is a trace of a Gaudi of Intel (Habana), {_ONLY_GPUS}"),
)
_PROCESSES = (
    (
        re.compile(r"^(Ascend Hardware|CANN)\b"),
        f"is a trace of NPUs of Huawei Ascend, {_ONLY_GPUS}",
    ),
    (
        re.compile(
            r"^/job:\S*/(device:)?\w+:\d+ (Compute|Tensors)$|/stream:\S+ (Compute|Tensors)$"
        ),
        (
            "is a timeline of TensorFlow 1 (timeline.Timeline), which has neither streams nor"
            " launches; record with tf.profiler.experimental and pass the .xplane.pb"
        ),
    ),
)
EVENT_LIMIT = 1_000_000  # events that the exporter keeps
EXPORT_NOTE = (
    "This is the trace.json.gz of JAX or TensorFlow; the .xplane.pb next to it is complete and more"
    " exact."
)
TRUNCATED_NOTE = (
    "The exporter stopped at a million events: the end of the recording is missing; pass the"
    " .xplane.pb next to it."
)
_GPU = re.compile(r"/device:GPU:(\d+)")
_STREAM = re.compile(r"Stream #(\d+)")
_COPY = re.compile(r"memcpy", re.I)
_SET = re.compile(r"memset", re.I)


def knows(path: Path, head: bytes) -> bool:
    begin = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if begin.startswith(b"["):
        return (
            re.match(rb"\[\s*\{", begin) is not None
            and re.search(rb'"ph"\s*:\s*"', begin) is not None
        )
    return begin.startswith(b"{") and (
        BEGIN.search(begin) is not None or len(_KEYS.findall(begin)) > 1
    )


def read(path: Path) -> Trace:
    """The trace in a file. It may be compressed in any way that `decompress` supports."""
    events = EventTable()
    with decompress.open_stream(path) as source:
        stream = EventStream(source, native_scan.scan_into(events))
        try:
            for groups in stream:
                events.add(groups)
                limits.check(
                    path, events.held + events.invalid_times + events.impossible_times + stream.held
                )
        except limits.TooManyEvents:
            raise
        except TraceError as error:
            raise TraceError(f"{path}: {error}") from None
    last = Decimal(events.last) / 1000
    unfinished: dict[bytes, list[CompleteEvent]] = {}
    for row in stream.open:
        unfinished.setdefault(row.cat, []).append(row._replace(dur=_until(last, row.ts)))
    events.add(unfinished)
    names = parse_names(stream.meta)
    exported = exported_devices(names)
    total = sum(events.categories.values())
    described = "" if events.device.rows else _describe(events.categories, names)
    if described:
        raise TraceError(f"{path} {described}")
    if exported:
        categorize(events, names)
    elif not (events.device.rows or events.calls.rows or events.ranges.rows or events.waits.rows):
        raise TraceError(f"{path} {_explain_no_events(events, stream)}")
    return _trace(path, events, stream, names, exported, total)


def _trace(
    path: Path,
    events: EventTable,
    stream: EventStream,
    names: TraceNames,
    exported: tuple[str, ...],
    total: int,
) -> Trace:
    metadata = stream.metadata
    distributed = metadata.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    host = metadata.get("host_name") or metadata.get("hostname") or ""
    hosts = assign_hosts(
        events.thread_keys.all,
        tables.counts(events, "calls"),
        tables.counts(events, "ranges"),
        names,
        printable(host),
        _integer(distributed.get("rank")),
    )
    calls = tables.calls(events, hosts)
    ops, ordinals, duplicates = tables.ops(events, hosts, calls)
    ranges, overheads = tables.ranges(events, hosts)
    gpus = _gpus(metadata)
    # ROCm counts by another number
    common_name = next(iter(gpus.values())) if len(set(gpus.values())) == 1 else ""
    process = 0 if len(hosts.processes) == 1 else -1
    is_truncated = bool(exported) and total >= EVENT_LIMIT
    notes = [
        *stream.notes,
        *_notes(events, duplicates, len(ops.start), names, metadata, bool(stream.notes)),
    ]
    if exported:
        notes.append(TRUNCATED_NOTE if is_truncated else EXPORT_NOTE)
    return Trace(
        Origin(
            str(path),
            "chrome",
            _version(metadata, exported),
            _wall(metadata, events.last),
            len(calls.start) > 0,
            sampled=is_truncated,
            dropped=_dropped(metadata),
            notes=tuple(notes),
            incomplete=stream.notes[0].rstrip(".") if stream.notes else "",
        ),
        tuple(text.removeprefix(STEP) for text in events.strings.all),
        hosts.processes,
        hosts.threads,
        tuple(
            Device(ordinal, gpus.get(ordinal, common_name), process=process) for ordinal in ordinals
        ),
        ops,
        calls,
        ranges,
        tables.waits(events, hosts),
        overheads,
        metadata={key: distributed[key] for key in ("world_size",) if key in distributed},
    )


def _until(last: Decimal, ts: bytes) -> bytes:
    try:
        return f"{max(Decimal(0), last - Decimal(ts.decode('ascii'))):f}".encode()
    except (ArithmeticError, ValueError):
        return b"?"


def _explain_no_events(events: EventTable, stream: EventStream) -> str:
    frequent = sorted(events.categories, key=lambda cat: -events.categories[cat])[:3]
    if not frequent:
        note = f" ({stream.notes[0]})" if stream.notes else ""
        return (
            f"is a Chrome trace without events{note}; record again, and export after the profiler"
            " has stopped"
        )
    if events.invalid_times + events.impossible_times:
        total = sum(events.categories.values())
        return (
            f"has {plural(total, 'event')} and no time that can be used; ts and dur must be"
            " microseconds between 1684 and 2255: export it again"
        )
    categories = ", ".join(
        repr(cat.decode("utf-8", "replace")) if cat else "no category" for cat in frequent
    )
    return (
        f"is a Chrome trace of something else, its events are of {categories}; "
        "give what torch.profiler, JAX or TensorFlow wrote"
    )


def _notes(
    events: EventTable,
    duplicates: int,
    ops: int,
    names: TraceNames,
    metadata: Mapping[str, Any],
    damaged: bool,
) -> list[str]:
    notes = []
    if events.invalid_times:
        notes.append(f"Events whose times are not numbers, skipped: {events.invalid_times}.")
    if events.impossible_times:
        notes.append(
            f"Events whose times are before 1684 or after 2255, skipped: {events.impossible_times}."
        )
    if events.negative:
        notes.append(f"Events that end before they begin, taken as empty: {events.negative}.")
    if duplicates:
        notes.append(f"Device events that are in the file twice, counted once: {duplicates}.")
    if not ops and any("TPU" in name for name in names.processes.values()):
        notes.append("The devices of this trace are TPUs, and only GPUs can be analyzed.")
    elif not ops and not damaged:
        notes.append(
            "The trace has no device work: the program used no GPU, or its activities were not"
            " recorded; if it used one, give the profiler ProfilerActivity.CUDA, and let nothing"
            " else trace the GPU at the same time."
        )
    notes += [f"The profiler says: {text.split('] ', 1)[-1]}" for text in _losses(metadata)[:1]]
    return notes


def _losses(metadata: Mapping[str, Any]) -> list[str]:
    """Kineto's messages about records that it dropped."""
    texts = [metadata.get(key) for key in ("WARNING", "ERROR")]
    return [
        str(text)
        for part in texts
        if isinstance(part, list)
        for text in part
        if "dropped" in str(text).lower()
    ]


def _dropped(metadata: Mapping[str, Any]) -> int:
    """Number of records that Kineto dropped; one for each message without a number."""
    counts = [_LOST.search(text) for text in _losses(metadata)]
    return sum(int(count[1] or count[2]) if count else 1 for count in counts)


def _gpus(metadata: Mapping[str, Any]) -> dict[int, str]:
    properties = metadata.get("deviceProperties")
    return {
        number: printable(gpu.get("name", ""))
        for gpu in (properties if isinstance(properties, list) else [])
        if isinstance(gpu, dict) and (number := _integer(gpu.get("id"))) is not None
    }


def _version(metadata: Mapping[str, Any], exported: tuple[str, ...]) -> str:
    if exported:
        return "XLA or TensorFlow"
    return f"Kineto schema {metadata['schemaVersion']}" if "schemaVersion" in metadata else ""


def _wall(metadata: Mapping[str, Any], last: int) -> int | None:
    base = _integer(metadata.get("baseTimeNanoseconds"))
    return base if base is not None else 0 if last > _EPOCH else None


def _integer(value: Any) -> int | None:
    value = unquoted(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _describe(categories: Iterable[bytes], names: TraceNames) -> str:
    """Rest of the sentence "FILE is ..." for a trace without work of a GPU; "" if unknown."""
    texts = [cat.decode("utf-8", "replace").lower() for cat in categories]
    for prefix, description in _CATEGORIES:
        if any(text.startswith(prefix) for text in texts):
            return description
    for pattern, description in _PROCESSES:
        if any(pattern.search(name) for name in names.processes.values()):
            return description
    return ""


def exported_devices(names: TraceNames) -> tuple[str, ...]:
    """Processes like '/device:GPU:0' and '/host:CPU'; empty for traces of other programs."""
    return tuple(
        sorted(
            {name for name in names.processes.values() if re.search(r"(^|\s)/(device|host):", name)}
        )
    )


def categorize(events: EventTable, names: TraceNames) -> None:
    """Moves rows of JAX and TensorFlow, which have no category, into the tables they belong to.

    A process '/device:GPU:0' has a thread for each stream, and threads with summaries of the same
    time; '/host:CPU' has the threads of the program.
    """
    events.uncategorized.take("cat")
    rows = {
        name: events.uncategorized.take(name)
        for name in ("start", "end", "thread_key", "name", "corr", "bytes", "pageable")
    }
    is_device, is_host = (np.zeros(len(events.thread_keys.all), bool) for _ in range(2))
    stream_key = np.zeros(len(events.thread_keys.all), np.int32)
    for at, (pid, tid) in enumerate(events.thread_keys.all):
        process = names.processes.get(pid, "")
        gpu = _GPU.search(process)
        stream = _STREAM.match(names.threads.get((pid, tid), ""))
        is_host[at] = "/host:" in process and "/host:metadata" not in process
        if gpu and stream:
            is_device[at] = True
            stream_key[at] = events.stream_keys[int(gpu[1]), int(stream[1])]
    texts = events.strings.all
    what = np.array(
        [1 if _COPY.search(text) else 2 if _SET.search(text) else 0 for text in texts], np.uint8
    )
    on_gpu = is_device[rows["thread_key"]]
    on_host = is_host[rows["thread_key"]]
    _add(
        events.device,
        rows,
        on_gpu,
        ("corr", "bytes", "pageable"),
        stream_key=stream_key[rows["thread_key"][on_gpu]],
        what=what[rows["name"][on_gpu]],
        group=np.int32(-1),
        seq=np.int64(-1),
    )
    launches = on_host & (rows["corr"] >= 0)
    _add(events.calls, rows, launches, ("corr",))
    plain = on_host & ~launches
    kinds = np.array([_category(text) for text in texts], object)
    cats = (
        np.array([events.names[kind] for kind in kinds], np.int32)
        if len(kinds)
        else np.empty(0, np.int32)
    )
    _add(events.ranges, rows, plain, (), cat=cats[rows["name"][plain]])


def _add(
    table: ColumnBuilder,
    rows: dict[str, np.ndarray],
    which: np.ndarray,
    keep: tuple[str, ...],
    **more: Any,
) -> None:
    if which.any():
        table.add(
            **{name: rows[name][which] for name in ("start", "end", "thread_key", "name", *keep)},
            **more,
        )


def _category(text: str) -> str:
    return (
        "step" if text.startswith(STEP) else "python_function" if text.startswith("$") else "cpu_op"
    )
