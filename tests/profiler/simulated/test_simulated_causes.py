"""Against the truth: the cause of every idle nanosecond, in every dialect that has a host side."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import Any

import pytest
from helpers.profiler.simulator.cases import ALL
from helpers.profiler.simulator.confusion import agreement, confusion, tellable
from helpers.profiler.simulator.judged import Judged, judged, read_back, run_of, unmarked
from helpers.profiler.simulator.truth import known_time

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.attribution.classify import Activity, range_activities
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import DeviceResult
from fastfeed.profiler.model.trace import Ranges, table

PAIRS = [(name, dialect) for name in ALL for dialect in ALL[name].dialects]
WHOLE = [(name, dialect) for name, dialect in PAIRS if name != "dropped"]  # with all launches
# the late rank's, and the usual ones of its peers
TWO_CAUSES = (
    "checkpoint_and_loader",
    "late_checkpoint",
)
ONE_CAUSE = [
    (name, dialect)
    for name, dialect in PAIRS
    if ALL[name].main is not None and name not in TWO_CAUSES
]
HARDLY = 0.005  # of the window: idle time that is too short for its mixture to matter
FULL = ("nsys", "chrome", "xplane", "nvprof")
SEVERAL = sorted(name for name in ALL if len(ALL[name].dialects) > 1 and name != "dropped")


def _in_turn(pairs: list[tuple[str, str]]) -> list[Any]:
    """Each scenario in one dialect, and so each dialect of some; in the others at night."""
    names = list(ALL)
    return [
        pytest.param(
            (name, dialect),
            id=f"{name}-{dialect}",
            marks=[pytest.mark.nightly]
            if dialect != ALL[name].dialects[names.index(name) % len(ALL[name].dialects)]
            else [],
        )
        for name, dialect in pairs
    ]


@pytest.fixture(scope="module", params=_in_turn(WHOLE))
def analyzed(request: pytest.FixtureRequest) -> tuple[str, str, Judged]:
    return *request.param, judged(*request.param)


def test_idle_nanoseconds_have_their_true_cause(analyzed: tuple[str, str, Judged]) -> None:
    _, dialect, run = analyzed
    for gpu, device, truth in run.devices():
        matrix = run.confusion(gpu, device, truth)
        wrong = {
            pair: ns for pair, ns in matrix.items() if pair[1] not in tellable(dialect, pair[0])
        }
        if sum(matrix.values()) < HARDLY * run.window(gpu):
            continue
        assert agreement(matrix, dialect) >= 0.95, wrong


def test_no_cause_is_made_up(analyzed: tuple[str, str, Judged]) -> None:
    """No column of the matrix is off by more than a point of the window."""
    _, dialect, run = analyzed
    for gpu, device, truth in run.devices():
        wrong: Counter[Cause] = Counter()
        for (true, reported), ns in run.confusion(gpu, device, truth).items():
            if reported not in tellable(dialect, true):
                wrong[reported] += ns
        assert max(wrong.values(), default=0) < 0.01 * run.window(gpu), wrong


def test_the_budget_is_the_window_and_idle_is_the_truth(analyzed: tuple[str, str, Judged]) -> None:
    *_, run = analyzed
    for gpu, device, truth in run.devices():
        budget = device.whole.budget
        assert budget.window == run.window(gpu)
        assert budget.idle == sum(item.end - item.start for item in truth)
        parts = (
            budget.compute,
            budget.comm,
            budget.h2d,
            budget.other,
            budget.overhead,
            budget.idle,
        )
        assert sum(parts) == budget.window


@pytest.mark.parametrize("pair", _in_turn(ONE_CAUSE))
def test_the_main_cause(pair: tuple[str, str]) -> None:
    name, dialect = pair
    main = ALL[name].main
    assert main is not None
    reported: Counter[Cause] = Counter()
    for device in judged(name, dialect).result.devices:
        reported.update(device.whole.causes)
    assert reported.most_common(1)[0][0] in tellable(dialect, main)


@pytest.mark.parametrize("pair", _in_turn(PAIRS))
def test_the_verdict(pair: tuple[str, str]) -> None:
    name, dialect = pair
    verdict = judged(name, dialect).result.verdict
    words = ALL[name].words
    if ALL[name].main in (Cause.PEER, Cause.DEPENDENCY) and dialect == "xplane":
        # no waits of streams are recorded: what held the work back cannot be told from a loss
        words |= {"abstained"}
    assert verdict.word in words, (verdict.headline, verdict.reasons)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if number % 8 else [])
        for number, name in enumerate(SEVERAL)
    ],
)
def test_dialects_agree_on_the_share_of_input(name: str) -> None:
    shares = [
        [device.share.value for device in judged(name, dialect).result.devices]
        for dialect in ALL[name].dialects
    ]
    for of_device in zip(*shares, strict=True):
        assert max(of_device) - min(of_device) < 0.01


@pytest.mark.parametrize("dialect", ALL["hidden_wait"].dialects)
def test_a_hidden_wait_is_told_from_an_exposed_one(dialect: str) -> None:
    run = judged("hidden_wait", dialect)
    (device,) = run.result.devices
    waited = sum(item.end - item.start for item in run.run.stages if item.stage == "wait")
    wait = device.whole.input
    assert wait.waits > 1
    assert wait.exposed <= run.run.ops[0].start, "the first wait alone"
    assert 0.8 * waited < wait.hidden <= waited


@pytest.mark.parametrize("dialect", ALL["item_harmless"].dialects)
def test_synchronizing_while_the_device_works_costs_nothing(dialect: str) -> None:
    run = judged("item_harmless", dialect)
    inside = sum(
        call.end - call.start for call in run.run.calls if call.name == "cudaStreamSynchronize"
    )
    (device,) = run.result.devices
    assert inside > 0.5 * run.window(0)
    assert (
        device.whole.causes.get(Cause.SYNC, 0)
        == run.true_causes(0)[Cause.SYNC]
        < 0.005 * run.window(0)
    )


@pytest.mark.parametrize("granularity", ("nsys", "nsys_graph"))
def test_graphs_whole_or_by_node(granularity: str) -> None:
    run = judged("graphs", granularity)
    (device,) = run.result.devices
    assert run.result.verdict.word in ALL["graphs"].words
    assert device.whole.causes[Cause.INPUT] == pytest.approx(
        run.true_causes(0)[Cause.INPUT], rel=0.02
    )


@pytest.mark.parametrize(
    ("name", "word"), (("slow_loader", "abstained"), ("healthy", "not_starved"))
)
def test_a_table_without_the_host_carries_no_verdict_unless_the_device_is_busy(
    name: str, word: str
) -> None:
    run = run_of(name)
    result = analyze(read_back(run, "nvprof_csv"))
    assert result.verdict.word == word
    assert bool(result.verdict.reasons) == bool(result.verdict.record) == (word == "abstained")
    (device,) = result.devices
    between = [
        item for item in run.idle if run.ops[0].start < item.end <= max(op.end for op in run.ops)
    ]
    assert device.whole.budget.idle == sum(item.end - item.start for item in between), (
        "no marks: from op to op"
    )


def _alone(run_name: str, seed: int) -> tuple[DeviceResult, float]:
    run = ALL[run_name].make(seed)
    (device,) = analyze(read_back(run, "nsys")).devices
    shift = device.first - known_time(0, run.ops, run.ranges)[0]
    return device, agreement(confusion(run.idle, device.slices, shift), "nsys")


@pytest.mark.parametrize("seed", (1, 2))
@pytest.mark.parametrize(
    "name", ("every_fourth", "tiny_kernels", "cold_start", "replicas", "across_streams")
)
def test_other_seeds(name: str, seed: int) -> None:
    assert _alone(name, seed)[1] >= 0.95


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 6))]
)
@pytest.mark.parametrize("dialect", FULL)
def test_all_causes_together(dialect: str, seed: int) -> None:
    run = ALL["mixture"].make(seed)
    (device,) = analyze(read_back(run, dialect)).devices
    matrix = confusion(
        run.idle, device.slices, device.first - known_time(0, run.ops, run.ranges)[0]
    )
    assert len({true for true, _ in matrix}) >= 8
    for cause in {true for true, _ in matrix}:
        row = {pair: ns for pair, ns in matrix.items() if pair[0] is cause}
        if sum(row.values()) > HARDLY * device.whole.budget.window:
            assert agreement(row, dialect) >= 0.95, row


@pytest.mark.parametrize("dialect", ("nsys", "nvprof"))
def test_what_no_record_explains_could_be_input(dialect: str) -> None:
    """Without Python frames it cannot be ruled out, unless waits for input are in the record."""
    assert judged("metrics", dialect).result.verdict.word == "not_starved"
    (trace,) = read_back(run_of("metrics"), dialect)
    other = range_activities(trace) != Activity.INPUT
    assert not other.all()
    columns = {item.name: getattr(trace.ranges, item.name)[other] for item in fields(trace.ranges)}
    verdict = analyze([replace(trace, ranges=table(Ranges, **columns))]).verdict
    assert verdict.word == "abstained"
    assert verdict.record


@pytest.mark.parametrize("name", ("slow_loader", "every_fourth", "replicas"))
def test_no_rank_is_blamed_for_a_wait_that_nothing_names(name: str) -> None:
    """Without the loader's own name the wait is not input: it is unknown, and that is said."""
    run = unmarked(run_of(name))
    result = analyze(read_back(run, "nsys"))
    (device,) = result.devices
    assert device.whole.causes.get(Cause.INPUT, 0) == 0
    assert device.whole.causes[Cause.HOST_UNKNOWN] > 0.9 * device.whole.budget.idle
    assert result.verdict.word == "abstained"
