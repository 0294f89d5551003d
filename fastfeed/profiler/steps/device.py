"""One device's result: its periods, its worst gaps, its label."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from fastfeed.profiler.attribution.attribution import (
    Attribution,
    spans_with_cause,
    summarize_period,
)
from fastfeed.profiler.attribution.classify import Activity
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.attribution.host_code.functions import function_times
from fastfeed.profiler.attribution.lost_work import consistency_metrics
from fastfeed.profiler.model.causes import INPUT_CAUSES, STARVING, Cause
from fastfeed.profiler.model.columns import distinct, numbered
from fastfeed.profiler.model.intervals import (
    clip,
    intersect,
    measure,
    overlap,
    spans,
    spans_at,
    subtract,
    union,
)
from fastfeed.profiler.model.kernel_names import framework_of
from fastfeed.profiler.model.result import Cold, DeviceResult, Gap, Period, Slices, Steps
from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.steps.metrics import device_metrics, slowest_stage
from fastfeed.profiler.steps.phases import epoch_metrics, summarize_phases
from fastfeed.profiler.steps.step_stats import share_of, step_spreads

_WORST_GAPS = 3
# of the recording: fewer whole steps than usual are judged by if they are marked, and this much
_MIN_MARKED = 0.3
# events rarely hold work back for longer than this while the device is idle
_MAX_HELD_NS = 1_000_000
_ADDRESS = re.compile(r" (object )?at 0x[0-9a-f]+")


def device_result(
    trace: Trace,
    index: int,
    device: int,
    host: Host,
    attribution: Attribution,
    steps: Steps,
    label: str,
    min_steps: int,
    phases: Mapping[str, np.ndarray],
) -> DeviceResult:
    """Results for one device, except the costs that other ranks cause.

    With fewer than `min_steps` steady steps the whole recording is judged, unless marked steps are
    a real part of it.
    """
    first, last = map(int, attribution.edges)
    whole = summarize_period(attribution, spans(np.array([first]), np.array([last])))
    steady_spans = clip(union(steps.spans[steps.steady]), first, last)
    is_enough = steps.steady.sum() >= min_steps
    is_enough |= not steps.guessed and measure(steady_spans) >= _MIN_MARKED * (last - first)
    steady = (
        summarize_period(attribution, steady_spans) if is_enough and measure(steady_spans) else None
    )
    judged = steady or whole
    main = main_process(trace, attribution.rows)
    rank = trace.processes[main].rank if main >= 0 else None
    cold = _cold_start(attribution, steps, steady, first) if steady else None
    return DeviceResult(
        label=label,
        trace=index,
        device=device,
        rank=rank,
        first=first,
        last=last,
        whole=whole,
        steady=steady,
        cold=cold,
        steps=steps,
        share=share_of(steps, judged, spans_with_cause(attribution.slices, *STARVING)),
        slices=attribution.slices,
        busy=attribution.busy,
        waits=attribution.waits,
        worst=_worst_gaps(trace, host, attribution, steps, judged),
        ops=len(attribution.rows),
        launches=int((attribution.launch >= 0).sum()),
        metrics={
            **device_metrics(trace, host, attribution, steps, judged),
            **_gap_metrics(trace, device, attribution, judged),
            **consistency_metrics(trace, host, attribution, judged),
            "assumed_input_ms": (
                measure(intersect(_assumed_input(host, attribution), judged.spans)) / 1e6
            ),
            **epoch_metrics(attribution, phases, judged),
        },
        threads=tuple(_thread_label(trace, number) for number in range(len(trace.threads))),
        names=trace.names,
        per_step=step_spreads(attribution, steps, judged),
        copies=share_of(
            steps,
            judged,
            attribution.busy["h2d"],
            spans_with_cause(attribution.slices, Cause.H2D_STAGING),
        ),
        framework=framework_of(trace.names),
        stage=slowest_stage(trace, intersect(attribution.waits, judged.spans)),
        functions=function_times(
            trace, host.frames, attribution.slices, attribution.gaps.late, judged.spans
        ),
        phases=summarize_phases(attribution, phases, cold),
    )


def _assumed_input(host: Host, attribution: Attribution) -> np.ndarray:
    """Idle time that counts as input only because of its place in the step."""
    code = host.code
    assumed = union(spans_at(code, code.assumed))
    return intersect(spans_with_cause(attribution.slices, *INPUT_CAUSES), assumed)


def _gap_metrics(
    trace: Trace, device: int, attribution: Attribution, judged: Period
) -> dict[str, float]:
    """Shares of the parts of gaps, and of idle time that suggests missing operations."""
    gaps, slices = attribution.gaps, attribution.slices
    idle = max(judged.budget.idle, 1)
    unexplained = (slices.cause == Cause.DEPENDENCY) & (slices.name < 0)
    unexplained &= slices.end - slices.start > _MAX_HELD_NS
    if _shares_process(
        trace, device
    ):  # work of another device may hold it back in ways that are not recorded
        unexplained[:] = False
    held_back = spans_at(slices, unexplained)
    shared = (slices.cause == Cause.GPU_SHARED) & (slices.end - slices.start > _MAX_HELD_NS)
    unavailable = spans_at(slices, shared)
    return {
        "late_share": float(overlap(gaps.late, judged.spans).sum()) / idle,
        "call_share": float(overlap(gaps.in_call, judged.spans).sum()) / idle,
        "queued_share": float(overlap(gaps.queued, judged.spans).sum()) / idle,
        "held_share": float(overlap(held_back, judged.spans).sum()) / idle,
        "unavailable_share": float(overlap(unavailable, judged.spans).sum()) / idle,
    }


def main_process(trace: Trace, rows: np.ndarray) -> int:
    """The process that most of these ops belong to; -1 if unknown."""
    process, number = numbered(trace.ops.process[rows])
    return int(process[np.argmax(np.bincount(number)) if len(process) > 1 else 0])


def labels(devices: Sequence[tuple[Trace, int]], trace_count: int) -> list[str]:
    """Names of devices in reports: rank if there are several, number, product."""
    texts = []
    for trace, number in devices:
        device = trace.devices[number]
        process = (
            trace.processes[device.process] if 0 <= device.process < len(trace.processes) else None
        )
        rank = process.rank if process is not None else None
        gpu = f"GPU {device.ordinal}" + (f" ({device.name})" if device.name else "")
        is_multiple = len(devices) > 1 or trace_count > 1
        texts.append(f"rank {rank}, {gpu}" if is_multiple and rank is not None else gpu)
    for text in {
        text for text in texts if texts.count(text) > 1
    }:  # two ranks that each call theirs GPU 0
        duplicates = [index for index, label in enumerate(texts) if label == text]
        for index in duplicates:
            trace, number = devices[index]
            process = trace.devices[number].process
            process_label = (
                f"pid {trace.processes[process].pid}"
                if 0 <= process < len(trace.processes)
                else f"trace {index}"
            )
            texts[index] = f"{process_label}, {text}"
        if len({texts[index] for index in duplicates}) < len(duplicates):
            for index in duplicates:
                texts[index] = f"{texts[index]} #{index}"
    return texts


def _cold_start(attribution: Attribution, steps: Steps, steady: Period, first: int) -> Cold | None:
    """The time before the first steady step, and its causes."""
    steady_start = int(steady.spans[0, 0])
    cold_spans = clip(
        subtract(spans(np.array([first]), np.array([steady_start])), steady.spans),
        first,
        steady_start,
    )
    skipped = int(np.argmax(steps.steady))
    if steady_start <= first or not skipped:
        return None
    cold = summarize_period(attribution, cold_spans)
    cut = 0 if steps.whole is None else int((~steps.whole[:skipped]).sum())
    return Cold(skipped, cold_spans, cold.budget.idle, cold.causes, cut)


def _worst_gaps(
    trace: Trace, host: Host, attribution: Attribution, steps: Steps, judged: Period
) -> tuple[Gap, ...]:
    """The longest gaps of the judged period; input waits first if they are a large part."""
    gaps, slices = attribution.gaps, attribution.slices
    if not len(gaps.start):
        return ()
    inside = overlap(gaps_spans := spans_at(gaps), judged.spans)
    weight = inside
    if judged.ns(*INPUT_CAUSES) * 5 > judged.budget.idle:
        is_input = np.isin(slices.cause, INPUT_CAUSES)
        by_input = np.zeros(len(gaps.start), np.int64)
        np.add.at(by_input, slices.gap[is_input], (slices.end - slices.start)[is_input])
        weight = np.minimum(inside, by_input)
    least = np.partition(weight, -_WORST_GAPS)[-_WORST_GAPS] if len(weight) > _WORST_GAPS else 0
    longest = np.flatnonzero(weight >= least)
    chosen = longest[np.argsort(-weight[longest], kind="stable")][:_WORST_GAPS]
    return tuple(
        _describe_gap(trace, host, attribution, steps, int(gap))
        for gap in chosen
        if weight[gap] and len(gaps_spans)
    )


def _describe_gap(
    trace: Trace, host: Host, attribution: Attribution, steps: Steps, gap: int
) -> Gap:
    gaps, slices, ops = attribution.gaps, attribution.slices, trace.ops
    start, end = int(gaps.start[gap]), int(gaps.end[gap])
    first, last = np.searchsorted(slices.gap, [gap, gap + 1])
    length = slices.end[first:last] - slices.start[first:last]
    sums: dict[Cause, int] = {}
    for cause, spent in zip(slices.cause[first:last], length, strict=True):
        sums[Cause(int(cause))] = sums.get(Cause(int(cause)), 0) + int(spent)
    longest = first + int(np.argmax(length))
    thread = int(slices.thread[longest])
    previous = attribution.rows[ops.end[attribution.rows] == start]
    step = (
        np.flatnonzero((steps.spans[:, 0] <= start) & (steps.spans[:, 1] > start))
        if len(steps.spans)
        else []
    )
    inside = _innermost_name(trace, host, slices, longest) or trace.name(int(slices.name[longest]))
    return Gap(
        start=start,
        end=end,
        causes=dict(sorted(sums.items(), key=lambda item: -item[1])),
        next_op=trace.name(int(ops.name[gaps.op[gap]])) if ops.start[gaps.op[gap]] >= end else "",
        thread=_thread_label(trace, thread) if thread >= 0 else "",
        inside=(
            "" if inside in steps.labels else inside
        ),  # a step of the host, which may be ahead of the device's
        step=steps.labels[int(step[0])] if len(step) else "",
        last_op=trace.name(int(ops.name[previous[0]])) if len(previous) else "",
    )


def _shares_process(trace: Trace, device: int) -> bool:
    """True if a process that uses this device uses others too."""
    is_other = trace.ops.device != device
    return bool(
        np.isin(distinct(trace.ops.process[~is_other]), distinct(trace.ops.process[is_other])).any()
    )


def _innermost_name(trace: Trace, host: Host, slices: Slices, longest: int) -> str:
    """The innermost range around most of a slice, of its cause if there is one."""
    start = int(slices.start[longest])
    end = int(slices.end[longest])
    thread = int(slices.thread[longest])
    candidates = np.flatnonzero(
        (host.thread == thread) & (host.start < end) & (host.end > start) & (host.name >= 0)
    )
    candidates = candidates[host.activity[candidates] < Activity.WAITING]
    covered = np.minimum(host.end[candidates], end) - np.maximum(host.start[candidates], start)
    covering = candidates[covered * 10 >= 8 * (end - start)]
    with_cause = (
        covering[
            [
                Activity(int(activity)).cause == slices.cause[longest]
                for activity in host.activity[covering]
            ]
        ]
        if len(covering)
        else covering
    )
    chosen = with_cause if len(with_cause) else covering
    if not len(chosen):
        return ""
    return _ADDRESS.sub(
        "", trace.name(int(host.name[chosen[np.argmin(host.end[chosen] - host.start[chosen])]]))
    )


def _thread_label(trace: Trace, index: int) -> str:
    thread = trace.threads[index]
    return f"{thread.name} (thread {thread.tid})" if thread.name else f"thread {thread.tid}"
