"""fastfeed's own timeline: JSON lines of several feeds, ranks, and processes, as one trace on the wall clock.

Spans become Ranges named "fastfeed:<stage>". `Trace.metadata["feeds"]` has one dict per feed: feed, pid, name, rank,
host, start, end (on the trace's clock), batches, waited_ns, stages {stage: (spans, ns)}, threads (that decoded),
busiest, and `waits`, int64 (n, 3): batch, start, end of each time the trainer waited. `Trace.metadata["batches"]` is
the batch number of each row of `Trace.ranges`. A helper process of a feed has its own dict, with the first five keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.profiler.model.trace import Origin, Process, RangeKind, Ranges, Strings, Thread, Trace, table
from fastfeed.profiler.readers import decompress as opened

__all__ = ["knows", "read"]

_BEGIN = re.compile(
    rb'^\s*(\{[^\n]{0,400}"fastfeed_timeline"\s*:|\["[^"\n]{1,80}",\s*"(span|anchor)",)', re.MULTILINE
)  # fmt: skip
_WAIT = "wait"  # the stage in which a trainer asks for a batch
_DECODERS = ("decode", "dali")
_ONE_CLOCK_NS = 1_000_000_000  # anchors of a host that differ by less are of one clock
_MOVED_NS = 5_000_000  # of the wall clock against the monotonic one, worth telling
_MOST = 1 << 58  # nine years of monotonic nanoseconds; larger numbers are damage, and sums must fit
_LATEST = 1 << 61  # of the wall clock: the year 2043


@dataclass(slots=True)
class _Feed:
    id: str
    headers: list[tuple[int, int, str, str]] = field(default_factory=list)  # pid, rank, host, name
    anchors: list[tuple[int, int]] = field(default_factory=list)  # monotonic, wall
    pending: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # written together: by one process
    rows: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)  # pid, stage, batch, start, end, tid
    owners: dict[int, int] = field(default_factory=dict)  # tid -> pid
    known: bool = True  # its header was there

    @property
    def host(self) -> str:
        return self.headers[0][2]


def knows(path: Path, head: bytes) -> bool:
    """Whether there is a header, a span or an anchor in the first lines."""
    return _BEGIN.search(head[:8192]) is not None


def read(path: Path) -> Trace:
    """The timeline's trace; lines that make no sense are skipped and counted in a note."""
    feeds: dict[str, _Feed] = {}
    strings = Strings()
    odd: dict[str, int] = {}
    last_torn = False
    with opened.open_stream(path) as stream:
        for line in opened.lines(stream):
            if line.strip():
                trouble = _take(line, feeds, strings)
                last_torn = trouble == "torn"
                if trouble:
                    odd[trouble] = odd.get(trouble, 0) + 1
        cut = stream.cut
    if not feeds:
        raise TraceError(f"{path} is not a timeline of fastfeed: no line has a header, span or anchor; record it again")
    for feed in feeds.values():
        _settle(feed, strings)
    if last_torn:
        odd["torn"] -= 1
    notes = [cut] if cut else []
    notes += ["the last line is torn: the run was killed, or is still going on"] if last_torn else []
    notes += [f"{_TROUBLE[what]}: {_lines(count)} skipped" for what, count in odd.items() if count]
    return _trace(path, list(feeds.values()), strings, notes)


_TROUBLE = {
    "torn": "damaged JSON",
    "kind": "records of an unknown kind, maybe of a newer fastfeed",
    "value": "records with impossible values",
    "negative": "spans that end before they begin",
}


