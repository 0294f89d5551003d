"""Whose threads: processes and threads of a Chrome trace, where a `pid` may be a process, a GPU, or a headline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.profiler.model.trace import Process, Thread
from fastfeed.profiler.readers.chrome.args import printable, whole

__all__ = ["Hosts", "Meta", "hosts", "meta"]


@dataclass(frozen=True, slots=True)
class Meta:
    """What M events say, by pid and by (pid, tid)."""

    processes: Mapping[Any, str]
    labels: Mapping[Any, str]
    threads: Mapping[Any, str]


@dataclass(frozen=True, slots=True)
class Hosts:
    processes: tuple[Process, ...]
    threads: tuple[Thread, ...]
    process_of: np.ndarray  # int32, by index of place; the main process where the place is none of a host
    thread_of: np.ndarray  # int32, by index of place; -1 where the dialect does not say
    real: np.ndarray  # bool, by index of place: it is of a host process
    main: int  # index of the process with most to tell


def meta(events: Iterable[Mapping[str, Any]]) -> Meta:
    """Names; of a thread the last one said, which is the one it gave itself."""
    said: dict[str, dict[Any, str]] = {"process_name": {}, "process_labels": {}, "thread_name": {}}
    for event in events:
        args, kind = event.get("args"), event.get("name")
        if not isinstance(args, dict) or not isinstance(kind, str) or kind not in said:
            continue
        pid, tid = (
            value if isinstance(value, int | str) else str(value)
            for value in (whole(event.get("pid", -1)), whole(event.get("tid", -1)))
        )
        text = printable(args.get("labels" if kind == "process_labels" else "name", ""))
        if kind == "thread_name":
            found = re.fullmatch(r"thread \S+ \((.*)\)", text)
            said[kind][pid, tid] = found[1] if found else text
        else:
            said[kind][pid] = text
    return Meta(said["process_name"], said["process_labels"], said["thread_name"])


def hosts(
    places: list[tuple[Any, ...]], calls: np.ndarray, others: np.ndarray, names: Meta, host: str, rank: int | None
) -> Hosts:
    """`calls` and `others` are how many rows of API calls and of other host ranges each place has."""
    weights: dict[Any, int] = {}
    for (pid, _), call, other in zip(places, calls.tolist(), others.tolist(), strict=True):
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
    seen: dict[tuple[int, Any], int] = {}
    thread_of = np.full(len(places), -1, np.int32)
    for at, (pid, tid) in enumerate(places):
        if not calls[at] and (pid == -1 or not others[at]):  # a call is always some thread's
            continue
        process = index.get(pid, main)
        key = (process, tid if pid in index else (pid, tid))
        if key not in seen:
            seen[key] = len(threads)
            name = names.threads.get((pid, tid)) or ("" if isinstance(tid, int) else printable(tid))
            threads.append(Thread(process, tid if isinstance(tid, int) else -1 - len(threads), name))
        thread_of[at] = seen[key]
    process_of = np.array([index.get(place[0], main) for place in places], np.int32)
    real = np.array([place[0] in weights for place in places], bool)
    return Hosts(processes, tuple(threads), process_of, thread_of, real, main)


def _process_name(pid: Any, names: Meta) -> str:
    return names.processes.get(pid) or ("" if isinstance(pid, int) else printable(pid))
