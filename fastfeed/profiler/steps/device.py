"""One device's result: its periods, its worst gaps, its label."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from fastfeed.profiler.attribution.attribution import Attribution, caused, period
from fastfeed.profiler.attribution.classify import Doing
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.intervals import clip, measure, overlap, spans, subtract, union
from fastfeed.profiler.model.result import Cold, DeviceResult, Gap, Period, Slices, Steps
from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.steps.input_share import STARVING, share_of
from fastfeed.profiler.steps.metrics import facts
from fastfeed.profiler.steps.step_stats import spreads

__all__ = ["device_result", "labels", "main_process"]

_WORST = 3
_HELD_NS = 1_000_000  # events of other streams rarely hold work that long while the device does nothing
_ADDRESS = re.compile(r" (object )?at 0x[0-9a-f]+")


def device_result(
    trace: Trace, index: int, device: int, host: Host, found: Attribution, steps: Steps, label: str, fewest: int
) -> DeviceResult:
    """Everything about one device but what other ranks cost it. Of fewer than `fewest` steps the whole is judged."""
    first, last = map(int, found.edges)
    whole = period(found, spans(np.array([first]), np.array([last])))
    steady_spans = clip(union(steps.spans[steps.steady]), first, last)
    steady = period(found, steady_spans) if steps.steady.sum() >= fewest and measure(steady_spans) else None
    judged = steady or whole
    told = dict(facts(trace, host, found, steps, judged))
    ops = trace.ops
    longest = int((ops.end[found.rows] - ops.start[found.rows]).max(initial=0))
    told["longest_op_share"] = longest / max(last - first, 1)
    for name, part in (("late", found.gaps.late), ("call", found.gaps.in_call), ("queued", found.gaps.queued)):
        told[f"{name}_share"] = float(overlap(part, judged.spans).sum()) / max(judged.budget.idle, 1)
    unheld = (found.slices.cause == Cause.DEPENDENCY) & (found.slices.name < 0)
    unheld &= found.slices.end - found.slices.start > _HELD_NS
    unheld &= not _shares_process(trace, device)  # else work of another device may hold it, by means not recorded
    held = overlap(spans(found.slices.start[unheld], found.slices.end[unheld]), judged.spans).sum()
    told["held_share"] = float(held) / max(judged.budget.idle, 1)
    main = main_process(trace, found.rows)
    rank = trace.processes[main].rank if main >= 0 else None
    return DeviceResult(
        label=label,
        trace=index,
        device=device,
        rank=rank,
        first=first,
        last=last,
        whole=whole,
        steady=steady,
        cold=_cold(found, steps, steady, first) if steady else None,
        steps=steps,
        share=share_of(steps, judged, caused(found.slices, *STARVING)),
        slices=found.slices,
        busy=found.busy,
        waits=found.waits,
        worst=_worst(trace, host, found, steps, judged),
        ops=len(found.rows),
        launches=int((found.launch >= 0).sum()),
        facts=told,
        threads=tuple(_thread(trace, number) for number in range(len(trace.threads))),
        names=trace.names,
        per_step=spreads(found, steps, judged),
    )


def main_process(trace: Trace, rows: np.ndarray) -> int:
    """The process of most of these ops; -1 where it is unknown."""
    process, count = np.unique(trace.ops.process[rows], return_counts=True)
    return int(process[np.argmax(count)])


def labels(devices: Sequence[tuple[Trace, int]], traces: int) -> list[str]:
    """What reports call each device: its rank where there are several, its number, its name."""
    made = []
    for trace, number in devices:
        device = trace.devices[number]
        process = trace.processes[device.process] if 0 <= device.process < len(trace.processes) else None
        rank = process.rank if process is not None else None
        gpu = f"GPU {device.ordinal}" + (f" ({device.name})" if device.name else "")
        many = len(devices) > 1 or traces > 1
        made.append(f"rank {rank}, {gpu}" if many and rank is not None else gpu)
    for text in {text for text in made if made.count(text) > 1}:  # two ranks that each call theirs GPU 0
        twins = [place for place, other in enumerate(made) if other == text]
        for place in twins:
            trace, number = devices[place]
            process = trace.devices[number].process
            of = f"pid {trace.processes[process].pid}" if 0 <= process < len(trace.processes) else f"trace {place}"
            made[place] = f"{of}, {text}"
        if len({made[place] for place in twins}) < len(twins):
            for place in twins:
                made[place] = f"{made[place]} #{place}"
    return made


def _cold(found: Attribution, steps: Steps, steady: Period, first: int) -> Cold | None:
    """What came before the first steady step."""
    begins = int(steady.spans[0, 0])
    before = clip(subtract(spans(np.array([first]), np.array([begins])), steady.spans), first, begins)
    left_out = int(np.argmax(steps.steady))
    if begins <= first or not left_out:
        return None
    cold = period(found, before)
    return Cold(left_out, before, cold.budget.idle, cold.causes)


def _worst(trace: Trace, host: Host, found: Attribution, steps: Steps, judged: Period) -> tuple[Gap, ...]:
    """The longest gaps of the judged period; where most of them wait for input, those that do come first."""
    gaps, slices = found.gaps, found.slices
    if not len(gaps.start):
        return ()
    inside = overlap(gaps_spans := spans(gaps.start, gaps.end), judged.spans)
    by_input = np.zeros(len(gaps.start), np.int64)
    waiting = slices.cause == Cause.INPUT
    np.add.at(by_input, slices.gap[waiting], (slices.end - slices.start)[waiting])
    starved = judged.causes.get(Cause.INPUT, 0) * 5 > judged.budget.idle
    weight = np.where(inside > 0, by_input if starved and by_input.any() else inside, 0)
    chosen = np.argsort(-weight, kind="stable")[:_WORST]
    return tuple(_gap(trace, host, found, steps, int(gap)) for gap in chosen if weight[gap] and len(gaps_spans))


def _gap(trace: Trace, host: Host, found: Attribution, steps: Steps, gap: int) -> Gap:
    gaps, slices, ops = found.gaps, found.slices, trace.ops
    start, end = int(gaps.start[gap]), int(gaps.end[gap])
    first, last = np.searchsorted(slices.gap, [gap, gap + 1])
    length = slices.end[first:last] - slices.start[first:last]
    sums: dict[Cause, int] = {}
    for cause, spent in zip(slices.cause[first:last], length, strict=True):
        sums[Cause(int(cause))] = sums.get(Cause(int(cause)), 0) + int(spent)
    longest = first + int(np.argmax(length))
    thread = int(slices.thread[longest])
    before = found.rows[ops.end[found.rows] == start]
    step = np.flatnonzero((steps.spans[:, 0] <= start) & (steps.spans[:, 1] > start)) if len(steps.spans) else []
    return Gap(
        start=start,
        end=end,
        causes=dict(sorted(sums.items(), key=lambda item: -item[1])),
        next_op=trace.name(int(ops.name[gaps.op[gap]])),
        thread=_thread(trace, thread) if thread >= 0 else "",
        inside=_inside(trace, host, slices, longest) or trace.name(int(slices.name[longest])),
        step=steps.labels[int(step[0])] if len(step) else "",
        last_op=trace.name(int(ops.name[before[0]])) if len(before) else "",
    )


def _shares_process(trace: Trace, device: int) -> bool:
    """Does a process that works on this device work on others, too?"""
    mine = np.unique(trace.ops.process[trace.ops.device == device])
    return bool((np.isin(trace.ops.process, mine) & (trace.ops.device != device)).any())


def _inside(trace: Trace, host: Host, slices: Slices, longest: int) -> str:
    """The tightest range or call that covers most of a slice and means its cause; else of any meaning."""
    start, end, thread = int(slices.start[longest]), int(slices.end[longest]), int(slices.thread[longest])
    here = np.flatnonzero((host.thread == thread) & (host.start < end) & (host.end > start) & (host.name >= 0))
    here = here[host.doing[here] < Doing.WAITING]
    covered = np.minimum(host.end[here], end) - np.maximum(host.start[here], start)
    most = here[covered * 10 >= 8 * (end - start)]
    meant = (
        most[[Doing(int(doing)).cause == slices.cause[longest] for doing in host.doing[most]]] if len(most) else most
    )
    chosen = meant if len(meant) else most
    if not len(chosen):
        return ""
    return _ADDRESS.sub("", trace.name(int(host.name[chosen[np.argmin(host.end[chosen] - host.start[chosen])]])))


def _thread(trace: Trace, index: int) -> str:
    thread = trace.threads[index]
    return f"{thread.name} (thread {thread.tid})" if thread.name else f"thread {thread.tid}"
