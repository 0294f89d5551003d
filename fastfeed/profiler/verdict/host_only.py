"""What a recording without device activity holds: waits for input, and launches of work that is not in it."""

from __future__ import annotations

from collections.abc import Sequence

from fastfeed.profiler.attribution.classify import Activity
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.attribution.launches import is_call_of
from fastfeed.profiler.attribution.lost_work import STARTS_WORK
from fastfeed.profiler.model.format import duration, percent, plural
from fastfeed.profiler.model.intervals import measure
from fastfeed.profiler.model.trace import RangeKind, Trace

__all__ = ["host_waits", "launch_count"]


def launch_count(traces: Sequence[Trace]) -> int:
    """The launches of kernels, copies and graphs in these traces."""
    return sum(int(is_call_of(trace, STARTS_WORK).sum()) for trace in traces)


def host_waits(traces: Sequence[Trace], input_range: str = "") -> tuple[str, ...]:
    """A sentence for each process whose main thread waited for input. Feed timelines are reported separately."""
    sentences = []
    for trace in traces:
        ranges = trace.ranges
        if len(trace.ops.start) or not len(ranges.start) or (ranges.kind == RangeKind.FEED).any():
            continue
        host = Host(trace, input_range)
        duration_ns = int(ranges.end.max() - ranges.start.min())
        for process in range(len(trace.processes)):
            waits = host.spans_of(host.main_thread(process), Activity.INPUT)
            if len(waits):
                sentences.append(
                    f"The host waited for input {percent(measure(waits) / max(duration_ns, 1))} of the recorded "
                    f"time: {plural(len(waits), 'wait')}, {duration(measure(waits))}. Only a recording with a GPU can "
                    "tell whether that delays training."
                )
    return tuple(sentences)
