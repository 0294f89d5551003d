"""Random runs with known truth: the share, the word, the steps, and their confidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from helpers.profiler.simulator.random_runs import RandomRun, random_run
from helpers.profiler.simulator.to_trace import as_traces

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.result import DeviceResult, Result
from fastfeed.profiler.verdict.verdict import starved_word

FAST = 30
SLOW = 100
POINT = 0.01


@dataclass(frozen=True, slots=True)
class Outcome:
    run: RandomRun
    result: Result
    device: DeviceResult  # whose truth is known

    def __str__(self) -> str:
        verdict, steps = self.result.verdict, self.device.steps
        return (
            f"{self.run.about}; said: {verdict.word}, {verdict.confidence},"
            f" {self.device.share.value:.1%}, {int(steps.steady.sum())} steps by"
            f" {steps.found_by or 'nothing'}"
        )

    @property
    def has_right_share(self) -> bool:
        low, high = self.run.shares
        return low - POINT <= self.device.share.value <= high + POINT

    @property
    def has_right_word(self) -> bool:
        """The word of a true share within a point; `borderline` if the interval allows it."""
        true = {share + off for share in self.run.shares for off in (-POINT, 0.0, POINT)}
        share = self.device.share
        return self.result.verdict.word in {
            starved_word(replace(share, value=max(one, 0.0))) for one in true
        }

    @property
    def is_confirmed_and_wrong(self) -> bool:
        """Wrong steps or a wrong share, or a word other than that of the truth."""
        device, run = self.device, self.run
        if self.result.verdict.confidence != "confirmed":
            return False
        steps = max(int(device.steps.steady.sum()), 1)
        period = device.judged.budget.window / steps
        has_wrong_period = abs(period / run.period_ns - 1) > 0.2
        return (
            device.steps.guessed
            or has_wrong_period
            or not (self.has_right_share and self.has_right_word)
        )


def outcomes(seeds: range) -> Iterator[Outcome]:
    for seed in seeds:
        run = random_run(seed)
        result = analyze(as_traces(run.recorded))
        yield Outcome(run, result, result.devices[run.late])


def check(seeds: range) -> None:
    every = list(outcomes(seeds))
    assert not [str(one) for one in every if not one.has_right_share]
    wrong = [str(one) for one in every if not one.has_right_word]
    assert len(wrong) <= len(every) // 100, wrong
    assert not [str(one) for one in every if one.is_confirmed_and_wrong]
    assert not [
        str(one) for one in every if "were lost" in " ".join(one.result.verdict.counter_evidence)
    ], "nothing is lost"
    assert len({one.device.steps.found_by.split(" (")[0] for one in every}) >= 5, (
        "several kinds of marks were met"
    )
    assert {"not_starved", "starved", "severe"} <= {one.result.verdict.word for one in every}


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(100_739, id="three-waits-of-a-feed"),
        pytest.param(200_248, id="three-waits-of-tensorflow"),
        pytest.param(300_043, id="bursts-between-annotations"),
        pytest.param(300_881, id="long-bursts"),
        pytest.param(313, id="backward-in-other-threads-of-an-unmarked-run"),
        pytest.param(300_808, id="last-step-open-after-short-first-ones"),
    ],
)
def test_runs_that_were_judged_wrongly(seed: int) -> None:
    (outcome,) = outcomes(range(seed, seed + 1))
    assert (
        outcome.has_right_share and outcome.has_right_word and not outcome.is_confirmed_and_wrong
    ), str(outcome)


def test_random_runs() -> None:
    check(range(FAST))


@pytest.mark.nightly
def test_a_hundred_random_runs() -> None:
    check(range(FAST, SLOW))


@pytest.mark.nightly
def test_a_thousand_random_runs() -> None:
    check(range(SLOW, 1_000))
