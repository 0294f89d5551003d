"""Numbers of one device that advice is made of; each is told with the unit in its name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fastfeed.profiler.attribution.attribution import Attribution
from fastfeed.profiler.attribution.classify import Doing
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.model.intervals import intersect, measure, overlap, spans, subtract, union
from fastfeed.profiler.model.result import Period, Steps
from fastfeed.profiler.model.thresholds import STARVED
from fastfeed.profiler.model.trace import Kind, Trace

__all__ = ["facts"]

_TREND = 10  # steps: fewer show no pattern
_RARE = 0.25  # of the steps
_ORDERED = 0.6  # rank correlation of a step's wait with its number
_CHANGED = 1.5  # times from half to half


def facts(trace: Trace, host: Host, found: Attribution, steps: Steps, judged: Period) -> Mapping[str, float]:
    """What the advice computes with; a number that the trace does not hold is left out.

    Of steps: `steps`, `step_ms` (median), `launches_per_step`. Of kernels, medians: `kernel_us`, `lead_us`
    (from the end of the launch to the start). Of copies to the device: `h2d_mb_per_step`, `h2d_gbps`,
    `h2d_pageable` (share of the bytes), `prefetched` (share of their time beside kernels). Of calls:
    `alloc_per_step`, `sync_per_step`, `sync_ms`, `sync_idle_ms` (the part in which the device idled). Of
    waits for input: `wait_ms_per_step`, `wait_ms_worst`, `wait_steps` (share of the steps), `wait_every`
    (steps from one long wait to the next), `wait_rare` (1: few steps have nearly all of it), `wait_grows`
    (second half of the steps over the first, where it rises or falls all along), `single_process` (1: the
    loader of PyTorch without workers, 0: with). Of the machine: `cores`.
    """
    ops = trace.ops
    rows = found.rows[_within(ops.start[found.rows], judged.spans)]
    told: dict[str, float] = {}
    cores = trace.metadata.get("cpu_count")
    if isinstance(cores, int | float | str) and str(cores).isdecimal() and int(cores) > 0:
        told["cores"] = float(cores)
    steady = steps.spans[steps.steady] if len(steps.spans) else steps.spans
    count = len(steady)
    if count:
        length = steady[:, 1] - steady[:, 0]
        told |= {"steps": count, "step_ms": float(np.median(length)) / 1e6}
    kernels = rows[np.isin(ops.kind[rows], (Kind.COMPUTE, Kind.GRAPH, Kind.COMM))]
    if len(kernels):
        told["kernel_us"] = float(np.median(ops.end[kernels] - ops.start[kernels])) / 1e3
    known = found.launch >= 0
    if known.any():
        lead = ops.start[found.rows[known]] - trace.calls.end[found.launch[known]]
        told["lead_us"] = float(np.median(lead)) / 1e3
    if measure(judged.spans) > measure(union(steady)):
        count = 0  # too few steps to judge by: the whole recording is, which holds more than they do
    if count:
        told["launches_per_step"] = len(rows) / count
    told |= _copies(trace, found, rows, count)
    told |= _calls(trace, host, found, judged, count)
    told |= _waits(trace, host, found, judged, steady)
    return told


def _within(at: np.ndarray, window: np.ndarray) -> np.ndarray:
    return overlap(spans(at, at + 1), window) > 0


def _copies(trace: Trace, found: Attribution, rows: np.ndarray, steps: int) -> dict[str, float]:
    ops = trace.ops
    copies = rows[(ops.kind[rows] == Kind.H2D) & (ops.bytes[rows] > 0)]
    if not len(copies):
        return {}
    size, span = ops.bytes[copies], spans(ops.start[copies], ops.end[copies])
    spent = int((span[:, 1] - span[:, 0]).sum())
    told = {"h2d_gbps": float(size.sum()) / max(spent, 1)}
    if steps:
        told["h2d_mb_per_step"] = float(size.sum()) / steps / 1e6
    if (ops.pageable[copies] >= 0).any():
        told["h2d_pageable"] = float(size[ops.pageable[copies] == 1].sum() / size.sum())
    whole = union(span)
    told["prefetched"] = measure(intersect(whole, found.busy["compute"])) / max(measure(whole), 1)
    return told


def _calls(trace: Trace, host: Host, found: Attribution, judged: Period, steps: int) -> dict[str, float]:
    calls = trace.calls
    processes = np.unique(trace.ops.process[found.rows])
    of = np.array([thread.process for thread in trace.threads] or [-1])
    mine = np.isin(of[calls.thread], processes) if len(calls.thread) else np.empty(0, bool)
    inside = mine & _within(calls.start, judged.spans)
    told = {}
    for name, doing in (("alloc", Doing.ALLOC), ("sync", Doing.SYNC)):
        told[f"{name}_calls"] = float((inside & (host.call_doing == doing)).sum())
        if steps:
            told[f"{name}_per_step"] = told[f"{name}_calls"] / steps
    syncing = np.flatnonzero(mine & (host.call_doing == Doing.SYNC))
    sync = intersect(union(spans(calls.start[syncing], calls.end[syncing])), judged.spans)
    told["sync_ms"] = measure(sync) / 1e6
    told["sync_idle_ms"] = measure(subtract(sync, union(*found.busy.values()))) / 1e6
    return told


def _waits(trace: Trace, host: Host, found: Attribution, judged: Period, steady: np.ndarray) -> dict[str, float]:
    told: dict[str, float] = {}
    waits = intersect(found.waits, judged.spans)
    single = any("_SingleProcessDataLoaderIter" in name for name in trace.names)
    workers = any("_MultiProcessingDataLoaderIter" in name for name in trace.names)
    if single != workers:
        told["single_process"] = float(single)
    if not len(steady) or not len(waits):
        return told
    waited = overlap(steady, waits)
    told["wait_ms_per_step"] = float(waited.mean()) / 1e6
    told["wait_ms_worst"] = float(waited.max()) / 1e6
    long = np.flatnonzero(waited > STARVED * (steady[:, 1] - steady[:, 0]))
    told["wait_steps"] = len(long) / len(steady)
    apart = np.diff(long)
    if len(apart) >= 2 and np.median(apart) >= 2 and np.mean(apart == np.median(apart)) >= 0.7:
        told["wait_every"] = float(np.median(apart))
    elif told["wait_steps"] <= _RARE and waited[long].sum() > 0.8 * waited.sum() and len(waited) >= _TREND:
        told["wait_rare"] = 1.0
    half = len(waited) // 2
    if len(waited) >= _TREND and waited[:half].any():
        ratio = float(waited[-half:].mean() / waited[:half].mean())
        order = np.corrcoef(np.argsort(np.argsort(waited, kind="stable")), np.arange(len(waited)))[0, 1]
        if abs(order) > _ORDERED and (ratio > _CHANGED or ratio * _CHANGED < 1):
            told["wait_grows"] = ratio
    return told
