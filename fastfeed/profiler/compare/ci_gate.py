"""Limits for CI: `input>5%` fails a run that waits more than that for its input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fastfeed.errors import ConfigError
from fastfeed.profiler.model.causes import CAUSES, FAMILIES, cause_of
from fastfeed.profiler.model.format import percent
from fastfeed.profiler.model.result import DeviceResult, Result
from fastfeed.profiler.verdict.advice import family_costs

__all__ = ["ABSTAINED", "TRIPPED", "Gate", "check", "parse", "share"]

TRIPPED = 3  # exit codes
ABSTAINED = 4
IDLE = "idle"
_FORM = re.compile(r"\s*([a-z0-9_]+)\s*>\s*(\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True, slots=True)
class Gate:
    key: str  # "idle", a key of FAMILIES, or the key of a cause
    above: float  # fraction of the judged time that is still allowed

    def __str__(self) -> str:
        return f"{self.key}>{self.above * 100:.6g}%"


def parse(text: str) -> Gate:
    """`parse("input>5%")`. ConfigError names what is known."""
    found = _FORM.fullmatch(text)
    if not found:
        raise ConfigError(f"--fail-on must be a cause and a share of time, such as 'input>5%', got {text!r}")
    keys = {IDLE, *FAMILIES, *(about.key for about in CAUSES.values())}
    if found[1] not in keys:
        raise ConfigError(f"--fail-on knows {', '.join(sorted(keys))}; got {found[1]!r}")
    if float(found[2]) >= 100:
        raise ConfigError(f"--fail-on must allow less than 100%, which is never exceeded; got {text!r}")
    return Gate(found[1], float(found[2]) / 100)


def share(device: DeviceResult, key: str) -> float:
    """The fraction of the judged time that this cost a device: `input` as in the verdict, a family as in its remedy.

    Where a family and a cause have one name, it means the family.
    """
    if key == "input":
        return device.share.value
    period = device.judged
    if key == IDLE:
        lost = period.budget.idle
    elif key in FAMILIES:
        lost = family_costs(device)[key]
    else:
        lost = period.causes.get(cause_of(key), 0)
    return lost / period.budget.window if period.budget.window else 0.0


def check(gates: Sequence[Gate], result: Result) -> tuple[int, list[str]]:
    """Exit code 0, 3 or 4, and a sentence for each gate that says why. The device that is worst decides."""
    if not gates:
        return 0, []
    if result.verdict.word == "abstained":
        why = "; ".join(result.verdict.reasons) or "the trace cannot carry a verdict"
        return ABSTAINED, [f"{', '.join(map(str, gates))} cannot be judged: {why}"]
    said, code = [], 0
    for gate in gates:
        worst = max(result.devices, key=lambda device: share(device, gate.key))
        value = share(worst, gate.key)
        if value > gate.above:
            code = TRIPPED
            said.append(f"{gate} is exceeded: {percent(value)} on {worst.label}")
        else:
            said.append(f"{gate} holds: {percent(value)} at most, on {worst.label}")
    return code, said
