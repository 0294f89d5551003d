"""ColumnBuilder of events as the tables of a `Trace`."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from fastfeed.profiler.model.kernel_names import copy_kind, kernel_kind
from fastfeed.profiler.model.trace import (
    Calls,
    Kind,
    Ops,
    Overheads,
    RangeKind,
    Ranges,
    Waits,
    table,
)
from fastfeed.profiler.readers.chrome.args import STEP
from fastfeed.profiler.readers.chrome.events import CATEGORIES, OWN_OVERHEAD, EventTable
from fastfeed.profiler.readers.chrome.hosts import Hosts

_STEP = re.compile(rf"^(ProfilerStep#|{STEP})")
# in 2021 of category Operator
_ANNOTATION = re.compile(r"^(enumerate\(.*\)#|Optimizer\.(step|zero_grad)#)")
_GC = re.compile(
    r"^(Python )?GC$|garbage collect|gc\.collect\b|^<built-in function collect>$", re.I
)
_COMPILE = re.compile(r"driver compiler|(module|function) loading", re.I)
_RANGE_KINDS = {"op": RangeKind.OP, "python": RangeKind.PYTHON, "annotation": RangeKind.NVTX}


def counts(events: EventTable, which: str) -> np.ndarray:
    """Rows of `calls` or `ranges` per thread key, overhead excluded, before they are taken."""
    table_ = events.calls if which == "calls" else events.ranges
    counts_ = np.zeros(len(events.thread_keys.all), np.int64)
    overhead = np.array(
        [CATEGORIES.get(text.lower()) == "overhead" for text in events.strings.all], bool
    )
    thread_keys = table_.pieces("thread_key")
    for thread_key, cat in zip(
        thread_keys, table_.pieces("cat") or [None] * len(thread_keys), strict=True
    ):
        counts_ += np.bincount(
            thread_key if cat is None else thread_key[~overhead[cat]], minlength=len(counts_)
        )
    return counts_


def calls(events: EventTable, hosts: Hosts) -> Calls:
    take = events.calls.take
    return table(
        Calls,
        start=take("start"),
        end=take("end"),
        thread=hosts.thread_of[take("thread_key")],
        name=take("name"),
        corr=take("corr"),
    )


def ops(events: EventTable, hosts: Hosts, launches: Calls) -> tuple[Ops, list[int], int]:
    """Device work, ordinals of the devices, and the number of duplicate rows."""
    take = events.device.take
    start, end, name, stream_key = take("start"), take("end"), take("name"), take("stream_key")
    corr, what, size, group, seq = map(take, ("corr", "what", "bytes", "group", "seq"))
    is_first = _is_first(start, end, name, stream_key, corr)
    duplicates = len(start) - int(is_first.sum())
    pageable = take("pageable")
    if duplicates:
        start, end, name, stream_key, corr = (
            column[is_first] for column in (start, end, name, stream_key, corr)
        )
        what, size, group, seq, pageable = (
            column[is_first] for column in (what, size, group, seq, pageable)
        )
    ordinals = sorted({stream_key[0] for stream_key in events.stream_keys.all})
    device_of = np.array(
        [ordinals.index(stream_key[0]) for stream_key in events.stream_keys.all], np.int32
    )
    stream_of = np.array([stream_key[1] for stream_key in events.stream_keys.all], np.int64)
    texts = events.strings.all
    kernel = _by_name(name, what == 0, texts, kernel_kind)
    copy = _by_name(name, what == 1, texts, copy_kind)
    paged = _by_name(name, what == 1, texts, _pageable)
    ops_ = table(
        Ops,
        start=start,
        end=end,
        device=device_of[stream_key],
        process=_process(start, corr, hosts, launches),
        stream=stream_of[stream_key],
        kind=np.where(what == 0, kernel, np.where(what == 1, copy, Kind.MEMSET)),
        name=name,
        corr=corr,
        bytes=size,
        pageable=np.where((pageable < 0) & (what == 1), paged, pageable),
        group=group,
        seq=seq,
    )
    return ops_, ordinals, duplicates


def ranges(events: EventTable, hosts: Hosts) -> tuple[Ranges, Overheads]:
    """Host ranges, and separately the profiler's own overhead."""
    columns = ("start", "end", "thread_key", "name", "cat")
    start, end, thread_key, name, cat = map(events.ranges.take, columns)
    uncategorized = dict(zip(columns, map(events.uncategorized.take, columns), strict=True))
    # unknown category, known thread
    on_known_thread = hosts.thread_of[uncategorized["thread_key"]] >= 0
    start, end, thread_key, name, cat = (
        np.concatenate([profiler_own, uncategorized[key][on_known_thread]])
        for key, profiler_own in zip(columns, (start, end, thread_key, name, cat), strict=True)
    )
    texts = events.strings.all
    families = [CATEGORIES.get(text.lower(), "step" if text == "step" else "") for text in texts]
    kind = np.array(
        [_RANGE_KINDS.get(family, RangeKind.OTHER) for family in families] or [0], np.uint8
    )[cat]
    overhead = np.array([family == "overhead" for family in families] or [False], bool)[cat]
    for pattern, new_kind, where in (
        (_COMPILE, RangeKind.COMPILE, overhead),
        (_ANNOTATION, RangeKind.NVTX, kind == RangeKind.OP),
        (_GC, RangeKind.GC, ~overhead),
        (_STEP, RangeKind.STEP, ~overhead),
    ):
        matches = np.array([bool(pattern.search(text)) for text in texts] or [False], bool)
        kind[where & matches[name]] = new_kind
    profiler_own = (
        overhead
        & np.array([bool(OWN_OVERHEAD.search(text)) for text in texts] or [False], bool)[name]
    )
    thread = np.where(overhead, -1, hosts.thread_of[thread_key])
    is_host = ~profiler_own
    host = table(
        Ranges,
        start=start[is_host],
        end=end[is_host],
        thread=thread[is_host],
        name=name[is_host],
        kind=kind[is_host],
        domain=cat[is_host],
    )
    return host, table(
        Overheads,
        start=start[profiler_own],
        end=end[profiler_own],
        process=hosts.process_of[thread_key[profiler_own]],
    )


