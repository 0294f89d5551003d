"""What each family of causes costs, and what to change about it, with values computed from the trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fastfeed.profiler.model.causes import CAUSES, FAMILIES, Cause
from fastfeed.profiler.model.format import duration, percent, plural
from fastfeed.profiler.model.result import DeviceResult, FeedResult, Remedy
from fastfeed.profiler.verdict.input_advice import proxy_input, supply_change

__all__ = ["costs", "remedies"]

_LEAST = 0.005  # of the window: less is not worth a line
_PINNABLE = 0.1  # of the bytes copied: pageable memory that matters


def costs(device: DeviceResult) -> dict[str, int]:
    """Nanoseconds of the judged period that each family costs: idle time, exposed copies and communication.

    Waiting inside collectives for a rank that waits for its input is input, not communication.
    """
    judged, proxy = device.judged, proxy_input(device)
    spent = dict.fromkeys(FAMILIES, 0)
    for cause, ns in judged.causes.items():
        spent[CAUSES[cause].family] += ns
    spent["input"] += proxy
    spent["comm"] += max(judged.budget.comm - proxy, 0)
    spent["h2d"] += judged.budget.h2d
    return spent


def remedies(device: DeviceResult, feeds: Sequence[FeedResult] = ()) -> tuple[Remedy, ...]:
    """One per family that costs at least half a percent of the judged window, the costliest first."""
    judged = device.judged
    window = max(judged.budget.window, 1)
    made = []
    for family, spent in sorted(costs(device).items(), key=lambda item: -item[1]):
        if spent < _LEAST * window:
            continue
        change, evidence = _ADVICE[family](device, spent, feeds)
        made.append(
            Remedy(
                family=family,
                share=spent / window,
                ms_per_step=spent / device.facts["steps"] / 1e6
                if device.steady and device.facts.get("steps")
                else None,
                ceiling=window / max(window - spent, 1),
                causes={cause: ns for cause, ns in judged.causes.items() if CAUSES[cause].family == family},
                change=change,
                evidence=evidence,
            )
        )
    return tuple(made)


def _h2d(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    facts = device.facts
    pageable, rate = facts.get("h2d_pageable", 0.0), facts.get("h2d_gbps")
    evidence = f"{duration(spent)} are lost to copies to the GPU"
    if rate is not None:
        size = f"{facts['h2d_mb_per_step']:,.1f} MB per step" if "h2d_mb_per_step" in facts else "they run"
        evidence += f": {size} at {rate:,.{0 if rate >= 10 else 1 if rate >= 1 else 2}f} GB/s"
    if "prefetched" in facts:
        evidence += f", {percent(facts['prefetched'], 0)} of the time beside kernels"
    if pageable >= _PINNABLE:
        return (
            "Pin the host memory (pin_memory=True, non_blocking=True) and send images as uint8, a quarter of float32's "
            "bytes.",
            f"{evidence}; {percent(pageable, 0)} of the bytes come from pageable memory.",
        )
    return (
        "Copy the next batch on a stream of its own while this one trains (prefetch to the device); images as uint8.",
        evidence + ".",
    )


def _launch(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    facts = device.facts
    per_step = facts.get("launches_per_step")
    evidence = f"{per_step:,.0f} device operations per step" if per_step else plural(device.ops, "device operation")
    if "kernel_us" in facts:
        evidence += f", the median kernel runs {duration(facts['kernel_us'] * 1e3)}"
    if "lead_us" in facts:
        lead = facts["lead_us"]
        evidence += (
            f"; launches are {duration(lead * 1e3)} ahead of the GPU" if lead > 0 else "; no launch is ahead of the GPU"
        )
    return (
        "Launch less: torch.compile, jax.jit or jit_compile=True, CUDA graphs, a larger batch. More loader workers "
        "will not help.",
        f"{evidence}.",
    )


def _sync(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    facts = device.facts
    if facts.get("sync_calls"):
        evidence = (
            f"The host synchronizes {_often(facts, 'sync')}; of {duration(facts.get('sync_ms', 0) * 1e6)} in these "
            f"calls the GPU was idle for {duration(facts.get('sync_idle_ms', 0) * 1e6)}."
        )
    else:  # told by a function of the interpreter, e.g. block_until_ready
        evidence = f"The GPU idled {duration(spent)} while the host waited for its results."
    return (
        "Read results less often: no .item(), .cpu() or print of a loss in every step, but every 50 steps.",
        evidence,
    )


def _alloc(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    return (
        "Keep device memory: a caching allocator, no empty_cache() in the loop, batches of one shape "
        "(PyTorch: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).",
        f"Device memory was allocated or freed {_often(device.facts, 'alloc')}; cudaFree waits for the GPU.",
    )


def _plain(change: str, evidence: str) -> Callable[[DeviceResult, int, Sequence[FeedResult]], tuple[str, str]]:
    def advise(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
        return change, evidence.format(lost=duration(spent), share=percent(spent / max(device.judged.budget.window, 1)))

    return advise


def _comm(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    exposed, waited = device.judged.budget.comm, sum(charge.ns for charge in device.charges)
    on_host = device.judged.causes.get(Cause.HOST_COMM, 0)
    if on_host * 2 > spent:
        return (
            "Wait less often for other ranks on the host: barriers, gloo and object collectives out of the loop.",
            f"The GPU idled {duration(on_host)} while the host waited for other ranks.",
        )
    if waited * 2 > exposed and device.charges:
        worst = max(device.charges, key=lambda charge: charge.ns)
        why = CAUSES[worst.cause].title if worst.cause is not None else "its own work"
        return (
            f"Make {worst.culprit} as fast as the others: it is late because of {why}.",
            f"{duration(waited)} of {duration(exposed)} in collectives is waiting for a late rank.",
        )
    return (
        "Overlap the exchange of gradients with the backward pass (larger buckets, fewer of them), or look at the "
        "links between GPUs.",
        f"{duration(exposed)} in collectives with no computation beside them"
        + (f", {duration(waited)} of it waiting for others." if waited else "."),
    )


_ADVICE: dict[str, Callable[[DeviceResult, int, Sequence[FeedResult]], tuple[str, str]]] = {
    "input": supply_change,
    "h2d": _h2d,
    "launch": _launch,
    "sync": _sync,
    "alloc": _alloc,
    "comm": _comm,
    "checkpoint": _plain(
        "Save in the background (orbax AsyncCheckpointer, torch.distributed.checkpoint.async_save); evaluate and log "
        "less often.",
        "The GPU idled {lost}, {share} of the time, while the training thread saved, evaluated or logged.",
    ),
    "compile": _plain(
        "Keep shapes fixed and warm the compile cache (TORCHINDUCTOR_CACHE_DIR, JAX_COMPILATION_CACHE_DIR); leave "
        "the first steps out of what is measured.",
        "The GPU idled {lost}, {share} of the time, while code was compiled or loaded.",
    ),
    "contention": _plain(
        "Leave the training thread a core: fewer workers, OMP_NUM_THREADS=1 in them, ranks bound to their own cores.",
        "The launching thread was ready to run and had no core for {lost}, {share} of the time.",
    ),
    "dependency": _plain(
        "Look at which streams wait for which: launched work was held back by other work, the host was not late.",
        "Launched work was held back for {lost}, {share} of the time.",
    ),
    "profiler": _plain(
        "Record less (nsys -t cuda,nvtx, no stacks): part of the idle time is the profiler's own.",
        "The profiler was at work for {lost}, {share} of the time.",
    ),
    "unknown": _plain(
        "Record what the host does: nsys -t cuda,nvtx,osrt with NVTX ranges, or PyTorch's profiler with CPU activity.",
        "Nothing recorded says what the host did for {lost}, {share} of the time.",
    ),
}


def _often(facts: Mapping[str, float], what: str) -> str:
    if facts.get(f"{what}_per_step", 0) >= 0.05:
        return f"{facts[f'{what}_per_step']:,.1f} times per step"
    return plural(round(facts.get(f"{what}_calls", 0)), "time")
