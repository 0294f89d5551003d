"""One device's result: its periods, its worst gaps, its label, metrics for the advice."""

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
from fastfeed.profiler.model.causes import INPUT_CAUSES, STARVED, STARVING, Cause
from fastfeed.profiler.model.columns import factorize, unique_values
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
from fastfeed.profiler.model.kernel_names import detect_framework
from fastfeed.profiler.model.result import (
    ColdStart,
    DeviceResult,
    Gap,
    InputStage,
    Period,
    Slices,
    Steps,
)
from fastfeed.profiler.model.trace import Kind, Trace
from fastfeed.profiler.steps.phases import epoch_metrics, summarize_phases
from fastfeed.profiler.steps.step_stats import measure_share, step_spreads

_WORST_GAPS = 3
# of the recording: fewer whole steps than usual are judged by if they are marked, and this much
_MIN_MARKED = 0.3
# events rarely hold work back for longer than this while the device is idle
_MAX_HELD_NS = 1_000_000
_ADDRESS = re.compile(r" (object )?at 0x[0-9a-f]+")


def device_result(
    attribution: Attribution,
    index: int,
    steps: Steps,
    label: str,
    min_steps: int,
    phases: Mapping[str, np.ndarray],
) -> DeviceResult:
    """Results for one device, except the costs that other ranks cause.

    With fewer than `min_steps` steady steps the whole recording is judged, unless marked steps are
    a real part of it.
    """
    trace = attribution.trace
    host = attribution.host
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
        device=attribution.device,
        rank=rank,
        first=first,
        last=last,
        whole=whole,
        steady=steady,
        cold=cold,
        steps=steps,
        share=measure_share(steps, judged, spans_with_cause(attribution.slices, *STARVING)),
        slices=attribution.slices,
        busy=attribution.busy,
        waits=attribution.waits,
        worst=_worst_gaps(attribution, steps, judged),
        ops=len(attribution.rows),
        launches=int((attribution.launch >= 0).sum()),
        metrics={
            **device_metrics(attribution, steps, judged),
            **_gap_metrics(attribution, judged),
            **consistency_metrics(attribution, judged),
            "assumed_input_ms": (
                measure(intersect(_assumed_input(attribution), judged.spans)) / 1e6
            ),
            **epoch_metrics(attribution, phases, judged),
        },
        threads=tuple(_thread_label(trace, number) for number in range(len(trace.threads))),
        names=trace.names,
        per_step=step_spreads(attribution, steps, judged),
        copies=measure_share(
            steps,
            judged,
            attribution.busy["h2d"],
            spans_with_cause(attribution.slices, Cause.H2D_STAGING),
        ),
        framework=detect_framework(trace.names),
        stage=slowest_stage(trace, intersect(attribution.waits, judged.spans)),
        functions=function_times(
            trace, host.frames, attribution.slices, attribution.gaps.late, judged.spans
        ),
        phases=summarize_phases(attribution, phases, cold),
    )


def _assumed_input(attribution: Attribution) -> np.ndarray:
    """Idle time that counts as input only because of its place in the step."""
    code = attribution.host.code
    assumed = union(spans_at(code, code.assumed))
    return intersect(spans_with_cause(attribution.slices, *INPUT_CAUSES), assumed)


def _gap_metrics(attribution: Attribution, judged: Period) -> dict[str, float]:
    """Shares of the parts of gaps, and of idle time that suggests missing operations."""
    gaps = attribution.gaps
    slices = attribution.slices
    idle = max(judged.budget.idle, 1)
    unexplained = (slices.cause == Cause.DEPENDENCY) & (slices.name < 0)
    unexplained &= slices.end - slices.start > _MAX_HELD_NS
    # work of another device may hold it back in ways that are not recorded
    unexplained &= not _shares_process(attribution.trace, attribution.device)
    shared = (slices.cause == Cause.GPU_SHARED) & (slices.end - slices.start > _MAX_HELD_NS)
    parts = {
        "late_share": gaps.late,
        "call_share": gaps.in_call,
        "queued_share": gaps.queued,
        "held_share": spans_at(slices, unexplained),
        "unavailable_share": spans_at(slices, shared),
    }
    return {name: float(overlap(part, judged.spans).sum()) / idle for name, part in parts.items()}


