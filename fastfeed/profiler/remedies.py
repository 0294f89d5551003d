"""What each family of causes costs, and what to change about it, with values computed from the trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from fastfeed.profiler.causes import CAUSES, FAMILIES, Cause
from fastfeed.profiler.result import DeviceResult, FeedResult, Remedy
from fastfeed.profiler.share import STARVING

__all__ = ["feed_change", "proxy_input", "remedies"]

_LEAST = 0.005  # of the window: less is not worth a line


def proxy_input(device: DeviceResult) -> int:
    """Nanoseconds that this device waited inside collectives because another rank waited for its input."""
    return sum(charge.ns for charge in device.charges if charge.cause in STARVING)


def remedies(device: DeviceResult, feeds: Sequence[FeedResult] = ()) -> tuple[Remedy, ...]:
    """One per family that costs at least half a percent of the judged window, the costliest first."""
    judged = device.judged
    window = max(judged.budget.window, 1)
    proxy = proxy_input(device)
    costs = dict.fromkeys(FAMILIES, 0)
    for cause, spent in judged.causes.items():
        costs[CAUSES[cause].family] += spent
    costs["input"] += proxy
    costs["comm"] += max(judged.budget.comm - proxy, 0)
    costs["h2d"] += judged.budget.h2d
    made = []
    for family, spent in sorted(costs.items(), key=lambda item: -item[1]):
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


def _input(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    facts, waits = device.facts, device.judged.input
    culprits = [charge for charge in device.charges if charge.cause is Cause.INPUT]
    if culprits and proxy_input(device) * 2 > spent:
        worst = max(culprits, key=lambda charge: charge.ns)
        return (
            f"Fix the input of {worst.culprit}; the others wait for it inside collectives.",
            f"{_ms(worst.ns)} inside collectives while {worst.culprit} waited for its input.",
        )
    evidence = f"{waits.waits} waits for input, {_ms(waits.exposed)} with the GPU idle, {_ms(waits.hidden)} hidden."
    every = facts.get("wait_every")
    if every:
        evidence += f" A long one every {every:.0f} steps."
    feed = max(feeds, key=lambda one: one.waited_ns, default=None)
    if feed is not None and feed.busiest:
        return feed_change(feed), evidence
    faster = _faster(device, spent)
    if facts.get("single_process"):
        workers = _workers(facts)
        change = f"DataLoader(num_workers={workers}, persistent_workers=True, pin_memory=True): " if workers else ""
        return (
            f"{change or 'Give the DataLoader workers: '}batches are now made in the training thread itself.",
            f"{evidence} The loader has no workers (_SingleProcessDataLoaderIter).",
        )
    if every:
        return (
            f"Raise prefetch_factor, or add to the {every:.0f} workers; with in_order=False one slow batch does not "
            "hold up the others.",
            evidence,
        )
    if "single_process" in facts:
        return (
            f"Make batches {faster:.1f} times as fast: so many times the workers while cores are free, else decode "
            "at reduced size or on the GPU.",
            evidence,
        )
    return (
        f"Make batches {faster:.1f} times as fast: more decoding threads while cores are free, or decode on the GPU.",
        evidence,
    )


def feed_change(feed: FeedResult) -> str:
    """The feed told how long each stage took: needed rate against what its threads give."""
    count, spent = feed.stages[feed.busiest]
    work = sum(ns for stage, (_, ns) in feed.stages.items() if stage not in ("wait", "place"))
    share = spent / max(work, 1)
    used = work / max(feed.span_ns * max(feed.threads, 1), 1)
    faster = feed.span_ns / max(feed.span_ns - feed.waited_ns, 1)
    per_batch = spent / max(count, 1) / 1e6
    lead = f"{feed.busiest} takes {share:.0%} of the feed's work, {per_batch:.1f} ms per span"
    if feed.busiest == "read":
        return (
            f"{lead}: store larger shards, or keep them near (cache=); reading must become {faster:.1f} times as fast."
        )
    if used < 0.8:
        return (
            f"{lead}, and its {feed.threads} threads are busy {used:.0%} of the time: raise prefetch=, then threads=."
        )
    threads = math.ceil(feed.threads * faster)
    return f"{lead}: threads={threads} instead of {feed.threads} while cores are free, else decode='gpu'."


def _faster(device: DeviceResult, spent: int) -> float:
    """T / (T - exposed): how many times faster batches must come so that nobody waits."""
    window = device.judged.budget.window
    return window / max(window - spent, 1)


def _workers(facts: Mapping[str, float]) -> int:
    """Loading takes `wait` ms per step in one process, and the rest of a step is time to load in: ceil(wait / rest)."""
    wait, step = facts.get("wait_ms_per_step"), facts.get("step_ms")
    if not wait or not step or step <= wait:
        return 0
    return max(2, math.ceil(wait / (step - wait)) + 1)


def _h2d(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    facts = device.facts
    pageable, rate = facts.get("h2d_pageable"), facts.get("h2d_gbps", 0.0)
    size = f"{facts['h2d_mb_per_step']:.1f} MB per step" if "h2d_mb_per_step" in facts else "What there is"
    beside = f", {facts.get('prefetched', 0):.0%} of the time beside kernels" if "prefetched" in facts else ""
    evidence = f"{_ms(spent)} are lost to copies to the GPU: {size} at {rate:.2g} GB/s{beside}"
    if pageable:
        return (
            "Pin the host memory (pin_memory=True, non_blocking=True) and send uint8, a quarter of float32's bytes.",
            f"{evidence}; {pageable:.0%} of the bytes come from pageable memory.",
        )
    return (
        "Copy the next batch on a stream of its own while this one trains (prefetch to the device), as uint8.",
        evidence + ".",
    )


def _launch(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    facts = device.facts
    per_step = facts.get("launches_per_step")
    many = f"{per_step:,.0f} device operations per step" if per_step else f"{device.ops:,} device operations"
    return (
        "Launch less: torch.compile, jax.jit or jit_compile=True, CUDA graphs, a larger batch. More loader workers "
        "will not help.",
        f"{many}, the median kernel runs {facts.get('kernel_us', 0):.0f} us and was launched "
        f"{facts.get('lead_us', 0):.0f} us ahead.",
    )


def _sync(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    facts = device.facts
    return (
        "Read results less often: no .item(), .cpu() or print of a loss in every step, but every 50 steps.",
        f"The host synchronizes {_often(facts, 'sync')}; of {facts.get('sync_ms', 0):,.0f} "
        f"ms in these calls the GPU was idle for {facts.get('sync_idle_ms', 0):,.0f} ms.",
    )


def _alloc(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    return (
        "Keep device memory: a caching allocator, no empty_cache() in the loop, batches of one shape "
        "(PyTorch: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True).",
        f"Device memory was allocated or freed {_often(device.facts, 'alloc')}; cudaFree waits for the GPU.",
    )


def _plain(change: str, evidence: str) -> Callable[[DeviceResult, int, Sequence[FeedResult]], tuple[str, str]]:
    def advise(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
        return change, evidence.format(ms=_ms(spent), share=f"{spent / max(device.judged.budget.window, 1):.1%}")

    return advise


def _comm(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    exposed, waited = device.judged.budget.comm, device.comm_wait
    if waited * 2 > exposed and device.charges:
        worst = max(device.charges, key=lambda charge: charge.ns)
        why = CAUSES[worst.cause].title if worst.cause is not None else "its own work"
        return (
            f"Make {worst.culprit} as fast as the others: it is late because of {why}.",
            f"{_ms(waited)} of {_ms(exposed)} in collectives is waiting for a late rank.",
        )
    return (
        "Overlap the exchange of gradients with the backward pass (larger buckets, fewer of them), or look at the "
        "links between GPUs.",
        f"{_ms(exposed)} in collectives with no computation beside them, {_ms(waited)} of it waiting for others.",
    )


_ADVICE: dict[str, Callable[[DeviceResult, int, Sequence[FeedResult]], tuple[str, str]]] = {
    "input": _input,
    "h2d": _h2d,
    "launch": _launch,
    "sync": _sync,
    "alloc": _alloc,
    "comm": _comm,
    "checkpoint": _plain(
        "Save in the background (orbax AsyncCheckpointer, torch.distributed.checkpoint.async_save); evaluate and log "
        "less often.",
        "The GPU idled {ms}, {share} of the time, while the training thread saved, evaluated or logged.",
    ),
    "compile": _plain(
        "Keep shapes fixed and warm the compile cache (TORCHINDUCTOR_CACHE_DIR, JAX_COMPILATION_CACHE_DIR); leave "
        "the first steps out of what is measured.",
        "The GPU idled {ms}, {share} of the time, while code was compiled or loaded.",
    ),
    "contention": _plain(
        "Leave the training thread a core: fewer workers, OMP_NUM_THREADS=1 in them, ranks bound to their own cores.",
        "The launching thread was ready to run and had no core for {ms}, {share} of the time.",
    ),
    "dependency": _plain(
        "Look at which streams wait for which: launched work was held back by other work, the host was not late.",
        "Launched work was held back for {ms}, {share} of the time.",
    ),
    "profiler": _plain(
        "Record less (nsys -t cuda,nvtx, no stacks): part of the idle time is the profiler's own.",
        "The profiler was at work for {ms}, {share} of the time.",
    ),
    "unknown": _plain(
        "Record what the host does: nsys -t cuda,nvtx,osrt with NVTX ranges, or PyTorch's profiler with CPU activity.",
        "Nothing recorded says what the host did for {ms}, {share} of the time.",
    ),
}


def _often(facts: Mapping[str, float], what: str) -> str:
    if f"{what}_per_step" in facts:
        return f"{facts[f'{what}_per_step']:.1f} times per step"
    return f"{facts.get(f'{what}_calls', 0):,.0f} times"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.1f} ms"