def _take(line: bytes, feeds: dict[str, _Feed], strings: Strings) -> str:
    """Adds a line's record to its feed; the key in _TROUBLE where that cannot be done."""
    try:
        record = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return "torn"
    if isinstance(record, dict):
        if "fastfeed_timeline" not in record or not isinstance(record.get("feed"), str):
            return "kind"
        feed = feeds.setdefault(record["feed"], _Feed(record["feed"]))
        if not feed.known:
            feed.headers.clear()
            feed.known = True
        pid, rank = record.get("pid"), record.get("rank")
        host, name = (value if isinstance(value := record.get(key), str) else "" for key in ("host", "name"))
        feed.headers.append((pid if _is_time(pid) else 0, rank if _is_time(rank) else 0, host, name))
        return ""
    if not isinstance(record, list) or len(record) < 2 or not isinstance(record[0], str):
        return "kind"
    kind, values = record[1], record[2:]
    if kind == "anchor" and len(values) >= 2:
        if not (_is_time(values[0]) and _is_time(values[1], _LATEST)):
            return "value"
        feed = _of(record[0], feeds)
        feed.anchors.append((values[0], values[1]))
        _settle(feed, strings)
        return ""
    if kind != "span" or len(values) < 5:
        return "kind"
    stage, batch, start, end, tid = values[:5]
    if not isinstance(stage, str) or not all(map(_is_time, (batch, start, end, tid))):
        return "value"
    if end < start:
        return "negative"
    _of(record[0], feeds).pending.append((strings[f"fastfeed:{stage}"], batch, start, end, tid))
    return ""


def _of(id: str, feeds: dict[str, _Feed]) -> _Feed:
    if id not in feeds:
        feeds[id] = _Feed(id, headers=[(0, 0, "", "")], known=False)
    return feeds[id]


def _is_time(value: Any, most: int = _MOST) -> TypeGuard[int]:
    return type(value) is int and -most < value < most


def _settle(feed: _Feed, strings: Strings) -> None:
    """Says whose the pending spans are: the lines name no process, but those of one write are of one process."""
    pids = [header[0] for header in feed.headers]
    pid = pids[0]
    if len(pids) > 1 and feed.pending:
        wait = strings[f"fastfeed:{_WAIT}"]
        seen = (feed.owners.get(row[4]) or (row[4] if row[4] in pids else 0) for row in feed.pending)
        waits = (pids[0] for row in feed.pending if row[0] == wait)  # only the trainer's process waits
        least = min(row[4] for row in feed.pending)
        older = max((pid for pid in pids if pid <= least), default=pids[0])  # threads are younger than their process
        pid = next(filter(None, seen), 0) or next(waits, older)
    for row in feed.pending:
        feed.owners.setdefault(row[4], pid)
        feed.rows.append((pid, *row))
    feed.pending.clear()


def _trace(path: Path, feeds: list[_Feed], strings: Strings, notes: list[str]) -> Trace:
    offsets = dict(_offsets(feeds, notes))
    lost = [feed for feed in feeds if feed.id not in offsets]
    anchored = bool(offsets)
    if anchored and any(feed.rows for feed in lost):
        count = sum(len(feed.rows) for feed in lost)
        notes.append(f"{count} spans of a feed without a clock anchor cannot be placed in time, and are left out")
    kept = [feed for feed in feeds if feed.id in offsets] if anchored else feeds
    if not anchored:
        notes.append("no clock anchor: these times cannot be lined up with another trace")
    if missing := sum(not feed.known for feed in feeds):
        notes.append(f"{missing} feeds without a header: their rank and process are not known")
    processes: dict[tuple[str, int], int] = {}
    made: list[Process] = []
    threads: dict[tuple[int, int], int] = {}
    columns: list[np.ndarray] = []
    for feed in kept:
        for pid, rank, host, name in feed.headers:
            if (host, pid) not in processes:
                processes[host, pid] = len(made)
                made.append(Process(pid, host, f"fastfeed feed {name}".strip(), rank))
        rows = np.array(sorted(set(feed.rows)), np.int64).reshape(-1, 6)
        if repeated := len(feed.rows) - len(rows):
            notes.append(f"{repeated} spans of feed {feed.id} were there twice; one of each is kept")
        hosts = {pid: host for pid, _, host, _ in feed.headers}
        thread = [
            threads.setdefault((processes[hosts[pid], pid], tid), len(threads)) for pid, tid in rows[:, (0, 5)].tolist()
        ]
        shifted = rows[:, 3:5] + offsets.get(feed.id, 0)
        columns.append(np.column_stack([shifted, np.array(thread, np.int64).reshape(-1, 1), rows[:, 1:3]]))
    every = np.concatenate([np.empty((0, 5), np.int64), *columns])
    base = int(every[:, 0].min()) if len(every) else 0
    every[:, :2] -= base
    about = [one for feed, part in zip(kept, columns, strict=True) for one in _about(feed, part, base, strings)]
    every = every[np.argsort(every[:, 0], kind="stable")]
    if not len(every):
        notes.append("the timeline has no span: no batch was asked for")
    return Trace(
        Origin(str(path), "timeline", "1", base if anchored else None, host_calls=False, notes=tuple(notes)),
        tuple(strings.all),
        tuple(made),
        tuple(Thread(process, tid) for process, tid in threads),
        ranges=table(
            Ranges, start=every[:, 0], end=every[:, 1], thread=every[:, 2], name=every[:, 3],
            kind=np.full(len(every), RangeKind.FEED),
        ),
        metadata={"feeds": about, "batches": every[:, 4]},
    )  # fmt: skip


