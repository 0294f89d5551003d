"""The cost of each family of causes and the change for it, with values from the trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fastfeed.printable import plural
from fastfeed.profiler.model.causes import FAMILIES, STARVED, Cause
from fastfeed.profiler.model.format import duration, one_line, percent
from fastfeed.profiler.model.intervals import overlap, spans_at
from fastfeed.profiler.model.result import (
    ABSENT_RANKS,
    DeviceResult,
    FeedResult,
    FunctionTime,
    LateRank,
    Remedy,
)
from fastfeed.profiler.verdict.input_advice import TEXTS, change_in, input_advice, proxy_input

_Advise = Callable[[DeviceResult, int, Sequence[FeedResult]], tuple[str, str]]

_MIN_SHARE = 0.005  # of the window: a smaller cost is not reported
_MIN_PAGEABLE = 0.1  # of the copied bytes: less pageable memory does not matter
_INTERPRETER = {Cause.GC: "gc", Cause.GIL: "gil"}  # to the change for it


def family_costs(device: DeviceResult) -> dict[str, int]:
    """Judged nanoseconds per family: idle time, exposed copies and communication.

    Waiting inside a collective for a rank that waits for its own input counts as input, not as
    communication.
    """
    judged = device.judged
    proxy = proxy_input(device)
    spent = dict.fromkeys(FAMILIES, 0)
    for cause, ns in judged.causes.items():
        spent[cause.family] += ns
    spent["input"] += proxy
    spent["comm"] += max(judged.budget.comm - proxy, 0)
    spent["h2d"] += judged.budget.h2d
    return spent


def remedies(device: DeviceResult, feeds: Sequence[FeedResult] = ()) -> tuple[Remedy, ...]:
    """One per family that costs at least half a percent of the judged window, largest first."""
    window = max(device.judged.budget.window, 1)
    result = []
    for family, spent in sorted(family_costs(device).items(), key=lambda item: -item[1]):
        if spent < _MIN_SHARE * window:
            continue
        change, evidence = _ADVICE[family](device, spent, feeds)
        if (time := main_function(device, family)) is not None:
            evidence += f" Most of it in {describe_cost(device, time)}."
        if device.steps.guessed:
            change, evidence = _of_guesses(family, change, evidence)
        steps = device.metrics.get("steps") if device.steady else None
        result.append(
            Remedy(
                family=family,
                share=spent / window,
                ms_per_step=spent / steps / 1e6 if steps else None,
                ceiling=window / max(window - spent, 1),
                causes=_causes(device, family),
                change=change,
                evidence=evidence,
            )
        )
    return tuple(result)


def _causes(device: DeviceResult, family: str) -> dict[Cause, int]:
    return {cause: ns for cause, ns in device.judged.causes.items() if cause.family == family}


def main_function(device: DeviceResult, family: str) -> FunctionTime | None:
    """The program's function with at least half of a family's idle time, or None."""
    of_family = [time for time in device.functions if time.cause.family == family and time.file]
    spent = sum(_causes(device, family).values())
    worst = max(of_family, key=lambda time: time.ns, default=None)
    return worst if worst is not None and worst.ns * 2 >= spent else None


def interpreter_cause(device: DeviceResult, family: str) -> Cause | None:
    """Garbage collection or the GIL, if it takes half of a family's idle time; else None."""
    causes = _causes(device, family)
    spent = sum(causes.values())
    return next(
        (cause for cause in _INTERPRETER if spent and causes.get(cause, 0) * 2 >= spent), None
    )


def describe_cost(device: DeviceResult, time: FunctionTime) -> str:
    """`preprocess (images.py:40), 60 ms of every step`, or the sum if no steps are judged."""
    steps = device.metrics.get("steps") if device.steady else None
    cost = f"{duration(time.ns / steps)} of every step" if steps else duration(time.ns)
    return f"{time}, {cost}"


def _of_guesses(family: str, change: str, evidence: str) -> tuple[str, str]:
    """Reword advice for rounds that may not be steps, and whose copies may not be batches."""
    if family == "h2d":
        change = f"If these copies are batches: {change[0].lower()}{change[1:]}"
    return change, evidence.replace(" per step", " per guessed step")


