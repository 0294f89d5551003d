"""Reads timelines of feeds: JSON lines of feeds, ranks and processes on the wall clock.

Spans become Ranges named "fastfeed:<stage>", their domain is the id of their feed.
`Trace.metadata["feeds"]` has a dict with feed, pid, name, rank and host for each feed, and for a
helper process of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.printable import plural
from fastfeed.profiler.model.trace import (
    Origin,
    Process,
    RangeKind,
    Ranges,
    Strings,
    Thread,
    Trace,
    table,
)
from fastfeed.profiler.readers import decompress, limits

_FIRST_LINE = re.compile(
    rb'^\s*(\{[^\n]{0,400}"fastfeed_timeline"\s*:|\["[^"\n]{1,80}",\s*"(span|anchor)",)',
    re.MULTILINE,
)
_WAIT = "wait"  # the stage in which a trainer asks for a batch
_SAME_CLOCK_NS = 1_000_000_000  # anchors of a host that differ by less are of one clock
# change of the wall clock against the monotonic one that is worth a note
_CLOCK_STEP_NS = 5_000_000
# nine years of monotonic nanoseconds; larger numbers are damage, and sums must fit
_MAX_TIME = 1 << 58
_MAX_WALL = 1 << 61  # of the wall clock: the year 2043


@dataclass(slots=True)
class _FeedSpans:
    id: str
    headers: list[tuple[int, int, str, str]] = field(default_factory=list)  # pid, rank, host, name
    anchors: list[tuple[int, int]] = field(default_factory=list)  # monotonic, wall
    # of one write, so of one process
    pending: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    # pid, stage, batch, start, end, tid
    rows: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    owners: dict[int, int] = field(default_factory=dict)  # tid -> pid
    has_header: bool = True

    @property
    def host(self) -> str:
        return self.headers[0][2]


def knows(path: Path, head: bytes) -> bool:
    """True if the first lines have a header, a span or an anchor."""
    return _FIRST_LINE.search(head[:8192]) is not None


def read(path: Path) -> Trace:
    """The timeline's trace; invalid lines are skipped and counted in a note."""
    feeds: dict[str, _FeedSpans] = {}
    strings = Strings()
    skipped: dict[str, int] = {}
    ends_torn = False
    with decompress.open_stream(path) as stream:
        for count, line in enumerate(decompress.lines(stream)):
            limits.check(path, count)
            if line.strip():
                reason = _add_line(line, feeds, strings)
                ends_torn = reason == "torn"
                if reason:
                    skipped[reason] = skipped.get(reason, 0) + 1
        damage = stream.damage
    if not feeds:
        raise TraceError(
            f"{path} is not a timeline of fastfeed: no line has a header, span or anchor; record it"
            " again"
        )
    for feed in feeds.values():
        _assign_pending(feed, strings)
    if ends_torn:
        skipped["torn"] -= 1
    notes = [damage] if damage else []
    notes += ["the last line is torn: the run was killed, or is still running"] if ends_torn else []
    notes += [
        f"{_SKIP_REASONS[what]}: {plural(count, 'line')} skipped"
        for what, count in skipped.items()
        if count
    ]
    trace = _trace(path, list(feeds.values()), strings, notes)
    is_torn = damage or ("its last line is torn" if ends_torn else "")
    return replace(trace, origin=replace(trace.origin, incomplete=is_torn))


_SKIP_REASONS = {
    "torn": "damaged JSON",
    "kind": "records of an unknown kind, maybe of a newer fastfeed",
    "value": "records with impossible values",
    "negative": "spans that end before they begin",
}


def _add_line(line: bytes, feeds: dict[str, _FeedSpans], strings: Strings) -> str:
    """Adds a line's record to its feed.

    Returns "", or a key of _SKIP_REASONS where the line is invalid.
    """
    try:
        record = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return "torn"
    if isinstance(record, dict):
        if "fastfeed_timeline" not in record or not isinstance(record.get("feed"), str):
            return "kind"
        feed = feeds.setdefault(record["feed"], _FeedSpans(record["feed"]))
        pid, rank = (value if _is_time(value := record.get(key)) else 0 for key in ("pid", "rank"))
        host, name = (
            value if isinstance(value := record.get(key), str) else "" for key in ("host", "name")
        )
        if not feed.has_header:  # what came before it is its process's
            feed.headers.clear()
            feed.rows = [(pid, *row[1:]) for row in feed.rows]
            feed.owners = dict.fromkeys(feed.owners, pid)
            feed.has_header = True
        feed.headers.append((pid, rank, host, name))
        return ""
    if not isinstance(record, list) or len(record) < 2 or not isinstance(record[0], str):
        return "kind"
    kind = record[1]
    values = record[2:]
    if kind == "anchor" and len(values) >= 2:
        if not (_is_time(values[0]) and _is_time(values[1], _MAX_WALL)):
            return "value"
        feed = _get_feed(record[0], feeds)
        feed.anchors.append((values[0], values[1]))
        _assign_pending(feed, strings)
        return ""
    if kind != "span" or len(values) < 5:
        return "kind"
    stage, batch, start, end, tid = values[:5]
    if not isinstance(stage, str) or not all(map(_is_time, (batch, start, end, tid))):
        return "value"
    if end < start:
        return "negative"
    _get_feed(record[0], feeds).pending.append(
        (strings[f"fastfeed:{stage}"], batch, start, end, tid)
    )
    return ""


def _get_feed(id: str, feeds: dict[str, _FeedSpans]) -> _FeedSpans:
    if id not in feeds:
        feeds[id] = _FeedSpans(id, headers=[(0, 0, "", "")], has_header=False)
    return feeds[id]


