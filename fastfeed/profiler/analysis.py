"""The whole analysis: from traces to a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fastfeed.profiler.attribution.attribution import (
    Attribution,
    attribute_device,
    spans_with_cause,
)
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.model.causes import STARVING
from fastfeed.profiler.model.columns import unique_values
from fastfeed.profiler.model.intervals import union
from fastfeed.profiler.model.result import DeviceResult, Result
from fastfeed.profiler.model.statistics import MIN_STEPS
from fastfeed.profiler.model.trace import Origin, Trace
from fastfeed.profiler.ranks.ranks import Blame, RankDevice, analyze_ranks
from fastfeed.profiler.steps.device import device_result, labels, main_process
from fastfeed.profiler.steps.marks import recorded_edges
from fastfeed.profiler.steps.phases import find_phases, training_steps
from fastfeed.profiler.steps.step_stats import measure_share
from fastfeed.profiler.steps.steps import find_steps
from fastfeed.profiler.verdict.feed_timelines import feed_results
from fastfeed.profiler.verdict.host_only import host_waits, launch_count
from fastfeed.profiler.verdict.verdict import judge


def analyze(
    traces: Sequence[Trace],
    *,
    input_range: str = "",
    last_steps: int | None = None,
    again: str = "",
) -> Result:
    """Find out why the devices of these traces were idle, and whether input is to blame.

    Args:
        traces (Sequence[Trace]): Traces of one run; several ranks may be in one trace or in one
            each. Merge timelines first (see `merge`).
        input_range (str): A regular expression; ranges whose names match count as waiting for
            input, as do known names. Default: "".
        last_steps (int | None): Judge only this many of the last steady steps. At least 1. Default:
            None, all of them.
        again (str): The command to measure again, shown in the report. Default: "".

    Returns:
        A `Result`: the verdict, for each device where its idle time went (causes sum to it exactly,
            in nanoseconds),
        ranks, feeds, and notes of the readers.

    Raises:
        TraceError: The traces cannot be of one run.
        ConfigError: `input_range` is not a regular expression.

    Example:
        >>> from fastfeed import profiler
        >>> result = profiler.analyze([profiler.read("trace.json")])
        >>> result.verdict.word
        'severe'
    """
    attributions = [
        (index, attribution)
        for index, trace in enumerate(traces)
        for attribution in _attributions(trace, input_range)
    ]
    names = labels([(each.trace, each.device) for _, each in attributions], len(traces))
    results = [
        _result(index, attribution, name, last_steps)
        for (index, attribution), name in zip(attributions, names, strict=True)
    ]
    rank_devices = [
        RankDevice(
            result.label,
            traces[result.trace],
            result.device,
            result.slices,
            result.judged.spans,
            result.first,
            result.last,
            result.rank,
        )
        for result in results
    ]
    ranks = analyze_ranks(rank_devices)
    devices = tuple(
        replace(_with_ranks(result, blame, ranks.absent), late_rank=late)
        for result, blame, late in zip(results, ranks.blames, ranks.late, strict=True)
    )
    feeds = feed_results(traces)
    origins = tuple(trace.origin for trace in traces)
    notes = tuple(dict.fromkeys((*_collect_notes(origins), *ranks.notes)))
    waits = () if devices else host_waits(traces, input_range)
    launches = 0 if devices else launch_count(traces)
    verdict = judge(devices, feeds, origins, again, waits, launches)
    return Result(origins, verdict, devices, ranks.ranks, feeds, notes)


def _collect_notes(origins: Sequence[Origin]) -> list[str]:
    """Notes of the readers, with the file name if a note does not apply to all files."""
    common = set.intersection(*(set(origin.notes) for origin in origins)) if origins else set()
    return [
        note if note in common else f"{Path(origin.path).name}: {note}"
        for origin in origins
        for note in origin.notes
    ]


def _attributions(trace: Trace, input_range: str) -> list[Attribution]:
    host = Host(trace, input_range)
    active = unique_values(trace.ops.device[trace.ops.end > trace.ops.start])
    return [_attributed(host, int(device)) for device in active if device >= 0]


def _attributed(host: Host, device: int) -> Attribution:
    process = main_process(host.trace, np.flatnonzero(host.trace.ops.device == device))
    waits = host.input_spans(host.main_thread(process))
    edges = recorded_edges(host.trace, device, process, host.launch, waits)
    return attribute_device(host, device, edges)


def _result(
    index: int, attribution: Attribution, label: str, last_steps: int | None
) -> DeviceResult:
    trace = attribution.trace
    host = attribution.host
    process = main_process(trace, attribution.rows)
    waits = host.input_spans(host.main_thread(process))
    steps = find_steps(trace, attribution.device, process, attribution.edges, host.launch, waits)
    phases = find_phases(attribution, process)
    steps = training_steps(steps, phases)
    min_steps = MIN_STEPS
    if last_steps is not None:  # a request for two steps is enough for a verdict
        min_steps = min(MIN_STEPS, last_steps)
        last = np.flatnonzero(steps.steady)[-last_steps:]
        steps = replace(steps, steady=np.isin(np.arange(len(steps.steady)), last))
    return device_result(attribution, index, steps, label, min_steps, phases)


def _with_ranks(result: DeviceResult, blame: Blame, absent: int) -> DeviceResult:
    """Add the waits for other ranks; waiting for a rank that waits for input is starvation."""
    own = spans_with_cause(result.slices, *STARVING)
    by_proxy = union(blame.spans[np.isin(blame.cause, STARVING)])
    share = measure_share(result.steps, result.judged, own, by_proxy)
    metrics = {**result.metrics, "absent_ranks": float(absent)} if absent else result.metrics
    return replace(
        result, charges=blame.charges, comm_wait=blame.comm_wait, share=share, metrics=metrics
    )
