"""Waits of ranks against the truth, with skewed clocks, shared processes, merged timelines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from helpers.profiler.simulator.cases import ALL, LATE_RANK
from helpers.profiler.simulator.events import MS, US
from helpers.profiler.simulator.judged import Judged, judged, read_back, run_of, unmarked
from helpers.profiler.simulator.truth import known_time

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.merge.merge import merge
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.intervals import measure, spans, subtract, union
from fastfeed.profiler.model.trace import Kind

DIALECTS = ALL["late_peer"].dialects


def _waited(run: Judged, victim: int, culprit: int) -> tuple[int, int]:
    """Nanoseconds in which the victim only waited for that rank: before its first op, and since.

    Each rank's GPU has the same number.
    """
    first = min(op.start for op in run.run.ops if op.gpu == culprit)
    mine = [item for item in run.run.proxies if (item.victim, item.culprit) == (victim, culprit)]
    others = [op for op in run.run.ops if op.gpu == victim and op.kind is not Kind.COMM]
    busy = union(spans(np.array([op.start for op in others]), np.array([op.end for op in others])))
    waits = union(
        spans(np.array([item.start for item in mine]), np.array([item.end for item in mine]))
    )
    early = waits[waits[:, 0] < first]
    return measure(subtract(early, busy)), measure(subtract(subtract(waits, early), busy))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ("late_peer", "clock_skew"))
def test_the_late_rank_and_its_cause_are_charged(name: str, dialect: str) -> None:
    run = judged(name, dialect)
    late = run.result.devices[LATE_RANK]
    for gpu, device, _ in run.devices():
        if gpu == LATE_RANK:
            continue
        # before its first op nothing of the late device is recorded
        early, true = _waited(run, gpu, LATE_RANK)
        charged: Counter[tuple[str, Cause | None]] = Counter()
        for item in device.charges:
            charged[item.late_rank, item.cause] += item.ns
        ns = charged.pop((late.label, Cause.INPUT))
        assert true > 0.15 * run.window(gpu)
        assert 0.85 * true < ns < 1.02 * (true + early)
        assert sum(charged.values()) < early + 0.05 * true


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_rank_that_waits_for_a_starved_one_is_starved(dialect: str) -> None:
    run = judged("late_peer", dialect)
    for gpu, device, _ in run.devices():
        early, true = (
            (0, run.true_causes(gpu)[Cause.INPUT])
            if gpu == LATE_RANK
            else _waited(run, gpu, LATE_RANK)
        )
        assert device.share.value > (0.85 * true) / run.window(gpu)
        assert device.share.value < (true + early) / run.window(gpu) + 0.03


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("name", "cause"), [("late_checkpoint", Cause.CHECKPOINT), ("slow_gpu", None)]
)
def test_a_rank_that_is_late_for_another_reason_starves_no_other(
    name: str, cause: Cause | None, dialect: str
) -> None:
    """A slow GPU is charged without a cause: it was busy."""
    run = judged(name, dialect)
    late = run.result.devices[LATE_RANK]
    for gpu, device, _ in run.devices():
        if gpu != LATE_RANK:
            _, true = _waited(run, gpu, LATE_RANK)
            ns = sum(
                item.ns
                for item in device.charges
                if (item.late_rank, item.cause) == (late.label, cause)
            )
            assert cause is not None or true > 0.1 * run.window(gpu)
            assert 0.85 * true < ns < 1.02 * true
        assert device.share.value < 0.02


@pytest.mark.parametrize("dialect", DIALECTS)
def test_equal_ranks_charge_no_one(dialect: str) -> None:
    run = judged("equal_ranks", dialect)
    for gpu, device, _ in run.devices():
        assert sum(item.ns for item in device.charges) < 0.01 * run.window(gpu)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ("clock_skew", "late_peer"))
def test_clock_offsets(name: str, dialect: str) -> None:
    """All leave a collective together, give or take a microsecond."""
    run = judged(name, dialect)
    skews = [host.skew_ns for host in run.run.hosts]
    starts = [device.first for device in run.result.devices]
    true = [known_time(gpu, run.run.ops, run.run.ranges)[0] for gpu in range(len(starts))]
    for rank, skew, start, at in zip(run.result.ranks, skews, starts, true, strict=True):
        # a trace's clock may begin anywhere: offsets are between the clocks of the traces
        expected = (start - at) - (starts[0] - true[0])
        assert rank.offset_ns == pytest.approx(expected, abs=3 * US)
        assert rank.collectives == 2 * run.run.steps
        if dialect == "xplane":
            assert expected == skew


def test_a_skew_changes_nothing_but_the_offset() -> None:
    run = run_of("clock_skew")
    assert run.hosts[1].skew_ns == 5 * MS
    even = replace(run, hosts=tuple(replace(host, skew_ns=0) for host in run.hosts))
    skewed, straight = judged("clock_skew", "chrome").result, analyze(read_back(even, "chrome"))
    assert skewed.ranks[1].offset_ns - straight.ranks[1].offset_ns == 5 * MS
    for item, other in zip(skewed.devices, straight.devices, strict=True):
        assert item.charges == other.charges
        assert item.share == other.share


def test_ranks_in_one_report() -> None:
    """One nsys over torchrun: three processes in one file, each with a GPU that it calls 0."""
    run = run_of("late_peer")
    result = analyze(read_back(run, "nsys", together=True))
    assert len(result.devices) == 3
    idle = sorted(device.whole.budget.idle for device in result.devices)
    true = Counter[int]()
    for item in run.idle:
        true[item.gpu] += item.end - item.start
    assert idle == sorted(true.values())
    assert result.verdict.word in ALL["late_peer"].words


def test_a_gpu_of_two_processes_is_busy_with_either() -> None:
    run = judged("two_processes", "nsys")
    (device,) = run.result.devices
    spans = np.concatenate(list(device.busy.values()))
    assert (spans[:, 1] > spans[:, 0]).all()
    assert device.whole.budget.idle == sum(item.end - item.start for item in run.run.idle)


@pytest.mark.parametrize("dialect", ("nsys", "chrome"))
@pytest.mark.parametrize("name", ("slow_loader", "hidden_wait"))
def test_the_feeds_timeline_names_the_wait(name: str, dialect: str) -> None:
    """A loader without annotations, in a trace merged with the feed's own timeline."""
    run = run_of(name)
    (trace,), (timeline,) = read_back(unmarked(run), dialect), read_back(run, "timeline")
    result = analyze([merge(trace, timeline)])
    (device,) = result.devices
    true = sum(item.end - item.start for item in run.idle if item.cause is Cause.INPUT)
    assert device.whole.causes.get(Cause.INPUT, 0) == pytest.approx(true, rel=0.02, abs=50 * US)
    assert result.verdict.word in ALL[name].words
    (feed,) = result.feeds
    assert feed.batches == run.steps
    assert feed.busiest == "decode"


def test_timelines_name_the_wait_of_a_late_rank() -> None:
    """Each rank's trace with its own feed's timeline, on clocks that differ by the same skew."""
    run = run_of("clock_skew")
    pairs = zip(read_back(unmarked(run), "nsys"), read_back(run, "timeline"), strict=True)
    result = analyze([merge(trace, timeline) for trace, timeline in pairs])
    marked = judged("clock_skew", "nsys").result
    for item, other in zip(result.devices, marked.devices, strict=True):
        assert item.share.value == pytest.approx(other.share.value, abs=0.005)
    assert result.verdict.word == marked.verdict.word
    assert result.devices[0].charges[0].cause is Cause.INPUT


@pytest.mark.parametrize(
    "name", ("healthy", "deep_queue", "late_peer", "across_streams", "slow_loader")
)
def test_what_is_judged_is_most_of_what_the_devices_did(name: str) -> None:
    """A host far ahead is done long before its device: a step is where its work ran."""
    run = judged(name, "nsys")
    for gpu, device, _ in run.devices():
        assert device.judged.budget.window > 0.6 * run.window(gpu)
