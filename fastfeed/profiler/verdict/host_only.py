"""A recording without a device still says how long its host waited for input."""

from __future__ import annotations

from collections.abc import Sequence

from fastfeed.profiler.attribution.classify import Doing
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.model.format import duration, percent, plural
from fastfeed.profiler.model.intervals import measure
from fastfeed.profiler.model.trace import RangeKind, Trace

__all__ = ["host_waits"]


def host_waits(traces: Sequence[Trace], input_range: str = "") -> tuple[str, ...]:
    """A sentence for each process whose driving thread waited for input; a feed's timeline speaks for itself."""
    said = []
    for trace in traces:
        ranges = trace.ranges
        if len(trace.ops.start) or not len(ranges.start) or (ranges.kind == RangeKind.FEED).any():
            continue
        host = Host(trace, input_range)
        lasted = int(ranges.end.max() - ranges.start.min())
        for process in range(len(trace.processes)):
            waits = host.what(host.driver(process), Doing.INPUT)
            if len(waits):
                said.append(
                    f"The host waited for input {percent(measure(waits) / max(lasted, 1))} of the time that was "
                    f"recorded: {plural(len(waits), 'wait')}, {duration(measure(waits))}. Whether a GPU would have "
                    "felt it, only a recording with one can say."
                )
    return tuple(said)
