"""Metrics of one device for the advice; the unit is in each name."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from fastfeed.profiler.attribution.attribution import Attribution
from fastfeed.profiler.attribution.classify import Activity
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.model.causes import STARVED
from fastfeed.profiler.model.columns import distinct
from fastfeed.profiler.model.intervals import (
    intersect,
    measure,
    overlap,
    spans,
    spans_at,
    subtract,
    union,
)
from fastfeed.profiler.model.result import InputStage, Period, Steps
from fastfeed.profiler.model.trace import Kind, Trace

_MIN_TREND_STEPS = 10  # fewer steps show no trend
_RARE_WAITS = 0.25  # of the steps
_MIN_CORRELATION = 0.6  # rank correlation of a step's wait with its number
_MIN_CHANGE = 1.5  # times from half to half
_EVENT = re.compile(r"Iterator::([\w:\[\]]+)")
_MIN_NS = 50_000  # per wait: a faster stage is not a bottleneck (xprof's limit)
_SEPARATOR = "::"


def device_metrics(
    trace: Trace, host: Host, attribution: Attribution, steps: Steps, judged: Period
) -> Mapping[str, float]:
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
    ops = trace.ops
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
        lead = (
            ops.start[attribution.rows[has_launch]]
            - trace.calls.end[attribution.launch[has_launch]]
        )
        metrics["lead_us"] = float(np.median(lead)) / 1e3
    if measure(judged.spans) > measure(union(steady)):
        count = 0  # too few steps: the whole recording is judged, which contains more than they do
    if count:
        metrics["launches_per_step"] = len(rows) / count
    metrics |= _copies(trace, attribution, rows, count)
    metrics |= _calls(trace, host, attribution, judged, count)
    metrics |= _waits(trace, host, attribution, judged, steady)
    return metrics


def _within(at: np.ndarray, window: np.ndarray) -> np.ndarray:
    return overlap(spans(at, at + 1), window) > 0


def _copies(
    trace: Trace, attribution: Attribution, rows: np.ndarray, steps: int
) -> dict[str, float]:
    ops = trace.ops
    copies = rows[(ops.kind[rows] == Kind.H2D) & (ops.bytes[rows] > 0)]
    if not len(copies):
        return {}
    size, span = ops.bytes[copies], spans_at(ops, copies)
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


def _calls(
    trace: Trace, host: Host, attribution: Attribution, judged: Period, steps: int
) -> dict[str, float]:
    calls = trace.calls
    processes = distinct(trace.ops.process[attribution.rows])
    is_own = np.isin(trace.process_of(calls.thread), processes)
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


def _waits(
    trace: Trace, host: Host, attribution: Attribution, judged: Period, steady: np.ndarray
) -> dict[str, float]:
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
