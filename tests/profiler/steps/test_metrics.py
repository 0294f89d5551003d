"""Numbers that advice is made of: which steps wait, and how often things happen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.trace import Kind, RangeKind

MS = 1_000_000


def metrics(
    waits: Sequence[int], builder: TraceBuilder | None = None, **about: Any
) -> dict[str, float]:
    """Of a run whose steps wait so many milliseconds for input and compute for 100."""
    builder = builder or TraceBuilder()
    at = 0
    builder.op(at - MS, at, (at - 2 * MS, at - 2 * MS))
    for n, wait in enumerate(waits):
        end = at + (wait + 100) * MS
        builder.range(at, end, f"ProfilerStep#{n}", RangeKind.STEP)
        if wait:
            builder.range(at, at + wait * MS, "DataLoader.__next__", RangeKind.NVTX)
        builder.op(at + wait * MS, end, (at + wait * MS, at + wait * MS))
        at = end
    (device,) = analyze([builder.trace(**about)]).devices
    return dict(device.metrics)


def test_every_step_the_same():
    values = metrics([10] * 20)
    assert (values["wait_steps"], values["wait_ms_per_step"], values["wait_ms_worst"]) == (
        1,
        10,
        10,
    )
    assert not {"wait_every", "wait_rare", "wait_grows"} & set(values)


@pytest.mark.parametrize("every", (2, 4, 8))
def test_every_so_many_steps(every: int):
    values = metrics(([40] + [0] * (every - 1)) * 6)
    assert values["wait_every"] == every
    assert "wait_rare" not in values


def test_now_and_then():
    waits = [0] * 40
    waits[7] = waits[9] = waits[30] = 300
    values = metrics(waits)
    assert values["wait_rare"] == 1
    assert values["wait_steps"] == pytest.approx(3 / 40)
    assert "wait_every" not in values


def test_more_and_more():
    assert metrics(range(10, 34))["wait_grows"] == pytest.approx(27.5 / 15.5)
    assert metrics(range(33, 9, -1))["wait_grows"] == pytest.approx(15.5 / 27.5)
    assert "wait_grows" not in metrics(range(20, 29)), "nine steps are no trend"
    assert "wait_grows" not in metrics([5, 40, 10, 30] * 5)


@pytest.mark.parametrize(
    ("recorded", "cores"), [(8, 8.0), ("16", 16.0), (0, None), ("many", None), (None, None)]
)
def test_cores_of_the_machine(recorded: object, cores: float | None):
    assert metrics([0] * 5, cpu_count=recorded).get("cores") == cores


def test_copies_by_their_bytes():
    """2 MB pageable and 6 MB pinned in 1 ms each, half of the second behind a kernel."""
    builder = TraceBuilder()
    builder.op(0, MS, (-5, -4), kind=Kind.H2D, bytes=2_000_000, pageable=1, stream=9)
    builder.op(2 * MS, 3 * MS, (-3, -2), kind=Kind.H2D, bytes=6_000_000, pageable=0, stream=9)
    builder.op(2 * MS + MS // 2, 10 * MS, (-1, 0))
    (device,) = analyze([builder.trace()]).devices
    assert device.metrics["h2d_gbps"] == pytest.approx(4)
    assert device.metrics["h2d_pageable"] == 0.25
    assert device.metrics["prefetched"] == 0.25
    assert "h2d_mb_per_step" not in device.metrics


def test_copies_that_claim_more_bytes_than_64_bits_hold():
    builder = TraceBuilder()
    for at, pageable in ((0, 1), (2, 0), (4, 0), (6, 0)):
        builder.op(
            at * MS,
            (at + 1) * MS,
            (-5, -4),
            kind=Kind.H2D,
            bytes=1 << 62,
            pageable=pageable,
            stream=9,
        )
    builder.op(7 * MS, 10 * MS, (-1, 0))
    (device,) = analyze([builder.trace()]).devices
    assert device.metrics["h2d_pageable"] == 0.25
    assert device.metrics["h2d_gbps"] == pytest.approx(2**62 / MS)


def test_synchronizing_counts_only_the_idle_part_as_lost():
    builder = TraceBuilder()
    builder.call(20 * MS, 102 * MS, "cudaDeviceSynchronize")
    values = metrics([0, 4, 0, 0, 0, 0], builder)
    assert (values["sync_calls"], values["sync_ms"], values["sync_idle_ms"]) == (1, 82, 2)
    assert values["sync_per_step"] == pytest.approx(1 / 6)
