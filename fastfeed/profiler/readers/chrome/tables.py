"""Columns of events as the tables of a `Trace`."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from fastfeed.profiler.model.kernel_names import copy_kind, kernel_kind
from fastfeed.profiler.model.trace import Calls, Kind, Ops, Overheads, RangeKind, Ranges, Waits, table
from fastfeed.profiler.readers.chrome.args import STEP
from fastfeed.profiler.readers.chrome.events import CATEGORIES, OWN_OVERHEAD, Events
from fastfeed.profiler.readers.chrome.hosts import Hosts

__all__ = ["calls", "counts", "ops", "ranges", "waits"]

_STEP = re.compile(rf"^(ProfilerStep#|{STEP})")
_ANNOTATION = re.compile(r"^(enumerate\(.*\)#|Optimizer\.(step|zero_grad)#)")  # in 2021 of category Operator
_GC = re.compile(r"^(Python )?GC$|garbage collect|gc\.collect\b|^<built-in function collect>$", re.I)
_COMPILE = re.compile(r"driver compiler|(module|function) loading", re.I)
_RANGE_KINDS = {"op": RangeKind.OP, "python": RangeKind.PYTHON, "range_kind": RangeKind.NVTX}


def counts(events: Events, which: str) -> np.ndarray:
    """Rows of `calls` or of `ranges` at each place, before they are taken; overhead is nobody's."""
    table_ = events.calls if which == "calls" else events.ranges
    found = np.zeros(len(events.places.all), np.int64)
    overhead = np.array([CATEGORIES.get(text.lower()) == "overhead" for text in events.strings.all], bool)
    places = table_.pieces("place")
    for place, cat in zip(places, table_.pieces("cat") or [None] * len(places), strict=True):
        found += np.bincount(place if cat is None else place[~overhead[cat]], minlength=len(found))
    return found


def calls(events: Events, hosts: Hosts) -> Calls:
    take = events.calls.take
    return table(
        Calls, start=take("start"), end=take("end"), thread=hosts.thread_of[take("place")], name=take("name"),
        corr=take("corr"),
    )  # fmt: skip


def ops(events: Events, hosts: Hosts, launches: Calls) -> tuple[Ops, list[int], int]:
    """Device work, ordinals of the devices, and how many rows were there twice."""
    take = events.device.take
    start, end, name, spot = take("start"), take("end"), take("name"), take("spot")
    corr, what, size, group, seq = take("corr"), take("what"), take("bytes"), take("group"), take("seq")
    once = _once(start, end, name, spot, corr)
    twice = len(start) - int(once.sum())
    pageable = take("pageable")
    if twice:
        start, end, name, spot, corr = (column[once] for column in (start, end, name, spot, corr))
        what, size, group, seq, pageable = (column[once] for column in (what, size, group, seq, pageable))
    ordinals = sorted({spot[0] for spot in events.spots.all})
    device_of = np.array([ordinals.index(spot[0]) for spot in events.spots.all], np.int32)
    stream_of = np.array([spot[1] for spot in events.spots.all], np.int64)
    texts = events.strings.all
    kernel = _by_name(name, what == 0, texts, kernel_kind)
    copy = _by_name(name, what == 1, texts, copy_kind)
    paged = _by_name(name, what == 1, texts, _pageable)
    made = table(
        Ops, start=start, end=end, device=device_of[spot], process=_process(start, corr, hosts, launches),
        stream=stream_of[spot], kind=np.where(what == 0, kernel, np.where(what == 1, copy, Kind.MEMSET)),
        name=name, corr=corr, bytes=size, pageable=np.where((pageable < 0) & (what == 1), paged, pageable),
        group=group, seq=seq,
    )  # fmt: skip
    return made, ordinals, twice


