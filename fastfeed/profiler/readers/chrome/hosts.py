"""Processes and threads of a Chrome trace, in which a `pid` may be a process, GPU or heading."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.profiler.model.trace import Process, Thread
from fastfeed.profiler.readers.chrome.args import printable, unquoted


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
        args, kind = event.get("args"), event.get("name")
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