def main_process(trace: Trace, rows: np.ndarray) -> int:
    """The process that most of these ops belong to; -1 if unknown."""
    process, number = factorize(trace.ops.process[rows])
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


def _cold_start(
    attribution: Attribution, steps: Steps, steady: Period, first: int
) -> ColdStart | None:
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
    return ColdStart(skipped, cold_spans, cold.budget.idle, cold.causes, cut)


def _worst_gaps(attribution: Attribution, steps: Steps, judged: Period) -> tuple[Gap, ...]:
    """The longest gaps of the judged period; input waits first if they are a large part."""
    gaps = attribution.gaps
    slices = attribution.slices
    if not len(gaps.start):
        return ()
    weight = inside = overlap(spans_at(gaps), judged.spans)
    if judged.ns(*INPUT_CAUSES) * 5 > judged.budget.idle:
        is_input = np.isin(slices.cause, INPUT_CAUSES)
        by_input = np.zeros(len(gaps.start), np.int64)
        np.add.at(by_input, slices.gap[is_input], (slices.end - slices.start)[is_input])
        weight = np.minimum(inside, by_input)
    least = np.partition(weight, -_WORST_GAPS)[-_WORST_GAPS] if len(weight) > _WORST_GAPS else 0
    longest = np.flatnonzero(weight >= least)
    chosen = longest[np.argsort(-weight[longest], kind="stable")][:_WORST_GAPS]
    return tuple(_describe_gap(attribution, steps, int(gap)) for gap in chosen if weight[gap])


def _describe_gap(attribution: Attribution, steps: Steps, gap: int) -> Gap:
    trace = attribution.trace
    ops = attribution.trace.ops
    gaps = attribution.gaps
    slices = attribution.slices
    start = int(gaps.start[gap])
    end = int(gaps.end[gap])
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
    inside = _innermost_name(attribution.host, slices, longest) or trace.name(
        int(slices.name[longest])
    )
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
        np.isin(
            unique_values(trace.ops.process[~is_other]), unique_values(trace.ops.process[is_other])
        ).any()
    )


def _innermost_name(host: Host, slices: Slices, longest: int) -> str:
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
    causes = [Activity(activity).cause for activity in host.activity[covering].tolist()]
    with_cause = covering[np.array(causes, np.int64) == slices.cause[longest]]
    chosen = with_cause if len(with_cause) else covering
    if not len(chosen):
        return ""
    shortest = chosen[np.argmin(host.end[chosen] - host.start[chosen])]
    return _ADDRESS.sub("", host.trace.name(int(host.name[shortest])))


def _thread_label(trace: Trace, index: int) -> str:
    thread = trace.threads[index]
    return f"{thread.name} (thread {thread.tid})" if thread.name else f"thread {thread.tid}"


_MIN_TREND_STEPS = 10  # fewer steps show no trend
_RARE_WAITS = 0.25  # of the steps
_MIN_CORRELATION = 0.6  # rank correlation of a step's wait with its number
_MIN_CHANGE = 1.5  # times from half to half
_EVENT = re.compile(r"Iterator::([\w:\[\]]+)")
_MIN_NS = 50_000  # per wait: a faster stage is not a bottleneck (xprof's limit)
_SEPARATOR = "::"


