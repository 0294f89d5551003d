"""Processes, threads and tables of a Chrome trace.

A `pid` of an event may be a process, GPU or heading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.profiler.model.kernel_names import copy_kind, kernel_kind
from fastfeed.profiler.model.trace import (
    Calls,
    Kind,
    Ops,
    Overheads,
    Process,
    RangeKind,
    Ranges,
    Thread,
    Waits,
    table,
)
from fastfeed.profiler.readers.chrome.args import STEP, printable, unquoted
from fastfeed.profiler.readers.chrome.events import CATEGORIES, OWN_OVERHEAD, EventTable


@dataclass(frozen=True, slots=True)
class TraceNames:
    """Names from M events, by pid and by (pid, tid)."""

    processes: Mapping[Any, str]
    labels: Mapping[Any, str]
    threads: Mapping[Any, str]


@dataclass(frozen=True, slots=True)
class Hosts:
    processes: tuple[Process, ...]
    threads: tuple[Thread, ...]
    process_of: np.ndarray  # int32, by thread key; the main process where the key is not of a host
    thread_of: np.ndarray  # int32, by thread key; -1 if the dialect does not say
    real: np.ndarray  # bool, by thread key: it is of a host process
    main: int  # index of the process with most rows


def parse_names(events: Iterable[Mapping[str, Any]]) -> TraceNames:
    """Parse names; for a thread the last one, which it gave itself."""
    names: dict[str, dict[Any, str]] = {"process_name": {}, "process_labels": {}, "thread_name": {}}
    for event in events:
        args = event.get("args")
        kind = event.get("name")
        if not isinstance(args, dict) or not isinstance(kind, str) or kind not in names:
            continue
        pid, tid = (
            value if isinstance(value, int | str) else str(value)
            for value in (unquoted(event.get("pid", -1)), unquoted(event.get("tid", -1)))
        )
        text = printable(args.get("labels" if kind == "process_labels" else "name", ""))
        if kind == "thread_name":
            match = re.fullmatch(r"thread \S+ \((.*)\)", text)
            names[kind][pid, tid] = match[1] if match else text
        else:
            names[kind][pid] = text
    return TraceNames(names["process_name"], names["process_labels"], names["thread_name"])


def assign_hosts(
    thread_keys: list[tuple[Any, ...]],
    calls: np.ndarray,
    others: np.ndarray,
    names: TraceNames,
    host: str,
    rank: int | None,
) -> Hosts:
    """Processes and threads, from the numbers of API calls and other ranges of each thread key."""
    weights: dict[Any, int] = {}
    for (pid, _), call, other in zip(thread_keys, calls.tolist(), others.tolist(), strict=True):
        # in a container a process may have the number of a GPU: API calls tell them apart
        if call or (other and pid != -1 and not names.labels.get(pid, "").startswith("GPU")):
            weights[pid] = weights.get(pid, 0) + call + other
    pids = sorted(weights, key=str) or [-1]
    index = {pid: at for at, pid in enumerate(pids)}
    main = index[max(pids, key=lambda pid: weights.get(pid, 0))]
    processes = tuple(
        Process(pid if isinstance(pid, int) else at, host, _process_name(pid, names), rank)
        for at, pid in enumerate(pids)
    )
    threads: list[Thread] = []
    thread_index: dict[tuple[int, Any], int] = {}
    thread_of = np.full(len(thread_keys), -1, np.int32)
    for at, (pid, tid) in enumerate(thread_keys):
        if not calls[at] and (pid == -1 or not others[at]):  # a call is always some thread's
            continue
        process = index.get(pid, main)
        key = (process, tid if pid in index else (pid, tid))
        if key not in thread_index:
            thread_index[key] = len(threads)
            name = names.threads.get((pid, tid)) or ("" if isinstance(tid, int) else printable(tid))
            threads.append(
                Thread(process, tid if isinstance(tid, int) else -1 - len(threads), name)
            )
        thread_of[at] = thread_index[key]
    process_of = np.array([index.get(thread_key[0], main) for thread_key in thread_keys], np.int32)
    is_real = np.array([thread_key[0] in weights for thread_key in thread_keys], bool)
    return Hosts(processes, tuple(threads), process_of, thread_of, is_real, main)


def _process_name(pid: Any, names: TraceNames) -> str:
    return names.processes.get(pid) or ("" if isinstance(pid, int) else printable(pid))


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
    keys = ("start", "end", "name", "stream_key", "corr", "bytes", "group", "seq")
    keys += ("what", "pageable")
    columns = {key: events.device.take(key) for key in keys}
    is_first = _is_first(*(columns[key] for key in keys[:5]))
    duplicates = len(is_first) - int(is_first.sum())
    if duplicates:
        columns = {key: column[is_first] for key, column in columns.items()}
    what, pageable, stream_key = map(columns.pop, ("what", "pageable", "stream_key"))
    streams = events.stream_keys.all
    name = columns["name"]
    ordinals = sorted({device for device, _ in streams})
    device_of = np.array([ordinals.index(device) for device, _ in streams], np.int32)
    stream_of = np.array([stream for _, stream in streams], np.int64)
    texts = events.strings.all
    kernel = _by_name(name, what == 0, texts, kernel_kind)
    copy = _by_name(name, what == 1, texts, copy_kind)
    paged = _by_name(name, what == 1, texts, _pageable)
    ops_ = table(
        Ops,
        None,
        **columns,
        device=device_of[stream_key],
        process=_process(columns["start"], columns["corr"], hosts, launches),
        stream=stream_of[stream_key],
        kind=np.where(what == 0, kernel, np.where(what == 1, copy, Kind.MEMSET)),
        pageable=np.where((pageable < 0) & (what == 1), paged, pageable),
    )
    return ops_, ordinals, duplicates


def ranges(events: EventTable, hosts: Hosts) -> tuple[Ranges, Overheads]:
    """Host ranges, and separately the profiler's own overhead."""
    columns = ("start", "end", "thread_key", "name", "cat")
    uncategorized = {key: events.uncategorized.take(key) for key in columns}
    # unknown category, known thread
    on_known_thread = hosts.thread_of[uncategorized["thread_key"]] >= 0
    start, end, thread_key, name, cat = (
        np.concatenate([events.ranges.take(key), uncategorized[key][on_known_thread]])
        for key in columns
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
