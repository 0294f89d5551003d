"""Limits for CI: `input>5%` fails a run that loses more than 5 % of its time to input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fastfeed.errors import ConfigError
from fastfeed.profiler.model.causes import FAMILIES, Cause
from fastfeed.profiler.model.format import percent
from fastfeed.profiler.model.result import DeviceResult, Result
from fastfeed.profiler.verdict.advice import family_costs

TRIPPED = 3  # exit codes
ABSTAINED = 4
IDLE = "idle"
_FORM = re.compile(r"\s*([a-z0-9_]+)\s*>\s*(\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True, slots=True)
class Gate:
    key: str  # "idle", a key of FAMILIES, or the key of a cause
    above: float  # allowed fraction of the judged time

    def __str__(self) -> str:
        return f"{self.key}>{self.above * 100:.6g}%"


def parse(text: str) -> Gate:
    """`parse("input>5%")`. Raises ConfigError with the valid keys."""
    match = _FORM.fullmatch(text)
    if not match:
        raise ConfigError(
            f"--fail-on must be a cause and a share of time, such as 'input>5%', got {text!r}"
        )
    keys = {IDLE, *FAMILIES, *(cause.key for cause in Cause)}
    if match[1] not in keys:
        raise ConfigError(f"--fail-on takes one of {', '.join(sorted(keys))}; got {match[1]!r}")
    if float(match[2]) >= 100:
        raise ConfigError(
            f"--fail-on must allow less than 100%, which is never exceeded; got {text!r}"
        )
    return Gate(match[1], float(match[2]) / 100)


def share(device: DeviceResult, key: str) -> float:
    """Fraction of the judged time lost to this key: a verdict's input, a family, or a cause.

    If a family and a cause share a name, it means the family. `input` includes copies from pageable
    memory: the driver's staging, as in the verdict, and their exposed time on the device.
    """
    period = device.judged
    if key == "input":
        staged = period.budget.h2d * device.metrics.get("h2d_pageable", 0.0)
        return device.share.value + period.share(staged)
    if key == IDLE:
        lost = period.budget.idle
    elif key in FAMILIES:
        lost = family_costs(device)[key]
    else:
        lost = period.ns(Cause[key.upper()])
    return period.share(lost)


def check(gates: Sequence[Gate], result: Result) -> tuple[int, list[str]]:
    """Exit code 0, 3 or 4, and a sentence per gate with the reason. The worst device decides."""
    if not gates:
        return 0, []
    if not result.devices and result.feeds and all(gate.key == "input" for gate in gates):
        return _check_feeds(gates, result)
    if result.verdict.word == "abstained":
        why = "; ".join(result.verdict.reasons) or "the trace does not support a verdict"
        return ABSTAINED, [f"{', '.join(map(str, gates))} cannot be judged: {why}"]
    sentences = []
    code = 0
    for gate in gates:
        worst = max(result.devices, key=lambda device: share(device, gate.key))
        value = share(worst, gate.key)
        if value > gate.above:
            code = TRIPPED
            sentences.append(f"{gate} is exceeded: {percent(value)} on {worst.label}")
        else:
            sentences.append(f"{gate} holds: {percent(value)} at most, on {worst.label}")
    return code, sentences


def _check_feeds(gates: Sequence[Gate], result: Result) -> tuple[int, list[str]]:
    """Check waits by timelines without a GPU: at least what a GPU would feel."""
    worst = max(result.feeds, key=lambda feed: feed.wait_share)
    tripped = [gate for gate in gates if worst.wait_share > gate.above]
    return TRIPPED if tripped else 0, [
        f"{gate} {'is exceeded' if gate in tripped else 'holds'}: no GPU was recorded, and the"
        f" trainer waited {percent(worst.wait_share)} of the time for batches of"
        f" {worst.name or worst.feed or 'the feed'}, rank {worst.rank}"
        for gate in gates
    ]
