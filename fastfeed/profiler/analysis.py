"""Traces in, verdict out: puts the parts together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fastfeed.profiler.attribution.attribution import Attribution, attribute_device, caused
from fastfeed.profiler.attribution.classify import Doing
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.model.intervals import union
from fastfeed.profiler.model.result import DeviceResult, Result
from fastfeed.profiler.model.statistics import MIN_STEPS
from fastfeed.profiler.model.trace import Origin, Trace
from fastfeed.profiler.ranks.ranks import Blame, Member, together
from fastfeed.profiler.steps.device import device_result, labels, main_process
from fastfeed.profiler.steps.input_share import STARVING, share_of
from fastfeed.profiler.steps.steps import find_steps
from fastfeed.profiler.verdict.feed_timelines import feed_results
from fastfeed.profiler.verdict.host_only import host_waits
from fastfeed.profiler.verdict.verdict import judge

__all__ = ["analyze"]


@dataclass(frozen=True, slots=True)
class _Found:
    """One device of one trace, on the way to its result."""

    index: int  # of the trace
    device: int
    host: Host
    attribution: Attribution


def analyze(
    traces: Sequence[Trace], *, input_range: str = "", last_steps: int | None = None, again: str = ""
) -> Result:
    """Say why the devices of these traces were idle, and whether input is to blame.

    Args:
        traces: of one run; of several ranks, each its own or all in one. Timelines are merged before (`merge`).
        input_range: a regular expression; ranges whose name it matches are waiting for input, too.
        last_steps: judge the last so many steady steps only.
        again: the command that measures again, for the report.

    Raises TraceError where the traces cannot be of one run, ConfigError for a bad pattern.
    """
    found = [one for index, trace in enumerate(traces) for one in _devices(index, trace, input_range)]
    names = labels([(traces[one.index], one.device) for one in found], len(traces))
    results = [_result(traces[one.index], one, name, last_steps) for one, name in zip(found, names, strict=True)]
    members = [
        Member(
            made.label, traces[one.index], one.device, made.slices, made.judged.spans, made.first, made.last, made.rank
        )
        for one, made in zip(found, results, strict=True)
    ]
    ranks = together(members)
    devices = tuple(_with_ranks(made, blame) for made, blame in zip(results, ranks.blames, strict=True))
    feeds = feed_results(traces)
    origins = tuple(trace.origin for trace in traces)
    notes = tuple(dict.fromkeys((*_notes(origins), *ranks.notes)))
    waits = () if devices else host_waits(traces, input_range)
    return Result(origins, judge(devices, feeds, origins, again, waits), devices, ranks.ranks, feeds, notes)


def _notes(origins: Sequence[Origin]) -> list[str]:
    """What the readers noted; of several files, with the file's name where it is not true of all."""
    everybody = set.intersection(*(set(origin.notes) for origin in origins)) if origins else set()
    return [
        note if note in everybody else f"{Path(origin.path).name}: {note}"
        for origin in origins
        for note in origin.notes
    ]


def _devices(index: int, trace: Trace, input_range: str) -> list[_Found]:
    host = Host(trace, input_range)
    worked = np.unique(trace.ops.device[trace.ops.end > trace.ops.start])
    return [
        _Found(index, int(device), host, attribute_device(trace, int(device), host)) for device in worked if device >= 0
    ]


def _result(trace: Trace, one: _Found, label: str, last_steps: int | None) -> DeviceResult:
    process, host = main_process(trace, one.attribution.rows), one.host
    waits = host.what(host.driver(process), Doing.INPUT)
    steps = find_steps(trace, one.device, process, one.attribution.edges, host.launch, waits)
    fewest = MIN_STEPS
    if last_steps is not None:  # who asks for two gets two
        fewest = min(MIN_STEPS, last_steps)
        kept = np.flatnonzero(steps.steady)[-last_steps:]
        steps = replace(steps, steady=np.isin(np.arange(len(steps.steady)), kept))
    return device_result(trace, one.index, one.device, one.host, one.attribution, steps, label, fewest)


def _with_ranks(result: DeviceResult, blame: Blame) -> DeviceResult:
    """A device with what the other ranks cost it: waiting for another's input is starvation, too, by proxy."""
    own = caused(result.slices, *STARVING)
    by_proxy = union(blame.spans[np.isin(blame.cause, STARVING)])
    share = share_of(result.steps, result.judged, own, by_proxy)
    return replace(result, charges=blame.charges, comm_wait=blame.comm_wait, share=share)