def device_metrics(attribution: Attribution, steps: Steps, judged: Period) -> Mapping[str, float]:
    """The metrics that the advice needs; those that the trace lacks are left out.

    Of steps: `steps`, `step_ms` (mean), `launches_per_step`. Of kernels, medians: `kernel_us`,
    `lead_us` (from the end of the launch to the start). Of copies to the device: `h2d_mb_per_step`,
    `h2d_gbps`, `h2d_pageable` (share of the bytes), `prefetched` (share of their time that overlaps
    kernels). Of calls: `alloc_per_step`, `sync_per_step`, `sync_ms`, `sync_idle_ms` (the part with
    the device idle). Of waits for input: `wait_ms_per_step`, `wait_ms_worst`, `wait_steps` (share
    of the steps), `wait_every` (steps from one long wait to the next), `wait_rare` (1: a few steps
    have nearly all of it), `wait_grows` (ratio of the second half of the steps to the first, if it
    rises or falls steadily), `single_process` (1: a PyTorch DataLoader without workers, 0: with
    workers). Of the machine: `cores`.
    """
    trace = attribution.trace
    ops = attribution.trace.ops
    rows = attribution.rows[_within(ops.start[attribution.rows], judged.spans)]
    metrics: dict[str, float] = {}
    cores = trace.metadata.get("cpu_count")
    if isinstance(cores, int | float | str) and str(cores).isdecimal() and int(cores) > 0:
        metrics["cores"] = float(cores)
    steady = steps.spans[steps.steady] if len(steps.spans) else steps.spans
    count = len(steady)
    if count:
        length = steady[:, 1] - steady[:, 0]
        metrics |= {"steps": count, "step_ms": float(length.mean()) / 1e6}
    kind = ops.kind[rows]
    kernels = rows[(kind == Kind.COMPUTE) | (kind == Kind.GRAPH) | (kind == Kind.COMM)]
    if len(kernels):
        metrics["kernel_us"] = float(np.median(ops.end[kernels] - ops.start[kernels])) / 1e3
    has_launch = attribution.launch >= 0
    if has_launch.any():
        launch = attribution.launch[has_launch]
        lead = ops.start[attribution.rows[has_launch]] - trace.calls.end[launch]
        metrics["lead_us"] = float(np.median(lead)) / 1e3
    if measure(judged.spans) > measure(union(steady)):
        count = 0  # too few steps: the whole recording is judged, which contains more than they do
    if count:
        metrics["launches_per_step"] = len(rows) / count
    metrics |= _copies(attribution, rows, count)
    metrics |= _calls(attribution, judged, count)
    return metrics | _waits(attribution, judged, steady)


def _within(at: np.ndarray, window: np.ndarray) -> np.ndarray:
    return overlap(spans(at, at + 1), window) > 0


def _copies(attribution: Attribution, rows: np.ndarray, steps: int) -> dict[str, float]:
    ops = attribution.trace.ops
    copies = rows[(ops.kind[rows] == Kind.H2D) & (ops.bytes[rows] > 0)]
    if not len(copies):
        return {}
    size = ops.bytes[copies]
    span = spans_at(ops, copies)
    spent = int((span[:, 1] - span[:, 0]).sum())
    total = float(size.sum(dtype=float))  # a damaged trace may claim more than 64 bits hold
    metrics = {"h2d_gbps": total / max(spent, 1)}
    if steps:
        metrics["h2d_mb_per_step"] = total / steps / 1e6
    if (ops.pageable[copies] >= 0).any():
        metrics["h2d_pageable"] = float(size[ops.pageable[copies] == 1].sum(dtype=float)) / total
    copying = union(span)
    metrics["prefetched"] = measure(intersect(copying, attribution.busy["compute"])) / max(
        measure(copying), 1
    )
    return metrics


