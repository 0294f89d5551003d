"""Idle time after a synchronizing call: charged to it if it would not be there without it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.attribution.attribution import attribute_device
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import DeviceResult
from fastfeed.profiler.model.trace import RangeKind

US, MS = 1_000, 1_000_000
LAUNCH, RETURN = 5 * US, 3 * US


def program(
    rounds: int,
    python: int,
    kernels: Sequence[int],
    *,
    syncs: bool = True,
    steps: bool = False,
    site: str = "",
) -> TraceBuilder:
    """One thread runs Python, launches kernels of these lengths, and waits for the last of them."""
    builder = TraceBuilder()
    host = device = 0
    for number in range(rounds):
        begin = host
        if steps:
            builder.range(host, host + US, "DataLoader.__next__", RangeKind.OP)
            host += US
        builder.range(host, host + python, "train.py(3): work")
        host += python
        for length in kernels:
            device = max(device, host + LAUNCH)
            builder.op(device, device + length, (host, host + LAUNCH))
            device += length
            host += LAUNCH
        if syncs:
            returned = max(host, device) + RETURN
            if site:
                builder.range(host, returned, site)
                builder.range(host, returned, "torch/_tensor.py(9): item")
            builder.range(host, returned, "aten::item", RangeKind.OP)
            builder.range(host, returned, "aten::_local_scalar_dense", RangeKind.OP)
            builder.call(host, returned, "cudaStreamSynchronize")
            host = returned
        if steps:
            builder.range(begin, host, f"ProfilerStep#{number}", RangeKind.STEP)
    return builder


def device(builder: TraceBuilder) -> DeviceResult:
    (result,) = analyze([builder.trace()]).devices
    return result


def test_a_host_that_would_be_ahead_waits_for_its_own_waiting():
    judged = device(program(40, 100 * US, [80 * US] * 4)).whole
    assert judged.causes[Cause.SYNC] > 0.95 * judged.budget.idle
    assert judged.budget.idle == 39 * (100 * US + LAUNCH + RETURN)


def test_a_host_that_is_too_slow_is_so_without_waiting():
    """0.4 ms of Python per 40 us of kernels: the replay is as idle, less the 43 us in each call."""
    judged = device(program(40, 400 * US, [40 * US])).whole
    assert judged.causes[Cause.SYNC] == pytest.approx(39 * 43 * US, rel=0.05)
    assert judged.causes[Cause.PYTHON] == pytest.approx(39 * (400 - 40) * US, rel=0.02)


def test_drains_that_cost_little_are_harmless():
    judged = device(program(40, 100 * US, [MS] * 4)).whole
    assert judged.causes == {
        Cause.PYTHON: 39 * 100 * US,
        Cause.LAUNCH: 39 * LAUNCH,
        Cause.SYNC: 39 * RETURN,
    }


def test_without_synchronizing_nothing_changes():
    judged = device(program(40, 500 * US, [40 * US], syncs=False)).whole
    assert Cause.SYNC not in judged.causes


def test_one_long_activity_is_a_cause_of_its_own():
    judged = device(program(20, 2 * MS, [MS] * 4)).whole
    assert judged.causes[Cause.HOST_CODE] == 19 * 2 * MS


@pytest.mark.parametrize("seed", range(8))
def test_what_is_left_is_what_a_run_without_synchronizing_idles(seed: int):
    """The simulated program without the calls has the idle time that is not synchronization's."""
    draws = np.random.default_rng(seed)
    python = int(draws.integers(20, 400)) * US
    kernels = draws.integers(10, 120, int(draws.integers(1, 6))) * US
    with_calls = device(program(60, python, kernels.tolist())).whole
    without = device(program(60, python, kernels.tolist(), syncs=False)).whole
    left = with_calls.budget.idle - with_calls.causes.get(Cause.SYNC, 0)
    assert left == pytest.approx(without.budget.idle, abs=60 * LAUNCH)


def test_what_is_not_recorded_counts_only_where_waits_for_input_are():
    def unknown(steps: bool) -> dict[Cause, int]:
        builder = program(40, 100 * US, [80 * US] * 4, steps=steps)
        ranges = next(kind for kind in builder.rows if kind.__name__ == "Ranges")
        train = builder.names["train.py(3): work"]
        builder.rows[ranges] = [row for row in builder.rows[ranges] if row["name"] != train]
        trace = builder.trace()
        slices = attribute_device(Host(trace), 0).slices
        return {
            cause: int((slices.end - slices.start)[slices.cause == cause].sum()) for cause in Cause
        }

    assert unknown(steps=True)[Cause.HOST_UNKNOWN] == 0
    assert unknown(steps=False)[Cause.HOST_UNKNOWN] == 39 * 100 * US


@pytest.mark.parametrize(
    ("site", "name"), [("", "aten::item"), ("loop.py(12): log", "loop.py(12): log")]
)
def test_the_call_site_is_named_and_counted_per_step(site: str, name: str):
    result = analyze([program(40, 100 * US, [80 * US] * 4, steps=True, site=site).trace()])
    remedy = next(remedy for remedy in result.verdict.remedies if remedy.family == "sync")
    assert f"The host synchronizes 1.0 times per step, most of it in {name}: " in remedy.evidence
    (judged,) = result.devices
    assert judged.steady is not None
    step = (
        (judged.steady.budget.window - judged.steady.causes[Cause.SYNC])
        / judged.metrics["steps"]
        / US
    )
    assert f"; a step without them takes about {step:.0f} µs (estimate)." in remedy.evidence


def test_a_call_without_frames_and_operators_is_named_itself():
    builder = program(40, 100 * US, [80 * US] * 4, steps=True)
    builder.rows = {kind: rows for kind, rows in builder.rows.items() if kind.__name__ != "Ranges"}
    trace = builder.trace()
    slices = attribute_device(Host(trace), 0).slices
    assert {trace.name(int(name)) for name in slices.name[slices.cause == Cause.SYNC]} == {
        "cudaStreamSynchronize"
    }