def waits(events: EventTable, hosts: Hosts) -> Waits:
    take = events.waits.take
    columns = {name: take(name) for name in ("corr", "stream", "on_stream", "on_corr")}
    return table(Waits, None, process=np.full(len(columns["corr"]), hosts.main), **columns)


def _by_name(
    name: np.ndarray, which: np.ndarray, texts: list[str], classify: Callable[[str], int]
) -> np.ndarray:
    """`classify` of each name, called once per distinct name."""
    values = np.zeros(len(texts) + 1, np.int64)
    for index in np.unique(name[which]).tolist():
        values[index] = classify(texts[index])
    return values[name]


def _pageable(text: str) -> int:
    return 1 if "ageable" in text else 0 if "inned" in text else -1


def _is_first(start: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """Mask of rows that are not equal to an earlier one: bool."""
    is_first = np.ones(len(start), bool)
    order = np.argsort(start, kind="stable")
    same = start[order][1:] == start[order][:-1]
    candidates = (
        order[np.concatenate([same, [False]]) | np.concatenate([[False], same])]
        if len(start)
        else order
    )
    if len(candidates):
        rows = np.column_stack([start[candidates], *(column[candidates] for column in others)])
        first = np.unique(rows, axis=0, return_index=True)[1]
        is_first[candidates] = False
        is_first[candidates[first]] = True
    return is_first


def _process(start: np.ndarray, corr: np.ndarray, hosts: Hosts, launches: Calls) -> np.ndarray:
    """Process that launched each op; if several use one number, the latest before it."""
    if len(hosts.processes) == 1 or not len(launches.start):
        return np.full(len(start), hosts.main, np.int32)
    process_of_thread = np.array([thread.process for thread in hosts.threads], np.int32)
    order = np.lexsort((launches.start, launches.corr))
    corrs = np.concatenate([launches.corr[order], corr])
    when = np.concatenate([launches.start[order], start])
    is_op = np.concatenate([np.zeros(len(order), bool), np.ones(len(corr), bool)])
    merged = np.lexsort((is_op, when, corrs))  # calls before the ops that begin with them
    latest = np.maximum.accumulate(np.where(is_op[merged], -1, np.arange(len(merged))))
    call = merged[np.maximum(latest, 0)]
    matched = (latest >= 0) & is_op[merged] & (corrs[call] == corrs[merged]) & (corrs[merged] >= 0)
    process = np.full(len(merged), hosts.main, np.int32)
    process[merged[matched]] = process_of_thread[launches.thread[order[call[matched]]]]
    return process[len(order) :]
