"""Runs without a GPU in their recording: feeds are compared, and gated, by waits for batches."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from helpers.profiler.handmade import TraceBuilder
from rich.console import Console

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.compare.changes import MetricChange
from fastfeed.profiler.compare.ci_gate import ABSTAINED, TRIPPED, check, parse
from fastfeed.profiler.compare.compare import compare
from fastfeed.profiler.model.result import Result
from fastfeed.profiler.model.trace import RangeKind
from fastfeed.profiler.reports.difference import as_dict, render

MS = 1_000_000


def run(wait: int, batches: int = 40, step: int = 50, first: int = 900, jitter: int = 2) -> Result:
    """A trainer that waits `wait` of every `wait + step` milliseconds; the first wait is long."""
    builder = TraceBuilder()
    at = 0
    for n in range(batches):
        length = (first if n == 0 else wait + n % (jitter + 1)) * MS
        builder.range(at, at + length, "fastfeed:wait", RangeKind.FEED)
        builder.range(at, at + 30 * MS, "fastfeed:decode", RangeKind.FEED, thread=1)
        at += length + step * MS
    return analyze([builder.trace(feeds=({"feed": "f1", "name": "train", "pid": 1, "rank": 0},))])


def test_less_waiting_is_better():
    comparison = compare(run(wait=30), run(wait=5))
    assert comparison.outcome == "better"
    (change,) = comparison.feeds
    assert (change.label, change.wait.direction, change.batch.direction) == (
        "train",
        "less",
        "less",
    )
    assert change.wait.before == pytest.approx(
        (900 + 31 * 39) / (900 + 31 * 39 + 50 * 40), abs=0.001
    )
    assert change.wait.before_ns == pytest.approx(31 * MS, rel=0.01), (
        "per batch, the first is no part of it"
    )
    assert change.batch.change_ns is not None
    assert change.batch.change_ns[0] == pytest.approx(-25 * MS, rel=0.01)
    assert comparison.sentence.startswith(
        "neither recording has GPU activity, so feeds are compared; a batch every 81"
    )
    assert "the trainer waits 51." in comparison.sentence and "significant" in comparison.sentence


def test_the_same_again_is_the_same():
    assert compare(run(wait=30), run(wait=30)).outcome == "same"


def test_one_batch_is_too_few():
    comparison = compare(run(wait=30, batches=1), run(wait=5, batches=1))
    assert comparison.outcome == "unknown"
    assert "the trainer waits" in comparison.sentence


def test_it_is_printed_and_written():
    comparison = compare(run(wait=30), run(wait=5))
    out = StringIO()
    render(comparison, Console(file=out, width=80, force_terminal=False))
    assert (
        "batch to batch" in out.getvalue()
        and "trainer waits" in out.getvalue()
        and "decode" in out.getvalue()
    )
    assert max(map(len, out.getvalue().splitlines())) <= 80
    document = json.loads(json.dumps(as_dict(comparison), allow_nan=False))
    (feed,) = document["feeds"]
    assert feed["wait"]["moved"] == "less"
    assert [stage["key"] for stage in feed["stages"]] == ["decode"]


def test_the_name_of_a_stage_may_have_a_colon():
    assert MetricChange("stage:decode:jpeg", "decode:jpeg", 0.1, 0.2).name == "decode:jpeg"
    assert MetricChange("step", "step", 1.0, 1.0).name == "step"


@pytest.mark.parametrize(("wait", "code"), [(30, TRIPPED), (0, 0)])
def test_input_is_gated_by_what_the_trainer_waited(wait: int, code: int):
    result = run(wait, jitter=0, first=wait)
    assert result.verdict.word == "abstained"
    got, (sentence,) = check([parse("input>5%")], result)
    assert got == code
    assert "no GPU was recorded, and the trainer waited" in sentence


def test_other_limits_need_a_gpu():
    code, (sentence,) = check([parse("input>5%"), parse("idle>30%")], run(0))
    assert code == ABSTAINED
    assert "cannot be judged" in sentence


def test_feeds_of_two_names_are_one_pair_where_there_is_one_each():
    builder = TraceBuilder()
    for n in range(5):
        builder.range(n * 10 * MS, n * 10 * MS + MS, "fastfeed:wait", RangeKind.FEED)
    other = analyze(
        [builder.trace(feeds=({"feed": "x", "name": "training", "pid": 1, "rank": 0},))]
    )
    (change,) = compare(run(30), other).feeds
    assert change.label == "train / training"
