"""Events of trace.json.gz from JAX and TensorFlow, classified by process for want of categories.

A process '/device:GPU:0' has a thread for each stream, and threads with summaries of the same time;
'/host:CPU' has the threads of the program. The exporter keeps the first million events and does not
mention the others.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fastfeed.profiler.readers.chrome.args import STEP
from fastfeed.profiler.readers.chrome.events import ColumnBuilder, EventTable
from fastfeed.profiler.readers.chrome.hosts import TraceNames

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


def exported_devices(names: TraceNames) -> tuple[str, ...]:
    """Processes like '/device:GPU:0' and '/host:CPU'; empty for traces of other programs."""
    return tuple(
        sorted(
            {name for name in names.processes.values() if re.search(r"(^|\s)/(device|host):", name)}
        )
    )


def categorize(events: EventTable, names: TraceNames) -> None:
    """Moves rows without a category into the tables they belong to."""
    events.uncategorized.take("cat")
    rows = {
        name: events.uncategorized.take(name)
        for name in ("start", "end", "thread_key", "name", "corr", "bytes", "pageable")
    }
    is_device, is_host = (np.zeros(len(events.thread_keys.all), bool) for _ in range(2))
    stream_key = np.zeros(len(events.thread_keys.all), np.int32)
    for at, (pid, tid) in enumerate(events.thread_keys.all):
        process = names.processes.get(pid, "")
        gpu, stream = _GPU.search(process), _STREAM.match(names.threads.get((pid, tid), ""))
        is_host[at] = "/host:" in process and "/host:metadata" not in process
        if gpu and stream:
            is_device[at] = True
            stream_key[at] = events.stream_keys[int(gpu[1]), int(stream[1])]
    texts = events.strings.all
    what = np.array(
        [1 if _COPY.search(text) else 2 if _SET.search(text) else 0 for text in texts], np.uint8
    )
    on_gpu, on_host = is_device[rows["thread_key"]], is_host[rows["thread_key"]]
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