def ranges(events: Events, hosts: Hosts) -> tuple[Ranges, Overheads]:
    """What host threads were inside of; the profiler's own time apart."""
    columns = ("start", "end", "place", "name", "cat")
    start, end, place, name, cat = map(events.ranges.take, columns)
    loose = dict(zip(columns, map(events.loose.take, columns), strict=True))
    known = hosts.thread_of[loose["place"]] >= 0  # of a category that nobody told us, on a thread that we know
    start, end, place, name, cat = (
        np.concatenate([own, loose[key][known]])
        for key, own in zip(columns, (start, end, place, name, cat), strict=True)
    )
    texts = events.strings.all
    families = [CATEGORIES.get(text.lower(), "step" if text == "step" else "") for text in texts]
    said = np.array([_RANGE_KINDS.get(family, RangeKind.OTHER) for family in families] or [0], np.uint8)[cat]
    overhead = np.array([family == "overhead" for family in families] or [False], bool)[cat]
    for pattern, meant, where in (
        (_COMPILE, RangeKind.COMPILE, overhead),
        (_ANNOTATION, RangeKind.NVTX, said == RangeKind.OP),
        (_GC, RangeKind.GC, ~overhead),
        (_STEP, RangeKind.STEP, ~overhead),
    ):
        says = np.array([bool(pattern.search(text)) for text in texts] or [False], bool)
        said[where & says[name]] = meant
    own = overhead & np.array([bool(OWN_OVERHEAD.search(text)) for text in texts] or [False], bool)[name]
    thread = np.where(overhead, -1, hosts.thread_of[place])
    kept = ~own
    host = table(
        Ranges,
        start=start[kept],
        end=end[kept],
        thread=thread[kept],
        name=name[kept],
        kind=said[kept],
        domain=cat[kept],
    )
    return host, table(Overheads, start=start[own], end=end[own], process=hosts.process_of[place[own]])


def waits(events: Events, hosts: Hosts) -> Waits:
    take = events.waits.take
    columns = {name: take(name) for name in ("corr", "stream", "on_stream", "on_corr")}
    return table(Waits, None, process=np.full(len(columns["corr"]), hosts.main), **columns)


def _by_name(name: np.ndarray, which: np.ndarray, texts: list[str], say: Callable[[str], int]) -> np.ndarray:
    """What `say` says of each name; only of those that are needed."""
    said = np.zeros(len(texts) + 1, np.int64)
    for index in np.unique(name[which]).tolist():
        said[index] = say(texts[index])
    return said[name]


def _pageable(text: str) -> int:
    return 1 if "ageable" in text else 0 if "inned" in text else -1


def _once(start: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """bool: false for a row that is equal to an earlier one."""
    once = np.ones(len(start), bool)
    order = np.argsort(start, kind="stable")
    same = start[order][1:] == start[order][:-1]
    some = order[np.concatenate([same, [False]]) | np.concatenate([[False], same])] if len(start) else order
    if len(some):
        rows = np.column_stack([start[some], *(column[some] for column in others)])
        first = np.unique(rows, axis=0, return_index=True)[1]
        once[some] = False
        once[some[first]] = True
    return once


def _process(start: np.ndarray, corr: np.ndarray, hosts: Hosts, launches: Calls) -> np.ndarray:
    """Index of the process that launched each op; several may use one number, then the latest before it."""
    if len(hosts.processes) == 1 or not len(launches.start):
        return np.full(len(start), hosts.main, np.int32)
    process_of_thread = np.array([thread.process for thread in hosts.threads], np.int32)
    order = np.lexsort((launches.start, launches.corr))
    both = np.concatenate([launches.corr[order], corr])
    when = np.concatenate([launches.start[order], start])
    is_op = np.concatenate([np.zeros(len(order), bool), np.ones(len(corr), bool)])
    merged = np.lexsort((is_op, when, both))  # calls before the ops that begin with them
    latest = np.maximum.accumulate(np.where(is_op[merged], -1, np.arange(len(merged))))
    call = merged[np.maximum(latest, 0)]
    found = (latest >= 0) & is_op[merged] & (both[call] == both[merged]) & (both[merged] >= 0)
    process = np.full(len(merged), hosts.main, np.int32)
    process[merged[found]] = process_of_thread[launches.thread[order[call[found]]]]
    return process[len(order) :]