def _offsets(feeds: list[_Feed], notes: list[str]) -> Iterator[tuple[str, int]]:
    """(feed, wall minus monotonic): of all anchors of its host where those are of one clock, else of its own."""
    for host in dict.fromkeys(feed.host for feed in feeds):
        those = [feed for feed in feeds if feed.host == host]
        found = {feed.id: [wall - mono for mono, wall in feed.anchors] for feed in those}
        every = sorted(offset for offsets in found.values() for offset in offsets)
        if not every:
            continue
        moved = max(max(offsets) - min(offsets) for offsets in found.values() if offsets)
        if moved > _MOVED_NS:
            notes.append(f"the wall clock of {host or 'the host'} moved by {moved / 1e6:.0f} ms during the run")
        one = every[-1] - every[0] < _ONE_CLOCK_NS
        for feed in those:
            own = sorted(found[feed.id])
            if one or own:
                yield feed.id, _middle(every if one else own)


def _middle(values: list[int]) -> int:
    return values[len(values) // 2]


def _about(feed: _Feed, rows: np.ndarray, base: int, strings: Strings) -> list[dict[str, Any]]:
    """What is known of one feed, and the processes that help it; rows of start, end, thread, stage, batch."""
    headers = {header[0]: header for header in feed.headers}.values()
    told = [
        {"feed": feed.id, "pid": pid, "name": name, "rank": rank, "host": host} for pid, rank, host, name in headers
    ]
    spent = rows[:, 1] - rows[:, 0]
    stages = {
        strings.all[stage].removeprefix("fastfeed:"): (int((at := rows[:, 3] == stage).sum()), int(spent[at].sum()))
        for stage in np.unique(rows[:, 3]).tolist()
    }
    asked = rows[rows[:, 3] == strings[f"fastfeed:{_WAIT}"]]
    decoded = rows[np.isin(rows[:, 3], [strings[f"fastfeed:{stage}"] for stage in _DECODERS])]
    work = {stage: ns for stage, (_, ns) in stages.items() if stage != _WAIT}
    told[0] |= {
        "start": int(rows[:, 0].min()) - base if len(rows) else 0,
        "end": int(rows[:, 1].max()) - base if len(rows) else 0,
        "batches": len(np.unique(asked[:, 4] if len(asked) else rows[:, 4])),
        "waited_ns": int((asked[:, 1] - asked[:, 0]).sum()),
        "stages": stages,
        "threads": len(np.unique(decoded[:, 2])),
        "busiest": max(work, key=work.__getitem__, default=""),
        "waits": np.column_stack([asked[:, 4], asked[:, :2] - base]),
    }
    return told


def _lines(count: int) -> str:
    return f"{count} line{'s' * (count != 1)}"
