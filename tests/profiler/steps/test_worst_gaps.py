"""What is said of the longest idle gaps."""

from __future__ import annotations

from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler import analysis
from fastfeed.profiler.model.trace import RangeKind


def test_a_step_is_named_once():
    """The host is a step ahead of the device, inside a range that is only a step itself."""
    made, ms = TraceBuilder(), 1_000_000
    for step in range(8):
        begin = 20 * step * ms
        made.range(begin, begin + 20 * ms, f"step {step}", RangeKind.NVTX)
        made.op(begin + 12 * ms, begin + 19 * ms, (begin + 10 * ms, begin + 10 * ms + 9_000))
        made.op(begin + 21 * ms, begin + 24 * ms, (begin + 18 * ms, begin + 18 * ms + 9_000))
    (device,) = analysis.analyze([made.trace()]).devices
    assert device.worst and any(gap.step for gap in device.worst)
    assert not any(gap.inside.startswith("step") for gap in device.worst)
