"""Runs of equal steps, made by hand: each waits for its batch, then computes to its end."""

from __future__ import annotations

from fastfeed.profiler.model.trace import Kind, RangeKind, Trace
from helpers.profiler.handmade import TraceBuilder

PERIOD_NS = 100_000_000
_KERNELS = 10
_LAUNCH_NS = 10_000


def even_steps(
    steps: int,
    share: float,
    *,
    lacks: float = 0.0,
    mark: str = "ProfilerStep#{}",
    kind: RangeKind = RangeKind.STEP,
    waits: str = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    optimizer: str = "",
    around: str = "",
    tail: float = 0.0,
) -> Trace:
    """A trace of `steps` steps of 100 ms that spend `share` of their time waiting for input.

    `lacks`: the device was not recorded for this fraction of the first step. `mark`, `waits` and
    `optimizer` name the ranges of each step, "" for none; `around` names one range around all of
    them. `tail`: the fraction of a step, from its end, that lies outside of its mark.
    """
    builder = TraceBuilder()
    if around:
        builder.range(0, steps * PERIOD_NS, around, RangeKind.NVTX)
    for step in range(steps):
        start = step * PERIOD_NS
        end, ready = start + PERIOD_NS, start + round(share * PERIOD_NS)
        if mark:
            builder.range(start, end - round(tail * PERIOD_NS), mark.format(step), kind)
        if waits:
            builder.range(start, ready, waits, RangeKind.NVTX)
        if optimizer:
            builder.range(end - 2_000_000, end, optimizer, RangeKind.NVTX)
        length = (end - ready) // _KERNELS
        for kernel in range(_KERNELS):
            first = ready + kernel * length
            last = end if kernel == _KERNELS - 1 else first + length
            if first < lacks * PERIOD_NS:
                continue
            call = max(first - _LAUNCH_NS, ready), max(first - _LAUNCH_NS, ready) + 1
            if kernel == 0:
                builder.op(first + 1, last, call, kind=Kind.H2D, name="Memcpy HtoD", bytes=1 << 20)
            else:
                builder.op(first, last, call, name=f"kernel_{kernel}")
    builder.call(
        steps * PERIOD_NS - _LAUNCH_NS, steps * PERIOD_NS + _LAUNCH_NS, "cudaDeviceSynchronize"
    )
    return builder.trace()