def _calls(attribution: Attribution, judged: Period, steps: int) -> dict[str, float]:
    host = attribution.host
    trace = attribution.trace
    calls = attribution.trace.calls
    processes = unique_values(trace.ops.process[attribution.rows])
    is_own = np.isin(trace.thread_processes(calls.thread), processes)
    metrics = {}
    calling = {
        "alloc": np.flatnonzero(is_own & (host.call_activity == Activity.ALLOC)),
        "sync": np.flatnonzero(is_own & (host.call_activity == Activity.SYNC)),
    }
    for name, rows in calling.items():
        metrics[f"{name}_calls"] = float(_within(calls.start[rows], judged.spans).sum())
        if steps:
            metrics[f"{name}_per_step"] = metrics[f"{name}_calls"] / steps
    syncing = calling["sync"]
    sync = intersect(union(spans_at(calls, syncing)), judged.spans)
    metrics["sync_ms"] = measure(sync) / 1e6
    metrics["sync_idle_ms"] = measure(subtract(sync, attribution.covered)) / 1e6
    return metrics


def _waits(attribution: Attribution, judged: Period, steady: np.ndarray) -> dict[str, float]:
    trace = attribution.trace
    metrics: dict[str, float] = {}
    waits = intersect(attribution.waits, judged.spans)
    is_single_process = any("_SingleProcessDataLoaderIter" in name for name in trace.names)
    has_workers = any("_MultiProcessingDataLoaderIter" in name for name in trace.names)
    if is_single_process != has_workers:
        metrics["single_process"] = float(is_single_process)
    if not len(steady) or not len(waits):
        return metrics
    waited = overlap(steady, waits)
    metrics["wait_ms_per_step"] = float(waited.mean()) / 1e6
    metrics["wait_ms_worst"] = float(waited.max()) / 1e6
    long = np.flatnonzero(waited > STARVED * (steady[:, 1] - steady[:, 0]))
    metrics["wait_steps"] = len(long) / len(steady)
    distances = np.diff(long)
    if (
        len(distances) >= 2
        and np.median(distances) >= 2
        and np.mean(distances == np.median(distances)) >= 0.7
    ):
        metrics["wait_every"] = float(np.median(distances))
    elif (
        metrics["wait_steps"] <= _RARE_WAITS
        and waited[long].sum() > 0.8 * waited.sum()
        and len(waited) >= _MIN_TREND_STEPS
    ):
        metrics["wait_rare"] = 1.0
    half = len(waited) // 2
    if len(waited) >= _MIN_TREND_STEPS and waited[:half].any():
        ratio = float(waited[-half:].mean() / waited[:half].mean())
        order = np.corrcoef(np.argsort(np.argsort(waited, kind="stable")), np.arange(len(waited)))[
            0, 1
        ]
        if abs(order) > _MIN_CORRELATION and (ratio > _MIN_CHANGE or ratio * _MIN_CHANGE < 1):
            metrics["wait_grows"] = ratio
    return metrics


def slowest_stage(trace: Trace, waits: np.ndarray) -> InputStage | None:
    """The tf.data stage with most self time within these waits; None if none takes long.

    Each `Iterator::*` event of TensorFlow is a call of `GetNext`, named by the path from the root,
    `Iterator::Root::Prefetch::ParallelMapV2`. A stage is at work itself while it is in a call, on
    any thread, and no stage further down the path is. xprof ranks stages by this self time, too.
    """
    ranges = trace.ranges
    paths: dict[str, list[int]] = {}
    for number, name in enumerate(trace.names):
        if match := _EVENT.match(name):
            paths.setdefault(match[1], []).append(number)
    if not paths or not len(waits):
        return None
    active = {}
    for path, numbers in paths.items():
        rows = np.isin(ranges.name, numbers)
        active[path] = intersect(union(spans_at(ranges, rows)), waits)
    own = {}
    for path, covered in active.items():
        deeper = [other for name, other in active.items() if name.startswith(path + _SEPARATOR)]
        own[path] = measure(subtract(covered, union(*deeper))) if deeper else measure(covered)
    slowest = max(own, key=lambda path: own[path])
    if own[slowest] < _MIN_NS * len(waits):
        return None
    return InputStage(
        slowest.rsplit(_SEPARATOR, 1)[-1], slowest, own[slowest], own[slowest] / measure(waits)
    )