def _h2d(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    metrics = device.metrics
    pageable = metrics.get("h2d_pageable", 0.0)
    rate = metrics.get("h2d_gbps")
    evidence = f"{duration(spent)} are lost to copies to the GPU"
    if rate is not None:
        per_step = metrics.get("h2d_mb_per_step")
        size = "they run" if per_step is None else f"{per_step:,.1f} MB per step"
        evidence += f": {size} at {rate:,.{0 if rate >= 10 else 1 if rate >= 1 else 2}f} GB/s"
    if "prefetched" in metrics:
        evidence += f", {percent(metrics['prefetched'], 0)} of the time overlapping kernels"
    if pageable >= _MIN_PAGEABLE:
        return (
            change_in(device.framework, "pageable"),
            f"{evidence}; {percent(pageable, 0)} of the bytes come from pageable memory.",
        )
    return change_in(device.framework, "prefetch"), evidence + "."


def _launch(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    metrics = device.metrics
    per_step = metrics.get("launches_per_step")
    evidence = plural(device.ops, "device operation")
    if per_step:
        evidence = f"{per_step:,.0f} device operations per step"
    if "kernel_us" in metrics:
        evidence += f", the median kernel runs {duration(metrics['kernel_us'] * 1e3)}"
    if "lead_us" in metrics:
        lead = metrics["lead_us"]
        ahead = duration(lead * 1e3) if lead > 0 else "not"
        evidence += f"; launches are {ahead} ahead of the GPU"
    cause = interpreter_cause(device, "launch")
    if cause is not None:
        return change_in("", _INTERPRETER[cause]), f"{evidence}."
    slow = main_function(device, "launch")
    if slow is not None:
        change = f"Make {slow} faster, or call it less often: the GPU waits for it with nothing"
        return f"{change} launched.", f"{evidence}."
    change = change_in(device.framework, "launch")
    if family_costs(device)["input"] < STARVED * device.judged.budget.window:
        change += " More loader workers will not help."
    return change, f"{evidence}."


def _code(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    function = main_function(device, "code")
    change = (
        f"Move {function or 'this code'} out of the training loop or to another thread; if it"
        " prepares batches, to the loader's workers."
    )
    lost = duration(spent)
    return change, f"The GPU idled {lost} while the host ran code that launches nothing."


def _sync(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    metrics = device.metrics
    if metrics.get("sync_calls"):
        inside = duration(metrics.get("sync_idle_ms", 0) * 1e6)
        evidence = (
            f"The host synchronizes {_frequency(metrics, 'sync')}{_sync_site(device)}:"
            f" {duration(spent)} idle, {inside} of it inside these calls, the rest until the host"
            " was ahead again."
        )
    else:  # seen only as a Python function, e.g. block_until_ready
        evidence = f"The GPU idled {duration(spent)} while the host waited for its results."
    if device.steady is not None and metrics.get("steps"):
        left = device.steady.budget.window - spent
        evidence = (
            f"{evidence[:-1]}; a step without them takes about {duration(left / metrics['steps'])}"
            " (estimate)."
        )
    return change_in(device.framework, "sync"), evidence


def _sync_site(device: DeviceResult) -> str:
    """The call site that costs most, in words; "" if it is not recorded."""
    slices = device.slices
    rows = np.flatnonzero((slices.cause == Cause.SYNC) & (slices.name >= 0))
    if not len(rows):
        return ""
    names, inverse = np.unique(slices.name[rows], return_inverse=True)
    spent = np.bincount(inverse, overlap(spans_at(slices, rows), device.judged.spans))
    return f", most of it in {one_line(device.names[names[spent.argmax()]], 60)}"


def _alloc(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    often = _frequency(device.metrics, "alloc")
    evidence = f"Device memory was allocated or freed {often}; freeing it waits for the GPU."
    return change_in(device.framework, "alloc"), evidence


def _module_load(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    """The driver loads a kernel at its first use, unless set to load all at the start."""
    share = percent(device.judged.share(spent))
    evidence = (
        f"The GPU idled {duration(spent)}, {share} of the time, while contexts were set up or"
        " kernels loaded."
    )
    warm = "run every code path once as a warm-up, and exclude the first steps from the measurement"
    if any(name.startswith("hip") for name in device.names):
        return f"Kernels are loaded at their first use: {warm}.", evidence
    return (
        f"Load kernels at the start, not at their first use: CUDA_MODULE_LOADING=EAGER; or {warm}.",
        evidence,
    )


def _fixed_advice(family: str) -> _Advise:
    def advise(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
        share = percent(device.judged.share(spent))
        evidence = TEXTS["evidence"][family].format(lost=duration(spent), share=share)
        return change_in(device.framework, family), evidence

    return advise


def _comm(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    exposed = device.judged.budget.comm
    waited = sum(charge.ns for charge in device.charges)
    on_host = device.judged.ns(Cause.HOST_COMM)
    if on_host * 2 > spent:
        change = (
            "Synchronize ranks on the host less often: move barriers, gloo and object collectives"
            " out of the training loop."
        )
        return change, f"The GPU idled {duration(on_host)} while the host waited for other ranks."
    if waited * 2 > exposed and device.charges:
        lost = f"{duration(waited)} of {duration(exposed)} in collectives is waiting for "
        absent = sum(charge.ns for charge in device.charges if charge.late_rank == ABSENT_RANKS)
        if device.late_rank is None or absent * 2 > waited:
            change = "Analyze the traces of all ranks together: these cannot tell which rank is"
            return f"{change} late, and why.", f"{lost}{ABSENT_RANKS}."
        change, evidence = late_rank_advice(device.late_rank)
        return change, lost + evidence
    change = (
        "Overlap the gradient all-reduce with the backward pass (fewer, larger buckets), or check"
        " the links between GPUs."
    )
    others = f", {duration(waited)} of it waiting for others" if waited else ""
    return change, f"{duration(exposed)} in collectives that no computation overlaps{others}."


_ADVICE: dict[str, _Advise] = {
    **{family: _fixed_advice(family) for family in TEXTS["evidence"]},
    "input": input_advice,
    "h2d": _h2d,
    "launch": _launch,
    "code": _code,
    "sync": _sync,
    "alloc": _alloc,
    "comm": _comm,
    "module_load": _module_load,
}


def _frequency(metrics: Mapping[str, float], what: str) -> str:
    if metrics.get(f"{what}_per_step", 0) >= 0.05:
        count = metrics[f"{what}_per_step"]
        return f"{count:,.{0 if count >= 100 else 1}f} times per step"
    return plural(round(metrics.get(f"{what}_calls", 0)), "time")


_SLOWER = 1.1  # times the median rank's kernels: more than boards of one model differ


def late_rank_name(late: LateRank) -> str:
    """Label of the late rank without its GPU, or words for one that changes."""
    return "a late rank that changes from step to step" if _changes(late) else _short(late.label)


def late_rank_sentence(late: LateRank) -> str:
    """The wait for the late rank inside collectives, and the reason for it."""
    waited = duration(late.waited_ns)
    if _changes(late):
        return (
            f"ranks waited {duration(late.waited_ns / late.share)} for each other inside"
            f" collectives; the late one changes from step to step, most often {_short(late.label)}"
            f" ({percent(late.share, 0)})"
        )
    why = late.cause.title if late.cause is not None else "unknown reason"
    if _is_slower(late):
        why = f"its kernels take {late.kernels:.2f} times as long"
    return (
        f"others waited {waited} inside collectives for {one_line(late.label, 60)}, which was late:"
        f" {why}"
    )


def late_rank_advice(late: LateRank) -> tuple[str, str]:
    """The change to make, and the end of the sentence "... is waiting for"."""
    label = _short(late.label)
    title = late.cause.title if late.cause is not None else ""
    if _is_slower(late):
        end = f"whose kernels take {late.kernels:.2f} times as long as those of the median rank."
        change = (
            f"Check the GPU of {label}, whose kernels take {late.kernels:.2f} times as long: a"
            " thermal or power limit, another model (nvidia-smi -q -d PERFORMANCE,CLOCK), or larger"
            " batches."
        )
    elif late.changes:
        often = f"most often {label} ({percent(late.share, 0)})."
        change = "Make steps equally long on all ranks: the late one changes from step to step,"
        change += f" mostly because of {title}."
        if late.cause is None:
            change = (
                "Give all ranks equal work in each step (samples of one size, or bucketed by length"
                " or cost): no rank is slow in general, the late one changes from step to step."
            )
        return change, f"a rank that changes from step to step, {often}"
    elif late.cause is None:
        end = "which is late for a reason that is not recorded."
        change = f"Find out why {label} is late: nothing recorded explains it. Compare its steps"
        change += " with the others'."
    else:
        end = f"which is late: {title}."
        change = f"Make {label} as fast as the others: it is late because of {title}."
    return change, f"{label}, {end}"


def _changes(late: LateRank) -> bool:
    return late.changes and not _is_slower(late)


def _is_slower(late: LateRank) -> bool:
    """True if its kernels are slower than the others', without another cause."""
    return late.cause is None and late.kernels is not None and late.kernels >= _SLOWER


def _short(label: str) -> str:
    return label.split(" (", 1)[0]
