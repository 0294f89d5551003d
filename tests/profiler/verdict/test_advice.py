"""Advice: what it computes, what it leaves out, whom it is about, how its numbers read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.profiler.results_made import device

from fastfeed.profiler.model.causes import FAMILIES, Cause
from fastfeed.profiler.model.result import ABSENT_RANKS, DeviceResult, FeedResult, PeerWait, Remedy
from fastfeed.profiler.ranks.ranks import late_ranks
from fastfeed.profiler.verdict.advice import remedies

MS = 1_000_000
FEED = FeedResult(
    feed="a1",
    name="train",
    rank=0,
    batches=100,
    span_ns=1_000 * MS,
    waited_ns=400 * MS,
    stages={"decode": (100, 3_600 * MS), "wait": (100, 400 * MS)},
    threads=4,
    busiest="decode",
)


def build(
    metrics: dict[str, float] | None = None, wait: int = 30 * MS, **more: object
) -> DeviceResult:
    result = device(wait=wait)
    steps = {key: result.metrics[key] for key in ("steps", "step_ms") if key in result.metrics}
    return replace(result, metrics={**steps, **(metrics or {})}, **more)


def of(target: DeviceResult, family: str, *feeds: FeedResult) -> Remedy:
    return next(remedy for remedy in remedies(target, feeds) if remedy.family == family)


def with_causes(**causes: int) -> DeviceResult:
    """A device that computes for a second, and is idle for these (milliseconds)."""
    result = build()
    lost = {Cause[name]: ms * MS for name, ms in causes.items()}
    idle = sum(lost.values())
    budget = replace(
        result.judged.budget,
        window=1_000 * MS + idle,
        compute=1_000 * MS,
        comm=0,
        h2d=0,
        other=0,
        idle=idle,
    )
    return replace(result, steady=replace(result.judged, budget=budget, causes=lost))


def test_the_costliest_family_is_first_and_crumbs_are_left_out():
    result = remedies(with_causes(INPUT=50, PYTHON=60, FRAMEWORK=20, SYNC=3))
    assert [remedy.family for remedy in result] == [
        "launch",
        "input",
    ], "3 of 1133 ms are not worth a line"
    assert result[0].share == pytest.approx(80 / 1133)
    assert result[0].ceiling == pytest.approx(1133 / 1053)
    assert result[0].causes == {Cause.PYTHON: 60 * MS, Cause.FRAMEWORK: 20 * MS}


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_a_sentence_that_ends(cause: Cause):
    (result,) = remedies(with_causes(**{cause.name: 100}))
    assert result.family in FAMILIES
    assert result.evidence.endswith(".") and result.change.endswith(".")
    assert "0 ms ahead" not in result.evidence and "nan" not in result.evidence


@pytest.mark.parametrize(
    ("metrics", "change"),
    [
        (
            {"wait_ms_per_step": 60.0, "step_ms": 90.0},
            "DataLoader(num_workers=3, ",
        ),  # 60 ms of work per 30 ms, and one
        ({"wait_ms_per_step": 10.0, "step_ms": 90.0}, "DataLoader(num_workers=2, "),
        ({"wait_ms_per_step": 89.0, "step_ms": 90.0, "cores": 8.0}, "DataLoader(num_workers=8, "),
        ({"wait_ms_per_step": 89.0, "step_ms": 90.0}, "DataLoader(num_workers=os.cpu_count(), "),
        ({"wait_ms_per_step": 90.0, "step_ms": 90.0}, "Give the DataLoader workers: "),
    ],
)
def test_workers_are_as_many_as_keep_up_and_no_more_than_cores(
    metrics: dict[str, float], change: str
):
    result = of(build({"single_process": 1.0, **metrics}), "input")
    assert result.change.startswith(change)
    assert ("90 workers would keep up" in result.change) == (metrics["wait_ms_per_step"] == 89)


@pytest.mark.parametrize(
    ("metrics", "change", "evidence"),
    [
        (
            {"wait_every": 4.0, "single_process": 0.0},
            "num_workers above 4;",
            "A long one every 4 steps.",
        ),
        ({"wait_every": 4.0}, "Prefetch more than 4 batches", "A long one every 4 steps."),
        (
            {"wait_every": 100.0, "single_process": 0.0},
            "persistent_workers=True",
            "every 100 steps.",
        ),
        ({"wait_every": 100.0}, "next epoch's batches", "every 100 steps."),
        (
            {"wait_rare": 1.0, "wait_steps": 0.05, "wait_ms_worst": 1234.0},
            "Prefetch deeper",
            "Nearly all of it in 5 % of the steps, the worst 1.23 s.",
        ),
        ({"wait_grows": 2.0}, "look at storage first", "Waits grow: 2.0 times as long"),
        ({"wait_grows": 0.4}, "Make batches", "They shrink over the steps"),
        ({"single_process": 0.0}, "more workers while cores are free", "hidden."),
        ({}, "more decoding threads", "hidden."),
    ],
)
def test_which_steps_wait_says_what_to_do(metrics: dict[str, float], change: str, evidence: str):
    result = of(build(metrics), "input")
    assert change in result.change
    assert evidence in result.evidence


def test_pytorchs_words_are_for_pytorchs_loader():
    for metrics in (
        {"wait_every": 4.0},
        {"wait_every": 100.0},
        {"wait_rare": 1.0, "wait_steps": 0.1, "wait_ms_worst": 9.0},
        {},
    ):
        change = of(build(metrics), "input").change
        assert not {"num_workers", "in_order", "persistent_workers", "prefetch_factor"} & set(
            change.replace("=", " ").split()
        )


def test_a_feed_that_is_waited_for_is_told_its_threads():
    """4 threads busy 90 %, the trainer waits 400 of 1,000 ms: 4 * 1000 / 600 = 6.7."""
    result = of(build(wait=30 * MS), "input", FEED)
    assert (
        result.change
        == "decode takes 100 % of the feed's work, 36.0 ms each time: threads=7 instead of 4 while"
        " cores are free, else decode='gpu'."
    )


def test_a_feed_that_no_one_waits_for_is_not_what_the_gpu_waits_for():
    change = of(build(), "input", replace(FEED, waited_ns=0)).change
    assert "threads=" not in change and "feed" not in change


def test_a_trainer_that_does_nothing_but_wait_gets_no_absurd_number():
    for waited in (1_000 * MS, 999 * MS):
        for busiest in ("decode", "read"):
            feed = replace(
                FEED, waited_ns=waited, busiest=busiest, stages={busiest: (100, 3_600 * MS)}
            )
            change = of(build(), "input", feed).change
            assert "set threads= to the number of cores" in change or "more than 20 times" in change


def test_another_ranks_input_is_named():
    result = build(
        wait=0,
        charges=(
            PeerWait("rank 1, GPU 0", Cause.INPUT, 500 * MS),
            PeerWait("rank 1, GPU 0", None, 900 * MS),
        ),
    )
    remedy = of(result, "input")
    assert (
        remedy.change
        == "Fix the input of rank 1, GPU 0; the others wait for it inside collectives."
    )
    assert remedy.evidence.startswith("500 ms inside collectives")


def test_waiting_for_ranks_on_the_host_is_not_about_gradients():
    assert "barriers" in of(with_causes(HOST_COMM=100), "comm").change


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        (
            {"kernel_us": 2.0, "lead_us": 9488.0},
            "the median kernel runs 2.00 µs; launches are 9.49 ms ahead of the GPU.",
        ),
        (
            {"kernel_us": 2.0, "lead_us": -3.0},
            "the median kernel runs 2.00 µs; launches are not ahead of the GPU.",
        ),
        ({"launches_per_step": 1234.4}, "1,234 device operations per step."),
    ],
)
def test_launching(metrics: dict[str, float], says: str):
    target = with_causes(LAUNCH=100)
    assert of(replace(target, metrics=metrics), "launch").evidence.endswith(says)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(0.0412, "0.04 GB/s"), (7.04, "7.0 GB/s"), (123.4, "123 GB/s"), (4321.0, "4,321 GB/s")],
)
def test_copies(rate: float, expected: str):
    target = with_causes(H2D_STAGING=100)
    few = of(replace(target, metrics={"h2d_gbps": rate, "h2d_pageable": 0.02}), "h2d")
    assert expected in few.evidence and "pageable" not in few.evidence
    assert few.change.startswith("Copy the next batch on its own stream")
    assert (
        "98 % of the bytes come from pageable"
        in of(replace(target, metrics={"h2d_pageable": 0.98}), "h2d").evidence
    )


def test_calls_that_hardly_happen_are_counted_not_averaged():
    target = replace(with_causes(ALLOC=100), metrics={"alloc_calls": 1.0, "alloc_per_step": 0.04})
    assert "freed 1 time;" in of(target, "alloc").evidence


def test_many_calls_per_step_are_a_whole_number():
    target = replace(
        with_causes(ALLOC=100), metrics={"alloc_calls": 2_256.0, "alloc_per_step": 564.0}
    )
    assert "freed 564 times per step;" in of(target, "alloc").evidence


@pytest.mark.parametrize(
    ("culprit", "cause", "words"),
    [
        (
            "rank 7",
            Cause.SYNC,
            "Make rank 7 as fast as the others: it is late because of synchronization.",
        ),
        ("rank 7", None, "Find out why rank 7 is late: nothing recorded explains it."),
        (ABSENT_RANKS, None, "Analyze the traces of all ranks together"),
    ],
)
def test_what_to_do_about_a_late_rank_is_no_guess(culprit: str, cause: Cause | None, words: str):
    result = build()
    budget = replace(
        result.judged.budget,
        window=200 * MS,
        comm=100 * MS,
        compute=50 * MS,
        h2d=0,
        other=0,
        idle=50 * MS,
    )
    late = replace(
        result,
        steady=replace(result.judged, budget=budget, causes={Cause.PYTHON: 50 * MS}),
        charges=(PeerWait(culprit, cause, 90 * MS),),
        late_rank=late_ranks([(PeerWait(culprit, cause, 90 * MS),)], {})[0],
    )
    assert of(late, "comm").change.startswith(words)


def test_kernels_that_load_lazily_are_not_compiled():
    change = of(with_causes(MODULE_LOAD=100), "module_load").change
    assert "CUDA_MODULE_LOADING=EAGER" in change and "compile" not in change


def test_hip_has_no_variable_that_loads_eagerly():
    change = of(
        replace(with_causes(MODULE_LOAD=100), names=("hipModuleLoad",)), "module_load"
    ).change
    assert "CUDA" not in change and "warm-up" in change
