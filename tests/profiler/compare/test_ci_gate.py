"""Limits for CI: what they mean, what they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.profiler.simulator.judged import judged

from fastfeed.errors import ConfigError
from fastfeed.profiler.compare.ci_gate import Gate, check, parse, share
from fastfeed.profiler.model.causes import FAMILIES, Cause
from fastfeed.profiler.model.format import percent


def test_parses():
    assert parse("input>5%") == Gate("input", 0.05)
    assert parse(" cpu_contention > 2.5 % ") == Gate("cpu_contention", 0.025)
    assert str(parse("idle>30.0%")) == "idle>30%"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("input>5", "must be a cause and a share of time, such as 'input>5%', got 'input>5'"),
        ("input<5%", "such as 'input>5%'"),
        ("", "such as 'input>5%'"),
        ("inputs>5%", r"--fail-on takes one of alloc, .*input, .*; got 'inputs'"),
        ("input>100%", "must allow less than 100%"),
    ],
)
def test_refuses(text: str, says: str):
    with pytest.raises(ConfigError, match=says):
        parse(text)


def test_shares_of_causes_sum_to_idle():
    device = judged("slow_loader", "nsys").result.devices[0]
    idle = share(device, "idle")
    assert idle > 0.1
    assert sum(share(device, about.key) for about in Cause if about.key not in FAMILIES) < idle
    families = sum(share(device, key) for key in FAMILIES if key != "input")
    own = sum(ns for cause, ns in device.judged.causes.items() if cause.family == "input")
    # part of their families, and not idle
    exposed = device.judged.budget.h2d + device.judged.budget.comm
    assert families + (own - exposed) / device.judged.budget.window == pytest.approx(idle)
    assert share(device, "input") == device.share.value


def test_copies_from_pageable_memory_are_input_in_the_driver_and_on_the_device():
    device = judged("pageable_copy", "chrome").result.devices[0]
    assert device.copies.value > device.share.value + 0.05
    assert share(device, "input") == pytest.approx(device.copies.value, abs=0.01)
    pinned = replace(device, metrics={**device.metrics, "h2d_pageable": 0.0})
    assert share(pinned, "input") == device.share.value


def test_trips_on_the_worst_device():
    result = judged("slow_loader", "nsys").result
    value = result.devices[0].share.value
    idler = replace(
        result.devices[0], label="other", share=replace(result.devices[0].share, value=value + 0.1)
    )
    both = replace(result, devices=(*result.devices, idler))
    code, sentences = check([parse("input>5%"), parse("checkpoint>1%")], both)
    assert code == 3
    assert sentences[0] == f"input>5% is exceeded: {percent(value + 0.1)} on other"
    assert sentences[1].startswith("checkpoint>1% holds: 0.0 % at most, on ")
    assert check([parse("checkpoint>1%")], both)[0] == 0
    assert check([], both) == (0, [])


def test_without_a_verdict_nothing_is_judged():
    result = judged("slow_loader", "nsys").result
    verdict = replace(
        result.verdict, word="abstained", reasons=("5 steps are too few", "records were dropped")
    )
    code, sentences = check([parse("input>5%"), parse("idle>1%")], replace(result, verdict=verdict))
    assert code == 4
    assert sentences == [
        "input>5%, idle>1% cannot be judged: 5 steps are too few; records were dropped"
    ]