def _is_time(value: Any, limit: int = _MAX_TIME) -> TypeGuard[int]:
    return type(value) is int and -limit < value < limit


def _assign_pending(feed: _FeedSpans, strings: Strings) -> None:
    """Assigns pending spans, which are lines of one write, to one process."""
    pids = [header[0] for header in feed.headers]
    pid = pids[0]
    if len(pids) > 1 and feed.pending:
        wait = strings[f"fastfeed:{_WAIT}"]
        owners = (
            feed.owners.get(row[4]) or (row[4] if row[4] in pids else 0) for row in feed.pending
        )
        # only the trainer's process waits
        waits = (pids[0] for row in feed.pending if row[0] == wait)
        lowest = min(row[4] for row in feed.pending)
        # the ids of threads are larger than that of their process
        likely_parent = max((pid for pid in pids if pid <= lowest), default=pids[0])
        pid = next(filter(None, owners), 0) or next(waits, likely_parent)
    for row in feed.pending:
        feed.owners.setdefault(row[4], pid)
        feed.rows.append((pid, *row))
    feed.pending.clear()


def _trace(path: Path, feeds: list[_FeedSpans], strings: Strings, notes: list[str]) -> Trace:
    offsets = dict(_offsets(feeds, notes))
    unanchored = [feed for feed in feeds if feed.id not in offsets]
    anchored = bool(offsets)
    if anchored and any(feed.rows for feed in unanchored):
        count = sum(len(feed.rows) for feed in unanchored)
        notes.append(
            f"{count} spans of a feed without a clock anchor cannot be placed in time, and are"
            " left out"
        )
    usable = [feed for feed in feeds if feed.id in offsets] if anchored else feeds
    if not anchored:
        notes.append("no clock anchor: these times cannot be lined up with another trace")
    if missing := sum(not feed.has_header for feed in feeds):
        notes.append(f"{missing} feeds without a header: their rank and process are not known")
    processes: dict[tuple[str, int], int] = {}
    process_rows: list[Process] = []
    threads: dict[tuple[int, int], int] = {}
    columns: list[np.ndarray] = []
    for feed in usable:
        for pid, rank, host, name in feed.headers:
            if (host, pid) not in processes:
                processes[host, pid] = len(process_rows)
                process_rows.append(Process(pid, host, f"fastfeed feed {name}".strip(), rank))
        rows = np.array(sorted(set(feed.rows)), np.int64).reshape(-1, 6)
        if duplicates := len(feed.rows) - len(rows):
            notes.append(
                f"{duplicates} spans of feed {feed.id} were there twice; one of each is kept"
            )
        hosts = {pid: host for pid, _, host, _ in feed.headers}
        thread = [
            threads.setdefault((processes[hosts[pid], pid], tid), len(threads))
            for pid, tid in rows[:, (0, 5)].tolist()
        ]
        shifted = rows[:, 3:5] + offsets.get(feed.id, 0)
        of_feed = np.full(len(rows), strings[feed.id])
        columns.append(np.column_stack([shifted, np.array(thread, np.int64), rows[:, 1], of_feed]))
    all_rows = np.concatenate([np.empty((0, 5), np.int64), *columns])
    base = int(all_rows[:, 0].min()) if len(all_rows) else 0
    all_rows[:, :2] -= base
    all_rows = all_rows[np.argsort(all_rows[:, 0], kind="stable")]
    if not len(all_rows):
        notes.append("the timeline has no span: no batch was asked for")
    return Trace(
        Origin(
            str(path),
            "timeline",
            "1",
            base if anchored else None,
            host_calls=False,
            notes=tuple(notes),
        ),
        tuple(strings.all),
        tuple(process_rows),
        tuple(Thread(process, tid) for process, tid in threads),
        ranges=table(
            Ranges,
            start=all_rows[:, 0],
            end=all_rows[:, 1],
            thread=all_rows[:, 2],
            name=all_rows[:, 3],
            kind=np.full(len(all_rows), RangeKind.FEED),
            domain=all_rows[:, 4],
        ),
        metadata={
            "feeds": [
                {"feed": feed.id, "pid": pid, "name": name, "rank": rank, "host": host}
                for feed in usable
                for pid, rank, host, name in {header[0]: header for header in feed.headers}.values()
            ]
        },
    )


def _offsets(feeds: list[_FeedSpans], notes: list[str]) -> Iterator[tuple[str, int]]:
    """(feed, wall minus monotonic): from all anchors of its host if they share a clock."""
    for host in dict.fromkeys(feed.host for feed in feeds):
        on_host = [feed for feed in feeds if feed.host == host]
        offsets_of = {feed.id: [wall - mono for mono, wall in feed.anchors] for feed in on_host}
        all_offsets = sorted(offset for offsets in offsets_of.values() for offset in offsets)
        if not all_offsets:
            continue
        step = max(max(offsets) - min(offsets) for offsets in offsets_of.values() if offsets)
        if step > _CLOCK_STEP_NS:
            notes.append(
                f"the wall clock of {host or 'the host'} moved by {step / 1e6:.0f} ms during"
                " the run"
            )
        is_one_clock = all_offsets[-1] - all_offsets[0] < _SAME_CLOCK_NS
        for feed in on_host:
            own = sorted(offsets_of[feed.id])
            if is_one_clock or own:
                yield feed.id, _median(all_offsets if is_one_clock else own)


def _median(values: list[int]) -> int:
    return values[len(values) // 2]
