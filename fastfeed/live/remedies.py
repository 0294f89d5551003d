"""Suggested changes with numbers, for the first cause that the figures show.

Each is an estimate of what would help.
"""

from __future__ import annotations

import math

from fastfeed.live.cpu import CpuUse
from fastfeed.live.nvml import GpuUse
from fastfeed.live.rates import Rates
from fastfeed.live.states import State

_THROTTLED = 0.05
_FULL = 0.9
_ENGINES = 0.9
_LINK = 0.8
_READS = 0.5
_MARGIN = 1.1  # more threads than just enough


def remedy(
    state: State,
    window: Rates | None,
    threads: int,
    cpu: CpuUse | None = None,
    gpu: GpuUse | None = None,
) -> str | None:
    """Advice for a feed that is not FED; for one that is, its spare capacity.

    None: nothing is known to say.

    Args:
        state: What is shown.
        window: Rates of the last ten seconds.
        threads: Of the feed.
        cpu: Use of the CPU, if known.
        gpu: Use of the GPU, if known.
    """
    if window is None or window.need is None:
        return None
    if state is State.FED:
        if not window.capacity or window.capacity <= window.need:
            return None
        times = window.capacity / window.need
        how_much = (
            f"{times - 1:.0%} more than"
            if times < 2
            else f"{times:.1f} times what"
            if times < 10
            else "over 10 times what"
        )
        return f"the threads could make {how_much} is needed"
    if state not in (State.TIGHT, State.STARVED, State.SEVERE):
        return None
    found = _container(window, cpu) or _reading(window, threads) or _cores(window, cpu) or _gpu(gpu)
    return found or _threads(window, threads, cpu)


def _container(window: Rates, cpu: CpuUse | None) -> str | None:
    if cpu is None or cpu.throttled is None or cpu.throttled <= _THROTTLED:
        return None
    more = _cores_needed(window, cpu)
    to = f"; raise it to {more}" if more and cpu.quota and more > cpu.quota else "; raise it"
    return (
        f"the container's CPU quota of {cpu.quota or 0:g} cores holds it back {cpu.throttled:.0%}"
        f" of the time{to}"
    )


def _reading(window: Rates, threads: int) -> str | None:
    read = window.stage_ms.get("read", 0.0)
    if (
        window.need is None
        or not window.thread_ms
        or read / window.thread_ms <= _READS
        or not threads
    ):
        return None
    needed = math.ceil(window.need * window.thread_ms / 1e3 * _MARGIN)
    share = read / window.thread_ms
    if needed <= threads:
        return None
    return (
        f"reading takes {read:.1f} ms per image, {share:.0%} of thread time: threads={needed}"
        f" instead of {threads}, or faster storage, or shards"
    )


def _cores(window: Rates, cpu: CpuUse | None) -> str | None:
    """Cores that are full, by this process or by others."""
    if cpu is None or cpu.cores is None or not cpu.usable:
        return None
    needed = _cores_needed(window, cpu)
    if cpu.cores > _FULL * cpu.usable:
        if needed and needed > cpu.usable:
            more = math.ceil(needed - cpu.usable)
            return f'all {cpu.usable:g} cores are busy: {more} more, or decode="hybrid" on a GPU'
        return (
            f"all {cpu.usable:g} cores are busy: fewer other threads in the trainer, or"
            ' decode="hybrid" on a GPU'
        )
    if (
        cpu.others is not None
        and cpu.machine
        and cpu.cores + cpu.others > _FULL * cpu.machine
        and cpu.others > 0.1 * cpu.machine
    ):
        return f"other processes use {cpu.others:.1f} of the machine's {cpu.machine} cores"
    return None


def _gpu(gpu: GpuUse | None) -> str | None:
    if gpu is None:
        return None
    if gpu.nvjpg is not None and gpu.nvjpg > _ENGINES:
        return (
            f"the GPU's JPEG engines are busy {gpu.nvjpg:.0%} of the time: give the CPU a larger"
            " share"
        )
    if gpu.pcie_rx is not None and gpu.pcie_limit and gpu.pcie_rx > _LINK * gpu.pcie_limit:
        return (
            f"the PCIe link carries {gpu.pcie_rx / 1e9:.1f} of {gpu.pcie_limit / 1e9:.1f} GB/s:"
            " convert uint8 on the device"
        )
    return None


def _threads(window: Rates, threads: int, cpu: CpuUse | None) -> str | None:
    dominant = window.dominant
    if dominant is None or window.need is None or not threads:
        return None
    needed = math.ceil(window.need * window.thread_ms / 1e3 * _MARGIN)
    stage = f"{dominant[0]} takes {dominant[1]:.0%} of the threads' time"
    if needed > threads:
        advice = f"{stage}: threads={needed} instead of {threads}"
        if cpu is not None and cpu.usable and needed > cpu.usable:
            advice += f', on {needed} cores instead of {cpu.usable:g}, or decode="hybrid" on a GPU'
        return advice
    return (
        f"{stage}; the threads could keep up: try a larger prefetch, or side_process=True if Python"
        " is busy"
    )


def _cores_needed(window: Rates, cpu: CpuUse) -> int | None:
    """Cores for this process if the trainer never waited: CPU time per image times images/s."""
    if cpu.cores is None or not window.delivered or window.need is None:
        return None
    return math.ceil(cpu.cores / window.delivered * window.need)
