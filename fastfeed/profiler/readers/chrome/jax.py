"""trace.json.gz of JAX and TensorFlow: no categories, but processes that say what they are.

A process '/device:GPU:0' has a thread for each stream, and threads with summaries of the same time; '/host:CPU' has
the threads of the program. The exporter keeps the first million events and says nothing of the others.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fastfeed.profiler.readers.chrome.args import STEP
from fastfeed.profiler.readers.chrome.events import Columns, Events
from fastfeed.profiler.readers.chrome.hosts import Meta

__all__ = ["CUT", "MOST", "NOTE", "devices", "sort_out"]

MOST = 1_000_000  # events that the exporter keeps
NOTE = "This is the trace.json.gz of JAX or TensorFlow; the .xplane.pb beside it has everything and more exactly."
CUT = "The exporter stopped at a million events: the end of the recording is missing; give the .xplane.pb beside it."
_GPU = re.compile(r"/device:GPU:(\d+)")
_STREAM = re.compile(r"Stream #(\d+)")
_COPY = re.compile(r"memcpy", re.I)
_SET = re.compile(r"memset", re.I)


def devices(names: Meta) -> tuple[str, ...]:
    """Processes like '/device:GPU:0' and '/host:CPU'; none where another program wrote the trace."""
    return tuple(sorted({name for name in names.processes.values() if re.search(r"(^|\s)/(device|host):", name)}))


def sort_out(events: Events, names: Meta) -> None:
    """Rows without a category, put where they belong."""
    events.loose.take("cat")
    rows = {name: events.loose.take(name) for name in ("start", "end", "place", "name", "corr", "bytes", "pageable")}
    is_device, is_host = (np.zeros(len(events.places.all), bool) for _ in range(2))
    spot = np.zeros(len(events.places.all), np.int32)
    for at, (pid, tid) in enumerate(events.places.all):
        process = names.processes.get(pid, "")
        gpu, stream = _GPU.search(process), _STREAM.match(names.threads.get((pid, tid), ""))
        is_host[at] = "/host:" in process and "/host:metadata" not in process
        if gpu and stream:
            is_device[at] = True
            spot[at] = events.spots[int(gpu[1]), int(stream[1])]
    texts = events.strings.all
    what = np.array([1 if _COPY.search(text) else 2 if _SET.search(text) else 0 for text in texts], np.uint8)
    on_gpu, on_host = is_device[rows["place"]], is_host[rows["place"]]
    _add(
        events.device, rows, on_gpu, ("corr", "bytes", "pageable"), spot=spot[rows["place"][on_gpu]],
        what=what[rows["name"][on_gpu]], group=np.int32(-1), seq=np.int64(-1),
    )  # fmt: skip
    launches = on_host & (rows["corr"] >= 0)
    _add(events.calls, rows, launches, ("corr",))
    plain = on_host & ~launches
    kinds = np.array([_category(text) for text in texts], object)
    cats = np.array([events.names[kind] for kind in kinds], np.int32) if len(kinds) else np.empty(0, np.int32)
    _add(events.ranges, rows, plain, (), cat=cats[rows["name"][plain]])


def _add(table: Columns, rows: dict[str, np.ndarray], which: np.ndarray, keep: tuple[str, ...], **more: Any) -> None:
    if which.any():
        table.add(**{name: rows[name][which] for name in ("start", "end", "place", "name", *keep)}, **more)


def _category(text: str) -> str:
    return "step" if text.startswith(STEP) else "python_function" if text.startswith("$") else "cpu_op"
