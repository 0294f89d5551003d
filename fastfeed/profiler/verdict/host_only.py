"""Recordings without device activity: waits for input, and launches without their work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastfeed.printable import plural
from fastfeed.profiler.attribution.classify import Activity
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.attribution.lost_work import STARTS_WORK
from fastfeed.profiler.model.format import duration, percent
from fastfeed.profiler.model.intervals import intersect, measure, spans, subtract, union
from fastfeed.profiler.model.trace import RangeKind, Trace
from fastfeed.profiler.steps.marks import marked_steps

_PARKED = 0.05  # of the time: parked for less is not worth a sentence
_CAVEAT = "Only a recording with a GPU can tell whether that delays training."


def launch_count(traces: Sequence[Trace]) -> int:
    """The launches of kernels, copies and graphs in these traces."""
    return sum(int(trace.matches(trace.calls.name, STARTS_WORK).sum()) for trace in traces)


def host_waits(traces: Sequence[Trace], input_range: str = "") -> tuple[str, ...]:
    """Sentences for each process whose main thread waited; feeds are reported separately."""
    sentences = []
    for trace in traces:
        ranges = trace.ranges
        if len(trace.ops.start) or not len(ranges.start) or (ranges.kind == RangeKind.FEED).any():
            continue
        host = Host(trace, input_range)
        for process in range(len(trace.processes)):
            sentences += _waits(trace, host, process)
    return tuple(sentences)


def _waits(trace: Trace, host: Host, process: int) -> list[str]:
    thread = host.main_thread(process)
    window, steps = _window(trace, process)
    whole = max(measure(window), 1)
    waits = intersect(
        union(host.activity_spans(thread, Activity.INPUT), host.tf_data_waits(thread)), window
    )
    parked = subtract(intersect(host.activity_spans(thread, Activity.WAITING), window), waits)
    sentences = []
    if len(waits):
        time = f"{percent(measure(waits) / whole)} of the {_time(steps)}"
        sentences.append(
            f"The host waited for input {time}: {plural(len(waits), 'wait')},"
            f" {duration(measure(waits))}. {_CAVEAT}"
        )
    if measure(parked) > _PARKED * whole:
        time = f"{percent(measure(parked) / whole)} of the {_time(steps)}"
        where = _longest(host, trace, thread)
        sentences.append(
            f"The thread that trains was parked {time}, most of it in {where}. {_CAVEAT}"
        )
    return sentences


def _window(trace: Trace, process: int) -> tuple[np.ndarray, int]:
    """The time of the marked steps and their number; without marks all of the recording, and 0."""
    steps = marked_steps(trace, process)
    if steps is not None:
        return union(steps.spans), len(steps.spans)
    ranges = trace.ranges
    return spans(ranges.start.min()[None], ranges.end.max()[None]), 0


def _time(steps: int) -> str:
    return f"time of {plural(steps, 'marked step')}" if steps else "recorded time"


def _longest(host: Host, trace: Trace, thread: int) -> str:
    """Name of the function that parked the thread longest."""
    rows = host.rows(thread, Activity.WAITING)
    time = np.bincount(host.name[rows], weights=(host.end - host.start)[rows])
    return trace.name(int(np.argmax(time)))
